"""One commit for files that were replaced, and the loop that plans a change again if another writer was first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import polars as pl

from qbeast_core.errors import CommitConflictError
from qbeast_core.log.actions import Txn
from qbeast_core.log.files.live_files import removes_of
from qbeast_core.log.intent import WriteIntent
from qbeast_core.support.logs import LOG
from qbeast_core.table.commit.commit import CommitOutcome, publish
from qbeast_core.table.index.design_effect import warn_if_growing
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.replace import Replaced
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.snapshot.with_schema import warn_of_added_columns

# Versions that a change is planned on before it gives up.
MAX_ATTEMPTS: Final = 12

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNote:
    """What the history says about a commit."""

    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    # Keys of the caller's own.
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    # An application and its version, which the table holds afterwards.
    txn: tuple[str, int] | None = None
    # Whether rows are new or changed, or are rows that the table had, in other files.
    adds_rows: bool = False
    # Whether the table holds other rows afterwards.
    data_change: bool = False
    # Whether revisions that no file needs any more are dropped.
    drops_unused: bool = False


def publish_replaced(
    reader: Reader,
    replaced: Replaced,
    note: CommitNote,
    *,
    base: Snapshot | None = None,
    conflict_with: Callable[[Snapshot], str | None] | None = None,
) -> CommitOutcome:
    """Commit files that go and files that come, all of them or none.

    `base` is the version as the log has it, if the reader sees it with a schema that this commit publishes.
    `conflict_with` returns why the change must not follow another writer's version; None: it may.
    """
    snapshot = reader.snapshot
    base = base or snapshot
    removed = snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
    intent = WriteIntent(
        mode="append",
        brings="rows" if note.adds_rows else "files",
        adds=tuple(add.model_copy(update={"data_change": note.data_change}) for add in replaced.adds),
        removes=removes_of(removed, data_change=note.data_change),
        revision=replaced.revision if replaced.adds or note.drops_unused else None,
        new_revision=replaced.is_new,
        drops_unused=note.drops_unused,
        metadata=None if snapshot.metadata == base.metadata else snapshot.metadata,
        txn=None if note.txn is None else Txn(app_id=note.txn[0], version=note.txn[1]),
        operation=note.operation,
        commit_info={
            **note.metadata,
            "operationParameters": dict(note.parameters),
            "operationMetrics": {key: str(value) for key, value in note.metrics.items()},
        },
    )
    outcome = publish(reader.store, base, intent, conflict_with=conflict_with)
    warn_of_added_columns(base, snapshot.schema)
    if note.adds_rows and outcome.snapshot is not None:
        warn_if_growing(snapshot.files, outcome.snapshot.files, reader.indexed)
    return outcome


def with_attempts(
    reader: Reader,
    attempt: Callable[[Reader], ResultT],
    *,
    may_retry: Callable[[Reader, Reader], bool] = lambda _before, _now: True,
) -> ResultT:
    """Make a change on the newest version, and plan it again if another writer's commit stands in its way.

    A commit by itself follows versions that leave the plan valid (`commit`). Here is what it cannot do: choose other
    files, and write other ones.
    """
    for left in reversed(range(MAX_ATTEMPTS)):
        reader = reader.renewed()
        try:
            return attempt(reader)
        except CommitConflictError as error:
            newest = reader.renewed()
            # Without a newer version, another plan fails in the same way.
            if not left or newest is reader or not may_retry(reader, newest):
                raise
            LOG.info("plans a change of %s again: %s", reader.snapshot.uri, error)
    raise AssertionError  # the last round returns or raises
