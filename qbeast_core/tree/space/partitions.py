"""Partitions of a table: the distinct values of its partition columns. Each partition has its own tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from qbeast_core.space.values import I64Array
from qbeast_core.support.joins import join_equal, own_column

_NUMBER: Final = own_column("tree")


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The partitions of a table by number: row n of `values` belongs to tree n.

    Nulls are equal, and so are values of NaN. As in Delta, the empty text is null.

    >>> some = NO_PARTITIONS.with_rows(pl.DataFrame({"day": ["tue", "mon", "tue"]}))
    >>> some.values["day"].to_list(), some.numbers(pl.DataFrame({"day": ["tue", "wed"]})).tolist()
    (['mon', 'tue'], [1, -1])
    """

    values: pl.DataFrame

    @property
    def columns(self) -> list[str]:
        """Names of the partition columns."""
        return self.values.columns

    @property
    def tree_count(self) -> int:
        """Number of trees. A table without partition columns has one."""
        return self.values.height if self.columns else 1

    def with_rows(self, rows: pl.DataFrame) -> Partitions:
        """Return these partitions, then the new partitions in `rows`, which has only partition columns."""
        if not rows.columns:
            return self
        values = distinct_values(rows)
        if not self.columns:
            return Partitions(values)
        new = join_equal(values, self.values, self.columns, "anti", nulls_equal=True)
        return Partitions(pl.concat([self.values, new.sort(self.columns)])) if new.height else self

    def numbers(self, rows: pl.DataFrame) -> I64Array | None:
        """Return the number of each row's tree, -1 for an unknown partition; None without partition columns."""
        if not self.columns:
            return None
        values = self.values.with_row_index(_NUMBER)
        stored = with_stored_values(rows.select(self.columns), self.columns)
        joined = join_equal(stored, values, self.columns, "left", nulls_equal=True, maintain_order="left")
        numbers: I64Array = joined[_NUMBER].cast(pl.Int64).fill_null(-1).to_numpy()
        return numbers


def distinct_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct rows, sorted. Without columns there are none."""
    if not rows.columns:
        return pl.DataFrame()
    return with_stored_values(rows.unique(), rows.columns).unique().sort(rows.columns)


def with_stored_values(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the rows with the values of partition columns as Delta stores them.

    >>> with_stored_values(pl.DataFrame({"day": ["", "mon"], "f": [-0.0, 1.0], "text": ["", ""]}), ["day", "f"]).rows()
    [(None, 0.0, ''), ('mon', 1.0, '')]
    """
    values: list[pl.Expr] = []
    for name in columns:
        match rows.schema[name]:
            case pl.String():
                values.append(pl.col(name).replace("", None))
            case pl.Binary():
                values.append(pl.when(pl.col(name) != b"").then(pl.col(name)))
            case pl.Float32() | pl.Float64():
                zero = pl.lit(0.0, rows.schema[name])  # -0.0 is another text
                values.append(pl.when(pl.col(name) == 0.0).then(zero).otherwise(pl.col(name)).alias(name))
            case _:
                pass
    return rows.with_columns(values) if values else rows


NO_PARTITIONS: Final = Partitions(pl.DataFrame())
