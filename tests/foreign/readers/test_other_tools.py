"""DuckDB, Ibis and pandas ask a table for what they need, and no more than that is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import ibis
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.read.planner import Planner

ROWS = pl.select(id=pl.int_range(60_000)).with_columns(
    price=pl.col("id") * 7919 % 10_007 / 100, brand=pl.format("brand {}", pl.col("id") * 31 % 40)
)
CHEAP = ROWS.filter(pl.col("price") < 5).group_by("brand").agg(n=pl.len()).sort("brand")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tools") / "t"
    qbeast.write_table(ROWS, path, columns=["id", "price"], cube_size=2000)
    return path


@pytest.fixture
def planned_filters(monkeypatch: pytest.MonkeyPatch) -> list[pl.Expr | None]:
    """The filters that reads are planned by from now on."""
    filters: list[pl.Expr | None] = []
    plan = Planner.plan

    def spied(self: Planner, predicate: pl.Expr | None, *others: Any, **named: Any) -> Any:
        filters.append(predicate)
        return plan(self, predicate, *others, **named)

    monkeypatch.setattr(Planner, "plan", spied)
    return filters


def was_pushed_down(path: Path, planned_filters: list[pl.Expr | None]) -> bool:
    (item,) = planned_filters
    return item is not None and qbeast.open_table(path).explain(item).share < 0.6


def test_duckdb_pushes_filters_and_columns_down(path: Path, planned_filters: list[pl.Expr | None]) -> None:
    scan = qbeast.scan_table(path)  # noqa: F841 -- DuckDB finds it by its name
    query = "SELECT brand, count(*) AS n FROM scan WHERE price < 5 GROUP BY brand ORDER BY brand"
    assert_frame_equal(duckdb.sql(query).pl(), CHEAP, check_dtypes=False)
    assert was_pushed_down(path, planned_filters)


def test_ibis_pushes_filters_down(path: Path, planned_filters: list[pl.Expr | None]) -> None:
    sales = ibis.polars.connect().create_table("sales", qbeast.scan_table(path))
    cheap = sales.filter(sales.price < 5).group_by("brand").agg(n=ibis._.count()).order_by("brand")
    assert_frame_equal(cheap.to_polars(), CHEAP, check_dtypes=False)
    assert was_pushed_down(path, planned_filters)


def test_pandas_receives_requested_rows(path: Path, planned_filters: list[pl.Expr | None]) -> None:
    actual = qbeast.open_table(path).to_pandas(columns=["brand"], where="price < 5")
    assert isinstance(actual, pd.DataFrame)
    counted = actual.groupby("brand").size().rename("n").reset_index()
    assert_frame_equal(pl.from_pandas(counted), CHEAP, check_dtypes=False)
    assert was_pushed_down(path, planned_filters)


def test_pandas_frame_is_written(path: Path, tmp_path: Path) -> None:
    frame = qbeast.open_table(path).to_pandas()
    qbeast.write_table(frame, tmp_path / "again", columns=["id", "price"])
    assert_frame_equal(qbeast.read_table(tmp_path / "again").sort("id"), ROWS)
