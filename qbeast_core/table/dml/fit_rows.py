"""Conversion of new rows to rows of a table, with a check that they match a condition. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.data.frames import FrameLike
from qbeast_core.table.engine.engine import RowShape


class Outside(NamedTuple):
    """New rows that do not match the condition."""

    rows: int = 0
    example: Mapping[str, object] | None = None

    def __add__(self, other: object) -> Outside:
        """Return the rows of both."""
        if not isinstance(other, Outside):
            return NotImplemented
        return Outside(self.rows + other.rows, self.example or other.example)

    def refuse(self, where: object) -> None:
        """Raise if there are such rows."""
        if self.rows:
            msg = (
                f"{self.rows:,} row(s) of df do not match where={str(where)!r}, for example {self.example}. "
                "Filter the rows, or widen the condition."
            )
            raise InvalidInputError(msg, argument="where")


@dataclass(frozen=True, slots=True, eq=False)
class FitRows:
    """Converts new rows to rows of the table. Picklable."""

    shape: RowShape
    condition: Condition
    # Columns of rows in files.
    schema: pl.Schema

    def __call__(self, rows: FrameLike) -> tuple[pl.DataFrame, Outside]:
        """Return the rows like rows of files, and those that do not match the condition."""
        fitted = pl.concat([self.schema.to_frame(), self.shape.fit(rows)], how="diagonal")
        others = fitted.filter(~self.condition.mask(fitted))
        if not others.height:
            return fitted, Outside()
        return fitted, Outside(others.height, others.select(self.condition.columns).row(0, named=True))
