"""Spark's VACUUM compares the paths of a log with the names of files: it keeps ours, whatever their names."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from tests.foreign.delta.delta import Delta
from tests.format.spark_paths import FOLDER, NAMES, VALUES
from tests.helpers.tables import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

# Partitions are slow: those whose folder has another name, and a few others.
SOME = sorted({*(value for value, text in VALUES.items() if text != f"p={value}"), *list(VALUES)[::40]})


@pytest.fixture(params=["", "lite"], ids=["full", "lite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def vacuum(table: Delta, kind: str) -> None:
    time.sleep(1.1)  # the ages of commits count in seconds
    table.sql(f"vacuum {{t}} {kind} retain 0 hours")


def assert_whole(table: Delta, rows: pl.DataFrame) -> None:
    for found in (table.read(), qbeast.read_table(table.path)):
        assert_same_rows(found.select(rows.columns), rows, "id")


def test_files_of_any_partition_value_survive(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Delta(spark, tmp_path / "t")
    rows = pl.DataFrame({"id": range(len(SOME)), "p": SOME})
    qbeast.write_table(rows.head(40), table.path, columns=["id"], partition_by=["p"])
    qbeast.write_table(rows.tail(-40), table.path, mode="append")
    opened = qbeast.open_table(table.path)
    opened.update(pl.col("id") % 7 == 0, {"id": pl.col("id") + 10_000})
    opened.optimize(full=True)
    moved = rows.with_columns(
        pl.when(pl.col("id") % 7 == 0).then(pl.col("id") + 10_000).otherwise("id").alias("id")
    )
    vacuum(table, kind)
    assert_whole(table, moved)
    table.append(rows.head(30))  # in folders with other letters
    opened.refresh().delete(pl.col("id") == 1)
    vacuum(table, kind)
    assert_whole(table, pl.concat([moved, rows.head(30)]).filter(pl.col("id") != 1))


def test_converted_files_of_any_name_survive(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Delta(spark, tmp_path / "t")
    table.path.mkdir()
    for number, name in enumerate(NAMES):
        pl.DataFrame({"id": [number]}).write_parquet(table.path / name)
    qbeast.convert_table(table.path, columns=["id"])
    vacuum(table, kind)
    qbeast.open_table(table.path).delete(pl.col("id") == 1)
    table.sql("delete from {t} where id = 2")
    vacuum(table, kind)
    assert_whole(table, pl.DataFrame({"id": [0, *range(3, len(NAMES))]}))


def test_repaired_files_survive(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Delta(spark, Path(shutil.copytree(FOLDER / "table", tmp_path / "t")))
    rows = qbeast.read_table(table.path)
    opened = qbeast.open_table(table.path)
    opened.repair()
    vacuum(table, kind)
    assert_whole(table, rows)
    opened.refresh().delete(pl.col("id") == 1)
    vacuum(table, "lite")
    vacuum(table, kind)
    assert_whole(table, rows.filter(pl.col("id") != 1))


def test_restored_files_survive(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Delta(spark, Path(shutil.copytree(FOLDER / "table", tmp_path / "t")))
    rows = qbeast.read_table(table.path)
    opened = qbeast.open_table(table.path)
    opened.delete(pl.col("id") == 1)
    opened.restore(0)
    opened.repair()
    vacuum(table, kind)
    assert_whole(table, rows)
