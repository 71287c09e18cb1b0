"""The plan of a change of rows on one version, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.results import RewriteResult
from qbeast_core.space.values import BoolArray
from qbeast_core.table.commit import CommitOutcome
from qbeast_core.table.dml.file_matches import FileMatches
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.rewrite.replace import Replaced, Replacement
from qbeast_core.table.snapshot.snapshot import Snapshot

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
            return "\n".join([f"{head}, a dry run: {', '.join(changed)}", *lines])
        written = f"  written: {self.files:,} files, {self.bytes:,} bytes, {self.rows_copied:,} rows copied"
        return "\n".join([f"{head}: {', '.join(changed)}", *lines, written])


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
        result = ChangeResult(
            operation=operation,
            version=snapshot.version,
            committed=False,
            dry_run=dry_run,
            rows_deleted=self.deleted,
            rows_updated=self.updated,
            rows_inserted=self.inserted,
            rows_copied=self._min_copied(),
            plan=self._plan(snapshot, np.zeros(snapshot.files.height, np.bool_)),
            files=0,
            bytes=0,
            revision_id=latest,
            new_revision=False,
            attempts=0,
        )
        if done is None:
            return result
        replaced, outcome = done
        return replace(
            result,
            version=outcome.version,
            committed=True,
            rows_copied=self._copied(replaced),
            plan=self._plan(snapshot, replaced.gone),
            files=len(replaced.adds),
            bytes=replaced.bytes,
            cubes=replaced.cubes,
            revision_id=latest if outcome.revision_id is None else outcome.revision_id,
            new_revision=replaced.is_new,
            attempts=outcome.attempts,
        )

    def _copied(self, replaced: Replaced) -> int:
        return replaced.rows - self.updated - self.inserted

    def _min_copied(self) -> int:
        rewritten = np.isin(self.matches.files, self.replacement.files)
        return int(np.maximum(self.matches.live - self.matches.rows, 0)[rewritten].sum())

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
