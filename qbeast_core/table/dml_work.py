"""What a change of rows comes to on one version: files to drop or rewrite, rows to add, and how to tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.dml_match import Matches
from qbeast_core.table.dml_result import ChangedBy, ChangeResult
from qbeast_core.table.rewrite_job import Replaced, RowChange
from qbeast_core.table.snapshot import Snapshot

__all__ = ["Work"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """A change, planned on one version.

    Attributes
    ----------
    matches : Matches
        Files with rows to change or delete.
    drops : ndarray of bool
        Which of them lose all of their rows.
    change : callable or None
        What becomes of the rows of the other files.
    keeps_keys : bool
        Whether it leaves the indexed columns of rows as they are.
    added : polars.DataFrame or None
        Rows that come, of the table's columns and types.
    deleted, updated : int
        Rows.
    parameters : mapping of str to str
        For the history.
    counts : mapping of str to int
        More counts for the history.
    spelling : mapping of str to str
        Names of counts that the history of this operation has other names for.
    """

    matches: Matches
    drops: BoolArray
    change: RowChange | None = None
    keeps_keys: bool = False
    added: pl.DataFrame | None = None
    deleted: int = 0
    updated: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
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
        snapshot: Snapshot,
        operation: ChangedBy,
        *,
        dry_run: bool = False,
        replaced: Replaced | None = None,
    ) -> ChangeResult:
        """Tell what was done, or what would be done.

        Parameters
        ----------
        snapshot : Snapshot
            The version it was planned on.
        operation : str
            Its name.
        dry_run : bool
            Whether nothing was to be done.
        replaced : Replaced or None
            What was done.
        """
        latest = snapshot.config.last_revision_id or 0
        outcome = None if replaced is None else replaced.outcome
        numbered = None if outcome is None else outcome.revision_id
        return ChangeResult(
            operation=operation,
            version=snapshot.version if outcome is None else outcome.version,
            changed=outcome is not None,
            dry_run=dry_run,
            rows_deleted=self.deleted,
            rows_updated=self.updated,
            rows_inserted=self.inserted,
            rows_copied=self._least_copied() if replaced is None else self._copied(replaced),
            plan=self._plan(snapshot, replaced),
            files=0 if replaced is None else len(replaced.adds),
            bytes=0 if replaced is None else sum(add.size for add in replaced.adds),
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
            "numAddedBytes": sum(add.size for add in replaced.adds),
            "numRemovedFiles": out.height,
            "numRemovedBytes": int(out["size_bytes"].sum()),
        }
        return {**self.counts, **{self.spelling.get(name, name): count for name, count in counts.items()}}

    def _copied(self, replaced: Replaced) -> int:
        return replaced.rows - self.updated - self.inserted

    def _least_copied(self) -> int:
        return int(np.maximum(self.matches.live - self.matches.rows, 0)[~self.drops].sum())

    def _plan(self, snapshot: Snapshot, replaced: Replaced | None) -> pl.DataFrame:
        """Return the files that go, see `ChangeResult.plan`."""
        gone = np.zeros(snapshot.files.height, np.bool_) if replaced is None else replaced.gone.copy()
        gone[self.matches.files] = True
        matched = np.zeros(len(gone), np.int64)
        matched[self.matches.files] = self.matches.rows
        action: Any = np.full(len(gone), "order of weights", dtype=object)
        action[self.rewritten], action[self.dropped] = "rewrite", "drop"
        files = snapshot.files
        return pl.DataFrame(
            {
                "path": pl.Series(snapshot.data_paths, dtype=pl.String),
                "rows": files["num_records"].cast(pl.Int64),
                "bytes": files["size_bytes"].cast(pl.Int64),
                "matched": matched,
                "action": pl.Series(action.tolist(), dtype=pl.String),
            }
        ).filter(pl.Series(gone, dtype=pl.Boolean))
