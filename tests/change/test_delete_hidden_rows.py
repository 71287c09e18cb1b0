"""Changes of rows on tables with deletion vectors of others: rows that are hidden stay hidden, whatever is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.deletion_vectors import GONE, ROWS, delete
from tests.helpers.tables import assert_same_rows

FEW = pl.col("x") < 40
MARKED = ROWS.filter(FEW).with_columns(x=pl.lit(0, pl.Int64))


def hiding(path: Path) -> pl.DataFrame:
    """Write a table of one file, hide some of its rows, and return the others."""
    qbeast.write_table(ROWS, path, columns=["id", "x"], cube_size=300)
    delete(path, GONE)
    (file,) = path.glob("*.parquet")
    stored = pl.read_parquet(file, columns=["id", "x"]).with_row_index("place")
    return stored.filter(~pl.col("place").is_in(GONE)).drop("place")


CHANGES: dict[str, tuple[Callable[[qbeast.Table], Any], Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "delete": (lambda table: table.delete(FEW), lambda rows: rows.filter(~FEW)),
    "update": (
        lambda table: table.update(FEW, {"x": 0}),
        lambda rows: rows.with_columns(x=pl.when(FEW).then(0).otherwise("x")),
    ),
    "merge": (
        lambda table: table.merge(MARKED, "id", when_not_matched="ignore"),
        lambda rows: rows.with_columns(x=pl.when(FEW).then(0).otherwise("x")),
    ),
}


@pytest.mark.parametrize("how", CHANGES)
def test_hidden_rows_stay_hidden_and_uncounted(tmp_path: Path, how: str) -> None:
    left = hiding(tmp_path / "t")
    change, expected = CHANGES[how]
    table = qbeast.open_table(tmp_path / "t")
    result = change(table)
    assert result.rows_deleted + result.rows_updated == left.filter(FEW).height
    assert result.rows_copied == left.filter(~FEW).height
    assert_same_rows(table.read(), expected(left), key="id")
    assert_same_rows(pl.read_delta(str(tmp_path / "t")), expected(left), key="id")
    log = (tmp_path / "t" / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    removes = [action["remove"] for action in map(json.loads, log) if "remove" in action]
    assert [remove["deletionVector"]["cardinality"] for remove in removes] == [len(GONE)]


def test_merge_can_insert_hidden_rows_again(tmp_path: Path) -> None:
    left = hiding(tmp_path / "t")
    hidden = ROWS.join(left, on="id", how="anti")
    assert hidden.height == len(GONE)
    table = qbeast.open_table(tmp_path / "t")
    assert table.merge(hidden, "id").rows_inserted == len(GONE)
    assert_same_rows(table.read(), ROWS, key="id")


def test_file_without_visible_rows_is_dropped(tmp_path: Path) -> None:
    left = hiding(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    result = table.delete(pl.col("id").is_in(left["id"].to_list()))
    assert (result.plan["action"].to_list(), result.rows_deleted) == (["drop"], left.height)
    assert table.read().is_empty()
