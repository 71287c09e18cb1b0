"""The changes of rows of a delete and an update: compiled once, then sent to the workers that read the files."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.log.rebase import RowIdColumns
from qbeast_core.plan.nodes import named_columns
from qbeast_core.support.text import reason_of
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.data.rules import AppliedRules
from qbeast_core.table.engine.row_change import RowImages, UniformChange


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

    @property
    def replaced(self) -> frozenset[str]:
        """See `RowChange`."""
        return self.assignments.replaced.difference(self.condition.columns)

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
    # Rules of the table for the rows: columns that follow the new values, and checks. None: it has none.
    rules: AppliedRules | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns, and of columns that follow from them."""
        names = [value.meta.output_name() for value in self.values]
        return names if self.rules is None else [*names, *self.rules.columns]

    @property
    def replaced(self) -> frozenset[str]:
        """Columns with new values that no value is computed from."""
        return frozenset(value.meta.output_name() for value in self.values) - {*named_columns(*self.values)}

    def of_updates(self, hidden: RowIdColumns | None) -> Assignments:
        """Return the values for rows that keep their ids: their versions become null, for the version of the commit."""
        if hidden is None:
            return self
        return replace(self, values=(*self.values, pl.lit(None, pl.Int64).alias(hidden.version)))

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the new values. Other columns stay as they are."""
        changed = self._assigned(rows)
        return changed if self.rules is None else self.rules.apply(changed, argument=self.argument)

    def _assigned(self, rows: pl.DataFrame) -> pl.DataFrame:
        try:
            changed = rows.with_columns(*self.values)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            msg = f"{self.argument} cannot be computed for every row: {reason_of(error)}"
            raise InvalidInputError(msg, argument=self.argument) from error
        nulls = [f"column {name!r} may hold no nulls" for name in self.required if changed[name].null_count()]
        if nulls:
            msg = f"{self.argument} do not fit the table: {'; '.join(sorted(nulls))}."
            raise SchemaMismatchError(msg, problems=nulls)
        return changed
