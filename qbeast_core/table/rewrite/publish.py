"""Commit replaced files, and retry a change if another writer committed first."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import polars as pl
from pyroaring import BitMap64

from qbeast_core.errors import CommitConflictError
from qbeast_core.log.actions import AddFile, with_wide_bounds
from qbeast_core.log.deletion_vectors import dump_vectors, row_set
from qbeast_core.log.protocol import MarkedFile, WriteIntent
from qbeast_core.log.values import removes_of
from qbeast_core.support.process import LOG
from qbeast_core.table.commit import CommitOutcome, discarding, publish
from qbeast_core.table.data.files import delete_files
from qbeast_core.table.index.counts import warn_if_growing
from qbeast_core.table.rewrite.replace import Replaced
from qbeast_core.table.snapshot.snapshot import Snapshot, live_adds, refresh, warn_of_added_columns

# Maximum number of versions that a change is planned on.
MAX_ATTEMPTS: Final = 12

ResultT = TypeVar("ResultT")


def publish_replaced(
    snapshot: Snapshot,
    replaced: Replaced,
    intent: WriteIntent,
    *,
    data_change: bool = False,
    base: Snapshot | None = None,
    conflict_with: Callable[[Snapshot], str | None] | None = None,
) -> CommitOutcome:
    """Remove the old files and add the new ones in one commit.

    `intent` is the commit without files, revision and metadata. `data_change`: the rows of the table change. `base` is
    the version in the log, if `snapshot` has a new schema that this commit publishes. `conflict_with` returns why the
    change conflicts with the version of another writer, or None.
    """
    base = base or snapshot
    removed = snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
    intent = replace(
        intent,
        adds=tuple(add.model_copy(update={"data_change": data_change}) for add in replaced.adds),
        removes=removes_of(removed, snapshot.columns, data_change=data_change),
        revision=replaced.revision if replaced.adds or intent.drops_unused else None,
        new_revision=replaced.is_new,
        metadata=None if snapshot.metadata == base.metadata else snapshot.metadata,
    )
    with discarding(snapshot.store, intent.new_paths):
        marked, path = _write_vectors(snapshot, replaced.hidden)
    intent = replace(intent, marked=marked, vector_files=() if path is None else (path,))
    outcome = publish(snapshot.store, base, intent, conflict_with=conflict_with)
    warn_of_added_columns(base, snapshot.schema)
    if intent.brings == "rows" and outcome.snapshot is not None:
        warn_if_growing(snapshot.files, outcome.snapshot.files, snapshot.config.latest)
    return outcome


def with_attempts(
    snapshot: Snapshot,
    attempt: Callable[[Snapshot], ResultT],
    *,
    may_retry: Callable[[Snapshot, Snapshot], bool] = lambda _before, _now: True,
) -> ResultT:
    """Apply a change to `snapshot`, the newest version. Plan it again if it conflicts with a commit of another writer.

    `commit` itself retries after versions that leave the plan valid. Otherwise the change has to choose and write
    other files.
    """
    for left in reversed(range(MAX_ATTEMPTS)):
        try:
            return attempt(snapshot)
        except CommitConflictError as error:
            newest = refresh(snapshot)
            # Without a newer version, the same plan would fail again.
            if not left or newest is snapshot or not may_retry(snapshot, newest):
                raise
            LOG.info("%s: change planned again: %s", snapshot.uri, error)
            snapshot = newest
    raise AssertionError  # the last round returns or raises


def _write_vectors(
    snapshot: Snapshot, hidden: Mapping[int, BitMap64]
) -> tuple[tuple[MarkedFile, ...], str | None]:
    """Write the deletion vectors of files: the rows to hide, and the rows that are hidden already.

    Return the files with their new vectors, and the path of the file that holds these.
    """
    if not hidden:
        return (), None
    before = snapshot.hidden_rows.of(hidden)
    sets = [rows | row_set(before[file]) if file in before else rows for file, rows in hidden.items()]
    path, data, descriptors = dump_vectors(sets, uuid.uuid4())
    adds = live_adds(snapshot, list(hidden))
    try:
        snapshot.store.put(path, data)
    except BaseException:  # also after an interrupt, or if only the reply of a store is lost
        delete_files(snapshot.store, [path])
        raise
    marked = [
        MarkedFile(add, _with_vector(add, descriptor))
        for add, descriptor in zip(adds, descriptors, strict=True)
    ]
    return tuple(marked), path


def _with_vector(add: AddFile, descriptor: dict[str, Any]) -> AddFile:
    """Return a live file with another deletion vector. Its statistics become bounds of more rows than it shows."""
    stats = with_wide_bounds(add.stats or "{}")
    return add.model_copy(update={"data_change": True, "deletion_vector": descriptor, "stats": stats})
