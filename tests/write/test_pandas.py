"""Rows of pandas, which makes floats of integers with nulls: they fit a table where each of them is an integer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import qbeast
from tests.helpers.tables import SPILL, assert_same_rows

ROWS = pl.DataFrame({"id": range(100), "n": pl.Series(range(100), dtype=pl.Int32)})
GIVEN: dict[str, Any] = {
    "floats with nulls": pd.DataFrame({"id": [100, 101], "n": [7, None]}),
    "nullable longs": pd.DataFrame({"id": [100, 101], "n": pd.array([7, None], dtype="Int64")}),
    "nullable integers": pd.DataFrame({"id": [100.0, 101.0], "n": pd.array([7, None], dtype="Int32")}),
}
WAYS: dict[str, Callable[[Path, Any], object]] = {
    "append": lambda path, rows: qbeast.write_table(rows, path, mode="append"),
    "merge": lambda path, rows: qbeast.open_table(path).merge(rows, on="id"),
    "spilled": lambda path, rows: qbeast.write_table(rows, path, mode="append", resources=SPILL),
    "spilled merge": lambda path, rows: qbeast.open_table(path, resources=SPILL).merge(rows, on="id"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id", "n"])
    return tmp_path / "t"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", GIVEN)
def test_integers_of_pandas_fit(path: Path, name: str, way: str) -> None:
    WAYS[way](path, GIVEN[name])
    more = pl.DataFrame({"id": [100, 101], "n": [7, None]}, schema=ROWS.schema)
    assert_same_rows(qbeast.read_table(path), pl.concat([ROWS, more]), "id")
    assert qbeast.open_table(path).check().ok


@pytest.mark.parametrize("way", WAYS)
def test_other_pandas_numbers_do_not_fit(path: Path, way: str) -> None:
    for value in (1.5, float("nan"), 2.0**31, float("inf"), -1e300):
        rows = pl.DataFrame({"id": [1, 2], "n": [1.0, value]})
        with pytest.raises(
            qbeast.SchemaMismatchError, match="'n' is Float64 and the table has Int32, which does not hold"
        ):
            WAYS[way](path, rows)
    assert qbeast.open_table(path).version == 0
