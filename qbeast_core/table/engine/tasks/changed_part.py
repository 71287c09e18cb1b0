"""Rows on their way from old files to new ones, parted by the space of a revision."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from qbeast_core.spec.revision import Revision
from qbeast_core.table.engine.tasks.row_change import ChangeByFile, RowChange
from qbeast_core.tree.outside import rows_outside


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """What becomes of rows, without those that lie in the space of a revision, or without those outside."""

    # What becomes of all of them; None: they stay as they are.
    change: RowChange | None
    revision: Revision
    # Whether the rows outside are kept.
    outside: bool

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the part as they will be."""
        rows = rows if self.change is None else self.change(rows)
        beyond = pl.Series(rows_outside(rows, self.revision), dtype=pl.Boolean)
        return rows.filter(beyond if self.outside else ~beyond)


def changed_part(
    change: RowChange | ChangeByFile | None, revision: Revision, *, outside: bool
) -> RowChange | ChangeByFile:
    """Return what becomes of rows, without those of the other part; arguments as `ChangedPart` has them."""
    if isinstance(change, ChangeByFile):
        return _PartByFile(change, revision, outside)
    return ChangedPart(change, revision, outside)


@dataclass(frozen=True, slots=True)
class _PartByFile(ChangeByFile):
    change: ChangeByFile
    revision: Revision
    outside: bool

    def of_file(self, path: str) -> RowChange:
        return ChangedPart(self.change.of_file(path), self.revision, self.outside)
