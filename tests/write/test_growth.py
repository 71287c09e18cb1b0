"""A table that grows by many appends keeps its rows, its invariants, and few revisions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import qbeast
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows

DAY = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS: dict[str, tuple[str, Callable[[pl.Expr], pl.Expr]]] = {
    "counted": (f"{ROW}:linear", lambda row: row),
    "ranked": (f"{ROW}:quantiles", lambda row: row),
    "named": ("a", lambda row: pl.format("order {}", row.cast(pl.String).str.zfill(8))),
    "dated": ("a:quantiles", lambda row: pl.lit(DAY) + pl.duration(minutes=row)),
    "measured": ("a:linear", lambda row: row / 7 - 1000),
}


def rows(start: int, count: int, value: Callable[[pl.Expr], pl.Expr]) -> pl.DataFrame:
    return pl.DataFrame({ROW: range(start, start + count)}).with_columns(a=value(pl.col(ROW)))


def check_growth(path: Path, kind: str, appends: int) -> None:
    spec, value = COLUMNS[kind]
    step = 10_000 // appends
    for number in range(appends + 1):
        frame = rows(1000 + step * (number - 1), step, value) if number else rows(0, 1000, value)
        qbeast.write_table(frame, path, columns=[spec], mode="append", cube_size=50 if number == 0 else None)
    table = qbeast.open_table(path)
    assert len(table.revisions) <= 7  # with the staging revision, number 0
    written = rows(0, 1000 + step * appends, value)
    assert_same_rows(table.read(), written)
    late = pl.col(ROW) > 9000
    assert_same_rows(table.rows().lazy().filter(late).collect(), written.filter(late))
    assert table.rows(late).explain().files["opened"].sum() < max(0.3 * appends, 3)


SWEPT = [pytest.param(kind, 100, marks=pytest.mark.sweep) for kind in COLUMNS]


@pytest.mark.parametrize(("kind", "appends"), [("ranked", 6), ("named", 6), *SWEPT])
def test_tenfold_growth_takes_few_revisions(tmp_path: Path, kind: str, appends: int) -> None:
    check_growth(tmp_path / "t", kind, appends)
