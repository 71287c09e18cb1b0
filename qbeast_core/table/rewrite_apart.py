"""Rows that need a new revision, told from those that stay: few changed rows must not move a whole table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from qbeast_core.spec.revision import Revision
from qbeast_core.table.rewrite_job import Rewrite, RowChange
from qbeast_core.tree.outside import rows_outside

__all__ = ["Apart", "part_of"]


@dataclass(frozen=True, slots=True)
class Apart:
    """Rows that go into a new revision after all others are back.

    Attributes
    ----------
    job : Rewrite
        Of these rows alone.
    reads_files : bool
        Whether there are any among the rows of files, not only among those added.
    """

    job: Rewrite
    reads_files: bool


def part_of(job: Rewrite, revision: Revision, *, outside: bool, taken: bool = True) -> Rewrite:
    """Return a rewrite of the rows that lie in the space of a revision, or of those that do not.

    Parameters
    ----------
    job : Rewrite
        Of all rows.
    revision : Revision
        That has the space.
    outside : bool
        Which of them.
    taken : bool, default True
        Whether rows of files are looked at, too; else all of them stay, and those added are looked at alone.
    """
    added = None if job.added is None else _Part(None, revision, outside)(job.added)
    change = _Part(job.change, revision, outside) if taken else job.change
    return replace(job, change=change, added=added if added is not None and added.height else None)


@dataclass(frozen=True, slots=True)
class _Part:
    """What becomes of rows, without those of the other part."""

    change: RowChange | None
    revision: Revision
    outside: bool

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows if self.change is None else self.change(rows)
        beyond = pl.Series(rows_outside(rows, self.revision), dtype=pl.Boolean)
        return rows.filter(beyond if self.outside else ~beyond)
