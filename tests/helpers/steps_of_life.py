"""Rows with nulls, NaN and nested values, and steps that change a table of them, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

import qbeast
from tests.helpers.changes import spread
from tests.helpers.strategies import ROW

__all__ = ["NEW", "ROWS", "STEPS"]


def _rows_of(count: int, start: int = 0) -> pl.DataFrame:
    """Return rows with nulls, NaN, a list and a struct."""
    return spread(count, start).with_columns(
        g=pl.col(ROW) % 3,
        tags=pl.concat_list(pl.col("a"), pl.lit(None, pl.Int64)),
        deep=pl.struct("s", pl.col("f").alias("n")),
    )


ROWS, NEW = _rows_of(60), _rows_of(9, 100)


def _restore(table: qbeast.Table) -> None:
    """Go back by one version: rows that vectors hid are there again."""
    if table.version > 3:
        table.restore(table.version - 1)


def _new_rows(table: qbeast.Table) -> pl.DataFrame:
    """Return new rows with the columns of a table."""
    return pl.concat([table.read().clear(), NEW], how="diagonal")


STEPS: dict[str, Callable[[qbeast.Table], Any]] = {
    "delete": lambda table: table.delete("a < 60"),
    "delete more": lambda table: table.delete(pl.col("f").is_nan() | (pl.col(ROW) % 4 == 0)),
    "update": lambda table: table.update("s IS NULL", {"a": "a + 1000"}),
    "update to the same": lambda table: table.update("a > 100", {"a": "a"}),
    "merge": lambda table: table.merge(_new_rows(table), ROW, delete_if=f"{ROW} % 2 = 0"),
    "append": lambda table: qbeast.write_table(_new_rows(table), table.uri, mode="append"),
    "replace": lambda table: qbeast.write_table(
        _new_rows(table).filter(g=2), table.uri, mode="overwrite", where="g = 2"
    ),
    "optimize": lambda table: table.optimize(full=True),
    "restore": _restore,
}
