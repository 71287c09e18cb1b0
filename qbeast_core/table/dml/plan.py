"""The plan of a change on one version: the matching rows of each file, what replaces them, and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl
from pyroaring import BitMap64

from qbeast_core.log.protocol import DELETION_VECTORS, may_hide_rows
from qbeast_core.log.rebase import dialect_of, why_no_vectors
from qbeast_core.results import RewriteResult
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.support.process import terminal_columns
from qbeast_core.support.text import in_lines
from qbeast_core.table.commit import CommitOutcome
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.data.scan import FileScan
from qbeast_core.table.dml.tasks import AT_ONCE, find_rows
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.read.planner import Planner, ScanPlan, scans_of
from qbeast_core.table.rewrite.replace import Replaced, Replacement
from qbeast_core.table.snapshot.hidden_rows import UNKNOWN
from qbeast_core.table.snapshot.snapshot import Snapshot

# A file is rewritten if deletion vectors would hide more than this share of its rows.
_MAX_HIDDEN_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class FileMatches:
    """Files with rows that match."""

    # Indexes in the snapshot, ascending.
    files: I64Array
    # Matching rows of each file, at least one.
    rows: I64Array
    # Number of rows that a read returns of each file, or `UNKNOWN`.
    live: I64Array
    # Opens at least the matching rows. None: no file was opened.
    scan: ScanPlan | None = None
    # Index of a file -> its matching rows. Files that were not read are missing.
    found: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64], repr=False)

    @property
    def whole(self) -> BoolArray:
        """Whether every row of a file matches."""
        return np.equal(self.rows, self.live)

    def markable(self, snapshot: Snapshot) -> BoolArray:
        """Return in which files to hide the matching rows instead of a rewrite."""
        return self.hidable(snapshot) & hides_rows(snapshot)

    def hidable(self, snapshot: Snapshot) -> BoolArray:
        """Return which files keep most of their rows: those to mark in a table with deletion vectors."""
        paths, records = (snapshot.files[name][self.files] for name in ("path", "num_records"))
        # Polars shows the hidden rows of files with encoded paths.
        plain = np.array(["%" not in path for path in paths.to_list()], np.bool_)
        counted = np.array([count or 0 for count in records.to_list()], np.int64)
        few = counted - self.live + self.rows <= _MAX_HIDDEN_SHARE * counted
        stays: BoolArray = plain & (self.rows < self.live) & few
        return stays

    def found_in(self, chosen: BoolArray) -> dict[int, BitMap64]:
        """Return the matching rows of some of the files."""
        return {file: self.found[file] for file in self.files[chosen].tolist()}


_NONE: Final = np.zeros(0, np.int64)
NO_MATCHES: Final = FileMatches(_NONE, _NONE, _NONE)


def find_matches(
    snapshot: Snapshot, condition: Condition, engine: Engine, *, among: BoolArray | None = None
) -> FileMatches:
    """Return the matching rows of each file.

    Statistics and cubes exclude files and pages that cannot hold a match. Of the others, only the columns of the
    condition are read.
    """
    planner, live = Planner(snapshot), live_rows(snapshot)
    candidates = np.ones(len(live), np.bool_) if among is None else among
    if condition.constant is not None:
        # No row is tested. Files whose rows the log does not count are read to count them.
        files = np.flatnonzero(candidates & (live != 0)) if condition.constant else np.zeros(0, np.int64)
        unknown = files[live[files] == UNKNOWN]
        plan = planner.plan(None, None)
        call = partial(find_rows, planner.files, planner.row_filter(plan, list(snapshot.schema)[:1]), None)
        for file, rows in _find(planner, plan, unknown, call, engine).items():
            live[file] = len(rows)
        return _matches(files, live[files], live, plan)
    plan = planner.plan(condition.expr, None)
    files = np.flatnonzero(plan.selection.opened & candidates)
    keep = planner.row_filter(plan, condition.columns[:1])
    call = partial(find_rows, planner.files, keep, condition.text)
    found = _find(planner, plan, files, call, engine)
    counts = np.array([len(rows) for rows in found.values()], np.int64)
    return replace(_matches(files, counts, live, plan), found=found)


def _matches(files: I64Array, counts: I64Array, live: I64Array, plan: ScanPlan) -> FileMatches:
    matching = counts > 0
    return FileMatches(files[matching], counts[matching], live[files[matching]], plan)


def _find(
    planner: Planner, plan: ScanPlan, files: I64Array, call: Callable[[FileScan], BitMap64], engine: Engine
) -> dict[int, BitMap64]:
    numbers = files.tolist()
    opened = scans_of(planner, plan, numbers)
    return dict(zip(numbers, engine.map(call, opened, at_once=AT_ONCE), strict=True))


def live_rows(snapshot: Snapshot) -> I64Array:
    """Return the number of rows that a read returns of each file, or `UNKNOWN`; shape (files,)."""
    counted = Planner(snapshot).blocks.num_records  # `UNKNOWN` where the blocks contradict the log
    rows: I64Array = np.where(counted == UNKNOWN, UNKNOWN, counted - snapshot.hidden_rows.counts)
    return rows


def hides_rows(snapshot: Snapshot) -> bool:
    """Return whether changes of a table may hide rows by deletion vectors."""
    # A JVM of qbeast-spark reads files without their vectors.
    return may_hide_rows(snapshot.protocol, snapshot.metadata) and dialect_of(snapshot) != "qbeast-spark"


# Names of the operations in the history of a Delta table.
ChangedBy: TypeAlias = Literal["DELETE", "UPDATE", "MERGE", "WRITE"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ChangeResult(RewriteResult):
    """Result of a delete, an update or a merge. `committed` is False if no rows matched.

    Attributes
    ----------
    operation : {"DELETE", "UPDATE", "MERGE", "WRITE"}
        Name in the history.
    rows_deleted, rows_updated, rows_inserted : int
        Number of rows deleted, updated and inserted.
    rows_copied : int
        Number of unchanged rows that were written again because they shared a file with others. The minimum if
        `dry_run`.
    copies : polars.DataFrame
        What the change copies at least, without and with deletion vectors: `deletion_vectors`, `rows`, and `bytes` in
        the old files. A change that keeps the index in order may copy more. Tables that cannot have deletion vectors
        have one row.
    hint : str or None
        The call that makes such changes cheaper, if more than ten rows were, or would be, copied for each changed row.
    cubes : int
        Number of cubes that hold new or copied rows.
    plan : polars.DataFrame
        The files to change: `path` (decoded), `rows` (null if the log does not count them), `bytes`, `matched`
        (number of rows that are changed or deleted), `action`: ``"drop"`` (all rows are deleted, the file is not
        read), ``"hide"`` (a deletion vector hides the matched rows; new values of rows are in new files),
        ``"rewrite"``, or ``"order of weights"`` for files that are rewritten with the others to keep the index in
        order (not known to a dry run).
    others
        See `RewriteResult`.
    """

    operation: ChangedBy
    rows_deleted: int
    rows_updated: int
    rows_inserted: int
    rows_copied: int
    cubes: int = 0
    copies: pl.DataFrame = field(repr=False)
    hint: str | None = None

    def __repr__(self) -> str:
        """Return a summary of a few lines."""
        counts = {"deleted": self.rows_deleted, "updated": self.rows_updated, "inserted": self.rows_inserted}
        changed = [f"{count:,} rows {change}" for change, count in counts.items() if count]
        head = f"ChangeResult: {self.operation} of version {self.version}"
        if not changed:
            return f"{head}: no rows matched; nothing was changed"
        by_action = self.plan.group_by("action", maintain_order=True).agg(pl.len(), pl.col("bytes").sum())
        lines = [
            f"  {action}: {files:,} files, {size:,} bytes" for action, files, size in by_action.iter_rows()
        ]
        if self.dry_run:
            head = f"{head}, a dry run"
            lines += [
                f"  copied {'with' if vectors else 'without'} deletion vectors: at least {rows:,} rows, {size:,} bytes"
                for vectors, rows, size in self.copies.iter_rows()
            ]
        else:
            lines.append(
                f"  written: {self.files:,} files, {self.bytes:,} bytes, {self.rows_copied:,} rows copied"
            )
        lines += [] if self.hint is None else [f"  {self.hint}"]
        return in_lines([f"{head}: {', '.join(changed)}", *lines], terminal_columns())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangePlan:
    """Plan of a change on one version."""

    # Files with rows to change or delete.
    matches: FileMatches
    replacement: Replacement = field(default_factory=Replacement)
    deleted: int = 0
    updated: int = 0
    # Schema of the table afterwards, with new high-water marks of identity columns. None: as it is.
    schema_json: str | None = None
    # For the history: parameters of the operation, and counts of rows by Delta's names.
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    # Names of the counts of files that differ in the history of this operation.
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def inserted(self) -> int:
        """Number of rows to insert."""
        return self.replacement.added.height

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not len(self.matches.files) and not self.inserted

    def metrics(self, snapshot: Snapshot, replaced: Replaced) -> dict[str, int]:
        """Return ``operationMetrics``, by Delta's names."""
        counts = {"numCopiedRows": self._copied(replaced), **replaced.metrics(snapshot.files)}
        return {**self.counts, **{self.renamed.get(name, name): count for name, count in counts.items()}}

    def result(
        self,
        snapshot: Snapshot,
        operation: ChangedBy,
        done: tuple[Replaced, CommitOutcome] | None = None,
        *,
        dry_run: bool = False,
    ) -> ChangeResult:
        """Return the result; without `done`, the result of a dry run or of an empty change."""
        latest = snapshot.config.last_revision_id or 0
        gone = np.zeros(snapshot.files.height, np.bool_) if done is None else done[0].gone
        result = ChangeResult(
            operation=operation,
            version=snapshot.version,
            committed=False,
            dry_run=dry_run,
            rows_deleted=self.deleted,
            rows_updated=self.updated,
            rows_inserted=self.inserted,
            rows_copied=self._min_copied(),
            copies=self._copies(snapshot),
            plan=self._plan(snapshot, gone),
            files=0,
            bytes=0,
            revision_id=latest,
            new_revision=False,
            attempts=0,
        )
        if done is None:
            return replace(result, hint=_hint_of(snapshot, result))
        replaced, outcome = done
        result = replace(
            result,
            version=outcome.version,
            committed=True,
            rows_copied=self._copied(replaced),
            files=len(replaced.adds),
            bytes=replaced.bytes,
            cubes=replaced.cubes,
            revision_id=latest if outcome.revision_id is None else outcome.revision_id,
            new_revision=replaced.is_new,
            attempts=outcome.attempts,
        )
        return replace(result, hint=_hint_of(snapshot, result))

    def _copied(self, replaced: Replaced) -> int:
        return replaced.rows - self.updated - self.inserted

    def _min_copied(self) -> int:
        rewritten = np.isin(self.matches.files, self.replacement.files)
        return int(np.maximum(self.matches.live - self.matches.rows, 0)[rewritten].sum())

    def _copies(self, snapshot: Snapshot) -> pl.DataFrame:
        """Return `ChangeResult.copies`."""
        matches = self.matches
        rows = np.maximum(matches.live - matches.rows, 0)
        sizes = snapshot.files["size_bytes"].to_numpy()[matches.files] * rows / np.maximum(matches.live, 1)
        copied = {False: np.ones(len(rows), np.bool_)}
        if why_no_vectors(snapshot, is_indexed=snapshot.config.is_indexed) is None:
            copied[True] = ~matches.hidable(snapshot)
        return pl.DataFrame(
            {
                "deletion_vectors": list(copied),
                "rows": [int(rows[files].sum()) for files in copied.values()],
                "bytes": [int(sizes[files].sum()) for files in copied.values()],
            }
        )

    def _plan(self, snapshot: Snapshot, gone: BoolArray) -> pl.DataFrame:
        """Return `ChangeResult.plan`."""
        files, replacement = Index(snapshot).files, self.replacement
        matched, actions = np.zeros(len(gone), np.int64), np.full(len(gone), None, dtype=object)
        matched[self.matches.files] = self.matches.rows
        actions[list(replacement.hidden)] = "hide"
        actions[gone] = "order of weights"
        actions[replacement.files], actions[replacement.dropped] = "rewrite", "drop"
        action = pl.Series(actions.tolist(), dtype=pl.String)
        table = files.select("path", "rows", "bytes", matched=pl.Series(matched), action=action)
        return table.drop_nulls("action")


# Copied rows for each changed row from which a result has a hint.
_MANY_COPIES: Final = 10

_ENABLE_VECTORS: Final = f'table.set_properties({{"{DELETION_VECTORS}": "true"}})'


def _hint_of(snapshot: Snapshot, result: ChangeResult) -> str | None:
    """Return the call that enables deletion vectors, if the change copied many rows and would copy few with them."""
    if result.copies.height == 1 or hides_rows(snapshot):
        return None
    changed = result.rows_deleted + result.rows_updated + result.rows_inserted
    copied, (_, rows, bytes_copied) = result.rows_copied, result.copies.row(1)
    if not changed or copied <= max(_MANY_COPIES * changed, 2 * rows):
        return None
    new = result.rows_updated + result.rows_inserted
    size = bytes_copied + new * int(result.plan["bytes"].sum()) // max(int(result.plan["rows"].sum()), 1)
    writes = f" about {size:,} bytes" if size else ""
    if result.dry_run:
        then = f"this change would copy {rows:,} rows{writes and f' and write{writes}'}"
    else:
        then = f"this change would have copied {rows:,} rows{writes and f' and written{writes}'}"
    return (
        f"{copied:,} rows {'would be' if result.dry_run else 'were'} copied to change {changed:,}. After "
        f"{_ENABLE_VECTORS}, {then}. Readers that do not support deletion vectors then refuse the table."
    )
