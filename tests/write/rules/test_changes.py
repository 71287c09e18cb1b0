"""Rules in updates and merges: generated columns follow their sources, and changed rows are checked."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.change_races import check_no_orphans
from tests.write.rules.tables import ruled

SCHEMA = {"id": pl.Int64(), "price": pl.Float64(), "cents": pl.Int64(), "kind": pl.String(), "day": pl.Date()}
NOTES = {
    "cents": {"delta.generationExpression": "CAST(price * 100 AS BIGINT)"},
    "kind": {"CURRENT_DEFAULT": "concat('ki', 'nd')"},
    "day": {"CURRENT_DEFAULT": "DATE '2026-02-03'"},
}


def cents(rows: pl.DataFrame) -> pl.DataFrame:
    """Compute the generated column by Polars alone."""
    return rows.with_columns(cents=(pl.col("price") * 100).truncate().cast(pl.Int64))


def first_rows(count: int = 60) -> pl.DataFrame:
    rows = pl.DataFrame({"id": range(count), "price": [n / 4 for n in range(count)]})
    filled = cents(rows).with_columns(kind=pl.lit("kind"), day=date(2026, 2, 3))
    return filled.select(list(SCHEMA))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 60 rows, indexed by a computed column too."""
    path = tmp_path_factory.mktemp("ruled") / "t"
    ruled(path, SCHEMA, NOTES, columns=["id", "cents"], constraints={"cheap": "price < 100"})
    qbeast.write_table(first_rows().select("id", "price"), path, mode="append")
    return path


@pytest.fixture
def table(master: Path, tmp_path: Path) -> Path:
    return copytree(master, tmp_path / "t")


def same(path: Path, wanted: pl.DataFrame) -> None:
    assert_frame_equal(qbeast.read_table(path).sort("id"), wanted.sort("id"))
    assert qbeast.open_table(path).check().ok


def test_generated_columns_follow_updated_sources(table: Path) -> None:
    result = qbeast.open_table(table).update("id < 20", {"price": "price + 0.5"})
    assert result.rows_updated == 20
    changed = pl.when(pl.col("id") < 20).then(pl.col("price") + 0.5).otherwise("price").alias("price")
    same(table, cents(first_rows().with_columns(changed)))


def test_other_and_correct_values_may_be_set(table: Path) -> None:
    qbeast.open_table(table).update("id = 5", {"kind": "'other'"})
    qbeast.open_table(table).update("id = 0", {"price": "0.5", "cents": "50"})
    other = pl.when(pl.col("id") == 5).then(pl.lit("other")).otherwise("kind").alias("kind")
    price = pl.when(pl.col("id") == 0).then(0.5).otherwise("price").alias("price")
    same(table, cents(first_rows().with_columns(other, price)))


@pytest.mark.parametrize(
    ("values", "name", "count"),
    [
        ({"price": "price * 100"}, "cheap", 16),
        ({"price": "NULL"}, "cheap", 20),
        ({"cents": "1"}, "cents", 20),
        ({"cents": "1", "price": "3.0"}, "cents", 20),
    ],
)
def test_updates_that_break_rules_change_nothing(
    table: Path, values: dict[str, Any], name: str, count: int
) -> None:
    opened = qbeast.open_table(table)
    with pytest.raises(qbeast.ConstraintViolationError, match="Nothing was changed") as caught:
        opened.update("id < 20", values)
    assert (caught.value.constraint, caught.value.rows, caught.value.argument) == (name, count, "set")
    same(table, first_rows())
    check_no_orphans(table)


def test_rows_that_stay_are_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pl.DataFrame({"id": range(10), "x": range(10)})
    ruled(path, {"id": pl.Int64(), "x": pl.Int64()}, {}, columns=["id"])
    qbeast.write_table(rows, path, mode="append")
    # Another writer added a constraint without a look at the rows.
    qbeast.open_table(path).add_constraint("new", "x < 100 AND id < 100")
    log = max((path / "_delta_log").glob("*.json"))
    log.write_text(log.read_text().replace("x < 100 AND id < 100", "x < 5"))
    table = qbeast.open_table(path)
    table.delete("id = 1")
    table.optimize(full=True)
    table.update("id = 2", {"x": "3"})
    with pytest.raises(qbeast.ConstraintViolationError, match="1 row"):
        table.update("id = 9", {"id": "10"})
    assert table.read().height == 9


def test_merge_inserts_with_values(table: Path) -> None:
    source = pl.DataFrame({"id": [5, 100], "cost": [2.0, 3.0]})
    qbeast.open_table(table).merge(
        source,
        on="id",
        update={"price": "source.cost"},
        insert={"id": "source.id", "price": "source.cost + 1"},
    )
    changed = pl.when(pl.col("id") == 5).then(2.0).otherwise("price").alias("price")
    new = first_rows(1).with_columns(id=pl.lit(100, pl.Int64), price=pl.lit(4.0))
    same(table, cents(pl.concat([first_rows().with_columns(changed), new])))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (pl.DataFrame({"id": [5], "price": [100.0]}), "cheap"),
        (pl.DataFrame({"id": [500], "price": [100.0]}), "cheap"),
        (pl.DataFrame({"id": [500], "price": [None]}, schema_overrides={"price": pl.Float64}), "cheap"),
        (pl.DataFrame({"id": [5], "price": [1.0], "cents": [1]}), "cents"),
        (pl.DataFrame({"id": [500], "price": [1.0], "cents": [1]}), "cents"),
    ],
)
def test_merges_that_break_rules_change_nothing(table: Path, source: pl.DataFrame, name: str) -> None:
    with pytest.raises(qbeast.ConstraintViolationError) as caught:
        qbeast.open_table(table).merge(source, on="id")
    assert caught.value.constraint == name
    same(table, first_rows())
    check_no_orphans(table)
