"""Conditions in SQL text prune as others do, and lose no row: bounds that are values of the table, and beside them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

import qbeast
from tests.helpers.examples import is_sweep
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
COUNT = 125
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def make() -> pl.DataFrame:
    tenths = pl.int_range(COUNT, eager=True) * 7 % COUNT
    return pl.select(pl.int_range(COUNT, dtype=pl.Int64).alias(ROW)).with_columns(
        f=pl.when(tenths % 10 > 0).then(tenths / 10),
        narrow=(tenths / 10).cast(pl.Float32),
        i=tenths - 60,
        exact=pl.Series([Decimal(int(value)).scaleb(-1) for value in tenths], dtype=pl.Decimal(10, 2)),
        s=pl.format("key {}", tenths),
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[qbeast.Table, pl.DataFrame]:
    rows, path = make(), tmp_path_factory.mktemp("sql") / "t"
    with small_files():
        qbeast.write_table(rows, path, columns=["f:linear", "narrow", "i:hash", "exact", "s"], cube_size=20)
    return qbeast.open_table(path), rows


def conditions(column: str) -> list[str]:
    if column == "s":
        return [f"s {op} 'key {n}'" for op in OPERATORS for n in (7, 300)] + ["s IN ('key 1', 'key 22', '')"]
    texts = ("0.3", "7", "12.34", "1e1", "0.30000000000000004")
    compared = [f"{column} {op} {text}" for op in OPERATORS for text in texts]
    compared += [f"{text} {op} {column}" for op in OPERATORS for text in ("0.3", "12.3")]
    listed = [f"{column} IN (0.1, 0.3, 12.3, 55)", f"{column} IN (1, 2, NULL)", f"{column} NOT IN (0.3, 1)"]
    between = [f"{column} BETWEEN 0.3 AND 1.7", f"NOT ({column} > 0.3)", f"NOT {column} IN (0.3)"]
    return compared + listed + between + [f"NOT (NOT ({column} <= 12.3)) AND NOT (s = 'key 3')"]


@pytest.mark.parametrize("column", ["f", "narrow", "i", "exact", "s"])
def test_no_row_is_lost(table: tuple[qbeast.Table, pl.DataFrame], column: str) -> None:
    opened, rows = table
    for text in conditions(column)[:: 1 if is_sweep() else 2]:
        condition = pl.sql_expr(text)
        assert_same_rows(opened.rows().lazy().filter(condition).collect(), rows.filter(condition))


def test_filters_leave_files_closed(tmp_path: Path) -> None:
    texts = {
        "f": ["f > 12.2", "f < 0.3", "NOT (f > 0.3)", "f IN (0.1)", "f = 12.3"],
        "i": ["i IN (5)"],
        "s": ["s IN ('key 7')"],
    }
    for name, conditions in texts.items():
        with small_files(file_rows=50):
            qbeast.write_table(make(), tmp_path / name, columns=[name, ROW], cube_size=20)
        table = qbeast.open_table(tmp_path / name)
        for text in conditions:
            assert table.rows(pl.sql_expr(text)).explain().rows_opened < COUNT / 2, text
