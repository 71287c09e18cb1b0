"""The changes of rows of a delete and an update: compiled once, then sent to the workers that read the files."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.engine.tasks.row_change import RowImages, UniformChange


@dataclass(frozen=True, slots=True, eq=False)
class DeletedRows(UniformChange):
    """Drops the matching rows."""

    condition: Condition

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay."""
        return rows.filter(~self.condition.mask(rows))

    def images(self, rows: pl.DataFrame) -> RowImages:
        """See `RowFunction`."""
        return RowImages(rows.filter(self.condition.mask(rows)), rows.clear(), rows.clear())


@dataclass(frozen=True, slots=True, eq=False)
class UpdatedRows(UniformChange):
    """Sets columns of the matching rows."""

    condition: Condition
    assignments: Assignments

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return all rows with the new values."""
        # Compute values for matching rows only: the expression may fail for others.
        matching = self.condition.mask(rows)
        return pl.concat([rows.filter(~matching), self.assignments.apply(rows.filter(matching))])

    def images(self, rows: pl.DataFrame) -> RowImages:
        """See `RowFunction`."""
        before = rows.filter(self.condition.mask(rows))
        return RowImages(rows.clear(), before, self.assignments.apply(before))


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Values for columns of a table."""

    # Expressions with the names and types of the columns.
    values: tuple[pl.Expr, ...]
    # Columns among them that may hold no nulls.
    required: frozenset[str]
    argument: str

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [value.meta.output_name() for value in self.values]

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the new values. Other columns stay as they are."""
        try:
            changed = rows.with_columns(*self.values)
        except pl.exceptions.PolarsError as error:
            reason = str(error).partition("\n")[0]
            msg = f"{self.argument} cannot be computed for every row: {reason}; nothing was changed"
            raise InvalidInputError(msg, argument=self.argument) from error
        nulls = [f"column {name!r} may hold no nulls" for name in self.required if changed[name].null_count()]
        if nulls:
            msg = f"{self.argument} do not fit the table: {'; '.join(sorted(nulls))}. Nothing was changed."
            raise SchemaMismatchError(msg, problems=nulls)
        return changed
