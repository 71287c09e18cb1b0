"""Commit replaced files, and retry a change if another writer committed first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

import polars as pl

from qbeast_core.errors import CommitConflictError
from qbeast_core.log.files.file_changes import removes_of
from qbeast_core.log.intent import WriteIntent
from qbeast_core.support.runtime import LOG
from qbeast_core.table.commit.commit import CommitOutcome, publish
from qbeast_core.table.index.key_counts import warn_if_growing
from qbeast_core.table.rewrite.replace import Replaced
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh
from qbeast_core.table.snapshot.with_schema import warn_of_added_columns

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
        marked=replaced.vectors.marked,
        vector_files=replaced.vectors.paths,
        revision=replaced.revision if replaced.adds or intent.drops_unused else None,
        new_revision=replaced.is_new,
        metadata=None if snapshot.metadata == base.metadata else snapshot.metadata,
    )
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
