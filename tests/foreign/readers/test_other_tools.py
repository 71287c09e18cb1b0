"""DuckDB, Ibis and pandas ask a table for what they need, and no more than that is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import ibis
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.requests import Request, counted, read_bytes

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
def requests(path: Path) -> Iterator[list[Request]]:
    """What is read from now on, once footers are known."""
    qbeast.read_table(path, where="price < 5")
    with counted() as seen:
        yield seen


def was_pushed_down(path: Path, requests: list[Request]) -> bool:
    """Return whether no more was read than for the filter and two columns."""
    read = read_bytes(requests)
    requests.clear()
    qbeast.read_table(path, where="price < 5", columns=["brand", "price"])
    whole = qbeast.open_table(path).rows(columns=["brand", "price"]).explain().bytes_total
    return 0 < read <= read_bytes(requests) < 0.6 * whole


def test_duckdb_pushes_filters_and_columns_down(path: Path, requests: list[Request]) -> None:
    scan = qbeast.scan_table(path)  # noqa: F841 -- DuckDB finds it by its name
    query = "SELECT brand, count(*) AS n FROM scan WHERE price < 5 GROUP BY brand ORDER BY brand"
    assert_frame_equal(duckdb.sql(query).pl(), CHEAP, check_dtypes=False)
    assert was_pushed_down(path, requests)


def test_ibis_pushes_filters_down(path: Path, requests: list[Request]) -> None:
    sales = ibis.polars.connect().create_table("sales", qbeast.scan_table(path))
    cheap = sales.filter(sales.price < 5).group_by("brand").agg(n=ibis._.count()).order_by("brand")
    assert_frame_equal(cheap.to_polars(), CHEAP, check_dtypes=False)
    assert was_pushed_down(path, requests)


def test_pandas_receives_requested_rows(path: Path, requests: list[Request]) -> None:
    actual = qbeast.open_table(path).rows(columns=["brand"], where="price < 5").pandas()
    assert isinstance(actual, pd.DataFrame)
    counted = actual.groupby("brand").size().rename("n").reset_index()
    assert_frame_equal(pl.from_pandas(counted), CHEAP, check_dtypes=False)
    assert was_pushed_down(path, requests)


def test_pandas_frame_is_written(path: Path, tmp_path: Path) -> None:
    frame = qbeast.open_table(path).rows().pandas()
    qbeast.write_table(frame, tmp_path / "again", columns=["id", "price"])
    assert_frame_equal(qbeast.read_table(tmp_path / "again").sort("id"), ROWS)
