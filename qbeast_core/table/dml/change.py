"""Run a change of rows: plan on the newest version, rewrite what it means, and again where that was outrun."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

import numpy as np
import polars as pl

from qbeast_core.errors import CommitConflictError, UnsupportedTableError, invalid_argument
from qbeast_core.log.protocol import Brings, WriteMode, check_writable
from qbeast_core.logs import LOG
from qbeast_core.results import RewriteResult
from qbeast_core.runtime import Progress, ProgressCallback, now_ms
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.data.expressions import Condition, Predicate, condition_of
from qbeast_core.table.dml.match import Matches, count_matches
from qbeast_core.table.engine.memory import MEMORY
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.engine.tasks.row_change import ChangeByFile, RowChange
from qbeast_core.table.engine.tasks.stored_rows import StoredRows
from qbeast_core.table.index.state import IndexState
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.rewrite import Replaced, Rewrite, refuse_copies, rewrite
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh
from qbeast_core.table.write.options import check_metadata, check_txn, is_applied

# Versions a change is planned on before it gives up.
MOST_PLANS: Final = 12

_CHANGE_FEED: Final = "delta.enableChangeDataFeed"

# Names of the operations in the history of a Delta table.
ChangedBy: TypeAlias = Literal["DELETE", "UPDATE", "MERGE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """What every change of rows is told besides which rows."""

    dry_run: bool = False
    txn: tuple[str, int] | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: ProgressCallback | None = None


class Change(ABC):
    """A delete, an update or a merge, whatever the version it will be planned on."""

    operation: ClassVar[ChangedBy]
    """Its name in the history."""

    brings: ClassVar[Brings] = "rows"
    """``"rows"`` if rows may come or change, ``"files"`` if they only go."""

    @property
    def mode(self) -> WriteMode:
        """``"overwrite"`` if rows may go or change, ``"append"`` if rows only come."""
        return "overwrite"

    def sees(self, reader: Reader) -> Reader:
        """Return a version with the columns that the change brings; by default none."""
        return reader

    @abstractmethod
    def plan(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find what is to be done to a version; refuse what cannot be meant."""

    @abstractmethod
    def concerns(self, reader: Reader, files: BoolArray, engine: Engine) -> bool:
        """Tell whether the change would have to look at a row in some of the files of a version."""


@dataclass(frozen=True)
class RowsMeant:
    """Rows that a condition selects; True: all of them."""

    predicate: Predicate | Literal[True]

    def __post_init__(self) -> None:
        given = cast("object", self.predicate)
        if given is None or given is False:
            invalid_argument(
                "where", "must be a condition, or True for all rows", "nothing was changed", value=given
            )
        if isinstance(given, Mapping):
            problem = (
                "must be a condition, or True for all rows, and comes before the values: update(where, set)"
            )
            invalid_argument("where", problem, "nothing was changed", value=given)

    def condition(self, reader: Reader) -> Condition:
        """Understand the condition on a version."""
        return condition_of(None if self.predicate is True else self.predicate, reader.snapshot.schema)

    def concerns(self, reader: Reader, files: BoolArray, engine: Engine) -> bool:
        """Tell whether one of the files holds such a row."""
        return bool(len(count_matches(reader, self.condition(reader), engine, among=files).files))


def run_change(
    reader: Reader, change: Change, options: ChangeOptions, *, engine: Engine = MEMORY
) -> tuple[ChangeResult, Snapshot]:
    """Apply a change to the table as it is now, as if nobody else wrote meanwhile."""
    check_metadata(options.commit_metadata)
    check_txn(options.txn)
    for _ in range(MOST_PLANS - 1):
        reader = reader.renewed()
        try:
            return _attempt(reader, change, options, engine)
        except CommitConflictError as error:
            if refresh(reader.snapshot) is reader.snapshot:
                raise  # nobody was faster: another plan would fail in the same way
            LOG.info("plans %s anew: %s", change.operation, error)
    return _attempt(reader.renewed(), change, options, engine)


def _attempt(
    reader: Reader, change: Change, options: ChangeOptions, engine: Engine
) -> tuple[ChangeResult, Snapshot]:
    snapshot = reader.snapshot
    _check_changeable(snapshot, change)
    refuse_copies(reader.index_state)
    if is_applied(snapshot, options.txn):
        return _nothing(reader, change, options), snapshot
    begun = now_ms()
    _tell(options, Progress("read"))
    seen = change.sees(reader)
    plan = change.plan(seen, engine)
    # With a transaction even a change of nothing is committed: once told, it is never made again.
    if options.dry_run or (plan.is_nothing and options.txn is None):
        return plan.result(reader.index_state, change.operation, dry_run=options.dry_run), snapshot

    def metrics(replaced: Replaced) -> Mapping[str, int]:
        return plan.metrics(replaced, snapshot) | {"executionTimeMs": now_ms() - begun}

    asked = Rewrite(
        files=plan.rewritten,
        dropped=plan.dropped,
        change=plan.change,
        keeps_places=True,
        keeps_keys=plan.keeps_keys,
        in_place=plan.in_place,
        added=plan.added,
        brings=change.brings,
        data_change=True,
        operation=change.operation,
        parameters=plan.parameters,
        txn=options.txn,
        commit_metadata=options.commit_metadata,
        metrics=metrics,
        base=snapshot,
        conflict_with=_ConflictWith(reader, change, engine),
        progress=options.progress,
    )
    replaced = rewrite(seen, asked, engine=engine)
    newest = None if replaced is None or replaced.outcome is None else replaced.outcome.snapshot
    if replaced is not None and replaced.outcome is not None and replaced.outcome.already_applied:
        newest = newest if newest is not None else refresh(snapshot)
        return _nothing(reader.at(newest), change, options), newest
    result = plan.result(reader.index_state, change.operation, replaced=replaced)
    _tell(options, Progress("done", result.files, result.files, 0 if replaced is None else replaced.rows))
    return result, newest if newest is not None else refresh(snapshot)


def _nothing(reader: Reader, change: Change, options: ChangeOptions) -> ChangeResult:
    """Tell that nothing was done, as the table has that version of the application already."""
    none = np.zeros(0, np.int64)
    plan = ChangePlan(matches=Matches(none, none, none), drops=np.zeros(0, np.bool_))
    return plan.result(reader.index_state, change.operation, dry_run=options.dry_run)


def _tell(options: ChangeOptions, progress: Progress) -> None:
    if options.progress is not None:
        options.progress(progress)


def _check_changeable(snapshot: Snapshot, change: Change) -> None:
    check_writable(
        snapshot.protocol, snapshot.metadata, mode=change.mode, path=snapshot.uri, brings=change.brings
    )
    if snapshot.metadata.configuration.get(_CHANGE_FEED, "").lower() == "true":
        msg = (
            f"{snapshot.uri} keeps a feed of changed rows ({_CHANGE_FEED}), which qbeast does not write; nothing was "
            "changed. Appends and optimize work. If nobody reads the feed, end it with "
            f"Table.set_properties({{{_CHANGE_FEED!r}: None}}); or let another Delta engine change rows here."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=_CHANGE_FEED)


class _ConflictWith:
    """Why a planned change must not follow commits that came after its version; None: it may."""

    def __init__(self, reader: Reader, change: Change, engine: Engine) -> None:
        self._reader, self._change, self._engine = reader, change, engine

    def __call__(self, newest: Snapshot) -> str | None:
        planned = self._reader.snapshot
        if newest.schema_json != planned.schema_json:
            return "another writer changed the schema"
        _check_changeable(newest, self._change)
        key = ["path", "deletion_vector"]
        known = planned.files.select(key).with_columns(pl.lit(value=True).alias("known"))
        joined = newest.files.select(key).join(
            known, on=key, how="left", nulls_equal=True, maintain_order="left"
        )
        fresh = joined["known"].is_null().to_numpy()
        if not np.any(fresh):
            return None
        if self._change.concerns(self._reader.at(newest), fresh, self._engine):
            return "another writer added rows that this change has to look at"
        return None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ChangeResult(RewriteResult):
    """What a change of rows did; prints as a few lines. `committed` is False where no row was meant.

    Attributes
    ----------
    operation : {"DELETE", "UPDATE", "MERGE"}
        As the history calls it.
    rows_deleted, rows_updated, rows_inserted : int
        Rows that went, that got other values, that came.
    rows_copied : int
        Rows that were written again as they were, because they shared a file with others. Of a dry run the
        least number.
    plan : polars.DataFrame
        The files that are, or would be, taken out: `path` (decoded), `rows` and `bytes` in the file (rows are
        null where the log does not tell), `matched` rows of it that are changed or deleted, `action`: ``"drop"``
        (all rows go, the file is not read), ``"rewrite"``, or ``"order of weights"`` for files that had to go
        with the others so that the index stays in order (known only once it is done).
    others
        As `RewriteResult` has them.
    """

    operation: ChangedBy
    rows_deleted: int
    rows_updated: int
    rows_inserted: int
    rows_copied: int

    def __repr__(self) -> str:
        """Say it in a few lines."""
        counts = [
            (self.rows_deleted, "deleted"),
            (self.rows_updated, "updated"),
            (self.rows_inserted, "inserted"),
        ]
        told = [f"{count:,} rows {what}" for count, what in counts if count]
        head = f"ChangeResult: {self.operation} of version {self.version}"
        if not told:
            return f"{head}: no row was meant; nothing was changed"
        by_action = self.plan.group_by("action", maintain_order=True).agg(pl.len(), pl.col("bytes").sum())
        lines = [
            f"  {action}: {files:,} files, {size:,} bytes" for action, files, size in by_action.iter_rows()
        ]
        if self.dry_run:
            return "\n".join([f"{head}, a dry run: {', '.join(told)}", *lines])
        written = f"  written: {self.files:,} files, {self.bytes:,} bytes, {self.rows_copied:,} rows copied"
        return "\n".join([f"{head}: {', '.join(told)}", *lines, written])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangePlan:
    """A change, planned on one version."""

    # Files with rows to change or delete.
    matches: Matches
    # Which of them lose all of their rows.
    drops: BoolArray
    # What becomes of the rows of the other files.
    change: RowChange | ChangeByFile | None = None
    # Whether it leaves the indexed columns of rows as they are.
    keeps_keys: bool = False
    # Numbers of files of which no row goes, and perhaps no indexed value changes either.
    in_place: I64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    # Rows that come, of the table's columns and types.
    added: pl.DataFrame | StoredRows | None = None
    deleted: int = 0
    updated: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    # Names of counts that the history of this operation has other names for.
    spelling: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def dropped(self) -> I64Array:
        """Numbers of files that go without being read."""
        return self.matches.files[self.drops]

    @property
    def rewritten(self) -> I64Array:
        """Numbers of files whose rows are put back, changed."""
        return self.matches.files[~self.drops]

    @property
    def inserted(self) -> int:
        """Rows that come."""
        return 0 if self.added is None else self.added.height

    @property
    def is_nothing(self) -> bool:
        """Whether the table is as it should be."""
        return not len(self.matches.files) and not self.inserted

    def result(
        self,
        state: IndexState,
        operation: ChangedBy,
        *,
        dry_run: bool = False,
        replaced: Replaced | None = None,
    ) -> ChangeResult:
        """Tell what was done, or what would be done."""
        snapshot = state.snapshot
        latest = snapshot.config.last_revision_id or 0
        outcome = None if replaced is None else replaced.outcome
        numbered = None if outcome is None else outcome.revision_id
        return ChangeResult(
            operation=operation,
            version=snapshot.version if outcome is None else outcome.version,
            committed=outcome is not None,
            dry_run=dry_run,
            rows_deleted=self.deleted,
            rows_updated=self.updated,
            rows_inserted=self.inserted,
            rows_copied=self._least_copied() if replaced is None else self._copied(replaced),
            plan=self._plan(state, replaced),
            files=0 if replaced is None else len(replaced.adds),
            bytes=0 if replaced is None else replaced.bytes,
            revision_id=latest if numbered is None else numbered,
            new_revision=replaced is not None and replaced.is_new,
            attempts=0 if outcome is None else outcome.attempts,
        )

    def metrics(self, replaced: Replaced, snapshot: Snapshot) -> dict[str, int]:
        """Return ``operationMetrics``, spelled as Delta spells them."""
        out = snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
        counts = {
            "numCopiedRows": self._copied(replaced),
            "numAddedFiles": len(replaced.adds),
            "numAddedBytes": replaced.bytes,
            "numRemovedFiles": out.height,
            "numRemovedBytes": int(out["size_bytes"].sum()),
        }
        return {**self.counts, **{self.spelling.get(name, name): count for name, count in counts.items()}}

    def _copied(self, replaced: Replaced) -> int:
        return replaced.rows - self.updated - self.inserted

    def _least_copied(self) -> int:
        return int(np.maximum(self.matches.live - self.matches.rows, 0)[~self.drops].sum())

    def _plan(self, state: IndexState, replaced: Replaced | None) -> pl.DataFrame:
        """Return the files that go, see `ChangeResult.plan`."""
        gone = np.zeros(state.files.height, np.bool_) if replaced is None else replaced.gone.copy()
        gone[self.matches.files] = True
        matched = np.zeros(len(gone), np.int64)
        matched[self.matches.files] = self.matches.rows
        action: Any = np.full(len(gone), "order of weights", dtype=object)
        action[self.rewritten], action[self.dropped] = "rewrite", "drop"
        files = state.files.select(
            "path",
            "rows",
            "bytes",
            matched=pl.Series(matched),
            action=pl.Series(action.tolist(), dtype=pl.String),
        )
        return files.filter(pl.Series(gone, dtype=pl.Boolean))
