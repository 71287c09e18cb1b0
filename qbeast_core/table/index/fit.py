"""An append as it fits the table it lands on: files that would break the order of weights lose their index."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.thresholds import blocks_in_order
from qbeast_core.query.live_blocks import live_blocks
from qbeast_core.spec.block import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.table.snapshot.snapshot import Snapshot

__all__ = ["fit_blocks"]


def fit_blocks(intent: WriteIntent, snapshot: Snapshot) -> WriteIntent:
    """Return the intent as it may be published after `snapshot`, which is not the version it was planned on.

    Rows count wherever they stand, so an append never fails for this: what has no place in the tree (format 8.3)
    is staged, and optimize indexes it later. Changes that replace files are returned as they are.

    Parameters
    ----------
    intent : WriteIntent
        As it was planned.
    snapshot : Snapshot
        The newest version.
    """
    revision = intent.revision
    indexed = [add for add in intent.adds if add.blocks is not None]
    if intent.mode != "append" or intent.removes or intent.new_revision or revision is None or not indexed:
        return intent
    files = [add.blocks or () for add in indexed]
    fitting = blocks_in_order(files, _live(snapshot, revision), dimensions=len(revision.columns))
    if fitting == files:
        return intent
    fitted = {add.path: _fitted(add, blocks) for add, blocks in zip(indexed, fitting, strict=True)}
    return replace(intent, adds=tuple(fitted.get(add.path, add) for add in intent.adds))


def _live(snapshot: Snapshot, revision: Revision) -> pl.DataFrame:
    """Return the revision's live blocks; none where the table holds another one under its number, or none."""
    number = revision.revision_id
    files = snapshot.files.filter(pl.col("revision") == number)
    if snapshot.config.revisions.get(number) != revision:
        files = files.clear()  # ours is published under a number of its own
    return live_blocks(files, {number: revision}).blocks.filter(~pl.col("replicated"))


def _fitted(add: AddFile, blocks: tuple[Block, ...] | None) -> AddFile:
    return add.without_index() if blocks is None else add.model_copy(update={"blocks": blocks})
