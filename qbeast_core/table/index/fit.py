"""Adapt an append to the version it follows. Files that would break the order of weights are staged."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.log.columns.stored import StoredColumns, named_revision, stored_revision
from qbeast_core.log.intent import WriteIntent
from qbeast_core.spec.block import Block
from qbeast_core.spec.file_path import FilePath
from qbeast_core.spec.revision import Revision
from qbeast_core.table.index.state import IndexState, new_blocks
from qbeast_core.table.index.thresholds import blocks_in_order
from qbeast_core.table.snapshot.snapshot import Snapshot


def fit_blocks(intent: WriteIntent, snapshot: Snapshot) -> WriteIntent:
    """Adapt an intent to `snapshot`, which is newer than the version it was planned on.

    New files that have no place in the tree (format 8.3), or lack a sample column that the table has by now, are
    staged, and optimize indexes them later, so an append does not fail. Changes that replace files are returned as they
    are.
    """
    if intent.mode == "append" and not intent.removes and snapshot.sample_column is not None:
        adds = (add.without_index() if add.has_hidden_weights else add for add in intent.adds)
        intent = replace(intent, adds=tuple(adds))
    revision = intent.revision
    indexed = [add for add in intent.adds if add.blocks is not None]
    if intent.mode != "append" or intent.removes or intent.new_revision or revision is None or not indexed:
        return intent
    files = [add.blocks or () for add in indexed]
    state = IndexState(snapshot)
    live = state.binding(revision)
    live = live if _knows(snapshot, revision) else live.clear()
    trees = state.with_partitions(indexed)[1].tolist()
    fitting = blocks_in_order(files, live, trees=trees, dimensions=len(revision.columns))
    if fitting == files:
        return intent
    fitted = {add.path: _fitted(add, blocks) for add, blocks in zip(indexed, fitting, strict=True)}
    return replace(intent, adds=tuple(fitted.get(add.path, add) for add in intent.adds))


def with_new_names(intent: WriteIntent, planned: Metadata | None, snapshot: Snapshot) -> WriteIntent:
    """Return an intent with the names that columns have in `snapshot`, which may be newer than its plan."""
    if intent.revision is None or planned is None or planned.schema_string == snapshot.schema_json:
        return intent
    stored = stored_revision(intent.revision, StoredColumns.of(planned))
    return replace(intent, revision=named_revision(stored, snapshot.columns))


def breaks_order(intent: WriteIntent, snapshot: Snapshot) -> bool:
    """Return whether blocks of `snapshot` rely on thresholds that the change removes (format 8.3)."""
    removed = {FilePath.of_log(remove.path).text for remove in intent.removes}
    gone = pl.Series(snapshot.data_paths, dtype=pl.String).is_in(list(removed)).to_numpy()
    revision = intent.revision
    beside = not intent.new_revision and _knows(snapshot, revision)
    state = IndexState(snapshot)
    new = new_blocks(intent.adds, state.with_partitions(intent.adds)[1])
    return bool(state.disorder(gone, new, revision if beside else None))


def _knows(snapshot: Snapshot, revision: Revision | None) -> bool:
    """Return whether the table has this revision. Otherwise the commit publishes it with a new id."""
    return revision is not None and snapshot.config.revisions.get(revision.revision_id) == revision


def _fitted(add: AddFile, blocks: tuple[Block, ...] | None) -> AddFile:
    return add.without_index() if blocks is None else add.model_copy(update={"blocks": blocks})
