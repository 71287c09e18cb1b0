"""An optimize of qbeast-spark 0.7.1 loses values of columns that came later: a warning says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast

ROWS = pl.DataFrame({"id": range(50), "x": [number * 37 % 53 for number in range(50)]})
MORE = ROWS.with_columns(pl.col("id") + 50, note=pl.lit("new"))
WAYS: dict[str, Callable[[Path], object]] = {
    "add_columns": lambda path: qbeast.open_table(path).add_columns({"note": pl.String}),
    "append": lambda path: qbeast.write_table(MORE, path, mode="append", schema_mode="merge"),
    "merge": lambda path: qbeast.open_table(path).merge(MORE, "id", schema_mode="merge"),
}


def begin(path: Path, dialect: Any) -> Path:
    qbeast.write_table(ROWS, path, columns=["id", "x"], dialect=dialect)
    return path


@pytest.mark.parametrize("way", WAYS)
def test_jvm_table_warns_of_added_columns(way: str, tmp_path: Path) -> None:
    path = begin(tmp_path / "t", "qbeast-spark")
    with pytest.warns(qbeast.AddedColumnWarning, match=r"\['note'\].*0\.7\.1.*Table.optimize") as caught:
        WAYS[way](path)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qbeast.write_table(MORE.with_columns(pl.col("id") + 50), path, mode="append")
        qbeast.open_table(path).optimize(full=True)
    assert qbeast.read_table(path, where=pl.col("note") == "new").height == (
        50 if way == "add_columns" else 100
    )


@pytest.mark.parametrize("way", WAYS)
def test_other_tables_do_not_warn(way: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WAYS[way](begin(tmp_path / "t", "documented"))
        empty = tmp_path / "empty"
        qbeast.write_table(ROWS.clear(), empty, columns=["id", "x"], dialect="qbeast-spark")
        WAYS[way](empty)
