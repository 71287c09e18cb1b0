"""Appends by parallel tasks: the plan that they share, and the one commit of the files that they wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import polars as pl

from qbeast_core.errors import CommitConflictError, TableNotFoundError, UnsupportedTableError
from qbeast_core.io.stores.location import Location
from qbeast_core.io.stores.s3_locking import refuse_unsafe_locking
from qbeast_core.log.columns.declared_rules import declared_rules
from qbeast_core.table.commit.commit import CommitOutcome, commit, discarding
from qbeast_core.table.data.data_files import delete_files
from qbeast_core.table.data.frames import to_frame
from qbeast_core.table.data.row_rules import drawn_for
from qbeast_core.table.engine.tasks.append_task import AppendedPart, AppendTask
from qbeast_core.table.index.key_counts import warn_if_growing
from qbeast_core.table.index.partition_sizes import warn_if_small
from qbeast_core.table.index.thresholds import fit_blocks
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from qbeast_core.table.write.found_table import find_target
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.planned_table import prepare, rows_intent


def begin_append(
    path: str | Location, empty: pl.DataFrame, storage_options: Mapping[str, str] | None = None
) -> AppendTask:
    """Read the table, and plan what tasks need to append to it."""
    location = Location.of(path, storage_options)
    uri, snapshot = location.uri, find_target(location, "append")
    if snapshot is None:
        msg = (
            f"there is no table at {uri!r}, and tasks cannot create one. Create it with "
            "qbeast_spark_bridge.write_table(df, path, columns=[...])."
        )
        raise TableNotFoundError(msg, path=uri)
    _refuse_drawn(snapshot, empty.columns)
    options = WriteOptions(mode="append")
    refuse_unsafe_locking(uri, location.storage_options)
    planned = prepare(to_frame(empty), snapshot, options)
    state = planned.state
    current = None if state is None else state.newest
    return AppendTask(
        target=planned.target(location, options),
        version=snapshot.version,
        indexed=tuple(planned.wish.names),
        revision=current,
        tree=None if state is None or current is None else state.tree(current),
    )


def _refuse_drawn(snapshot: Snapshot, columns: Sequence[str]) -> None:
    """Raise if tasks would draw numbers of identity columns: they could draw the same numbers."""
    rules = declared_rules(snapshot.metadata, snapshot.protocol)
    drawn = () if rules is None else drawn_for(rules.identities, columns, "df")
    if drawn:
        msg = (
            f"tasks cannot append to {snapshot.uri!r}: it draws the numbers of {[column.column for column in drawn]}, "
            "and tasks would draw the same ones. Use qbeast_spark_bridge.write_table(df, path, "
            'mode="append"), for a stream in foreachBatch.'
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature="identityColumns")


def publish_parts(
    task: AppendTask,
    parts: Sequence[AppendedPart],
    *,
    txn: tuple[str, int] | None = None,
    operation: str = "",
) -> CommitOutcome | None:
    """Commit the parts of an append, all of them or none.

    Files that do not fit those of other tasks or of another writer (format 8.3) are published without index: their
    rows count, and optimize indexes them later.
    """
    adds = [add for part in parts for add in part.files]
    if not adds:
        return None
    target = task.target
    options = WriteOptions(mode="append", txn=txn)
    rows = sum(part.rows for part in parts)
    intent = rows_intent("append", adds, rows, options, operation=operation)
    revisions = [part.revision for part in parts if part.indexed]
    with discarding(target.store, intent.new_paths):
        # What the oldest part was planned on: later commits are checked against it.
        oldest = min(part.version for part in parts)
        base = load_snapshot(target.location, version=oldest)
        outcome = None
        if revisions and revisions.count(revisions[0]) == len(revisions):
            # Staged files conflict with nothing that concerns the index; any other conflict comes again.
            with suppress(CommitConflictError):
                indexed = replace(intent, revision=revisions[0])
                outcome = commit(base.source.store, base, fit_blocks(indexed, base))
        if outcome is None:
            staged = tuple(add.without_index() for add in adds)
            outcome = commit(base.source.store, base, replace(intent, adds=staged))
    if outcome.already_applied:
        delete_files(target.store, intent.new_paths)
    elif outcome.snapshot is not None:
        files = outcome.snapshot.files
        before = files.filter(~pl.col("path").is_in([add.path for add in adds]))
        warn_if_growing(before, files, outcome.snapshot.config.latest)
        warn_if_small(base, outcome.snapshot)
    return outcome
