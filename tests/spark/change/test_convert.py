"""A table that Spark converts is the one that this process makes of it, statistics and all."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = ["row", "b:hash", "x:quantiles"]
VARYING = {"timestamp", "createdTime", "id", "txnId", "tableID", "engineInfo"}


def rows(first: int, count: int = 400) -> pl.DataFrame:
    numbers = pl.int_range(first, first + count, eager=True).alias("row")
    return pl.select(numbers, b=pl.format("key {}", numbers % 31), x=(numbers * 7919 % 1009) / 7)


def log(path: Path) -> list[Any]:
    """Everything that a log says, but for times, ids and places."""
    commits = sorted((path / "_delta_log").glob("*.json"))
    return [same(json.loads(line)) for commit in commits for line in commit.read_text().splitlines()]


def same(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: same(inner) for key, inner in value.items() if key not in VARYING}
    if isinstance(value, str) and value.startswith("{"):
        return same(json.loads(value))
    return value


def converted(spark: SparkSession, path: Path, **options: Any) -> qbeast.ConvertResult:
    """Convert a table with Spark and a copy of it here, and compare what came of it."""
    twin = path.parent / "twin"
    shutil.rmtree(twin, ignore_errors=True)
    shutil.copytree(path, twin)  # with the times of its files
    planned = bridge.convert(spark, path, COLUMNS, **options, dry_run=True)
    assert planned == qbeast.convert_table(twin, COLUMNS, **options, dry_run=True)
    result = bridge.convert(spark, path, COLUMNS, **options)
    assert result == qbeast.convert_table(twin, COLUMNS, **options)
    assert log(path) == log(twin)
    return result


def test_parquet_folder_becomes_a_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "raw é"
    frames = [rows(0), rows(400), rows(800).with_columns(more=pl.lit(1.5))]
    path.mkdir()
    for number, frame in enumerate(frames):
        frame.write_parquet(path / f"part {number}é.parquet")
    result = converted(spark, path)
    assert (result.version, result.created_log, result.files, result.rows) == (0, True, 3, 1200)
    assert not converted(spark, path).committed
    optimized = bridge.open_table(spark, path).optimize()
    assert (optimized.files_removed, optimized.rows, optimized.new_revision) == (3, 1200, True)
    assert_same_rows(qbeast.read_table(path), pl.concat(frames, how="diagonal"), "row")
    check_invariants(path)


@pytest.mark.sweep
def test_spark_output_becomes_a_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    df = spark.range(0, 500, 1, 3).selectExpr(
        "id AS row", "concat('key ', id % 31) AS b", "id / 7D AS x", "timestamp_micros(id * 1000000007) AS at"
    )
    df.write.parquet(str(path))
    assert converted(spark, path, cube_size=50).rows == 500
    bridge.open_table(spark, path).optimize()
    assert qbeast.open_table(path).cube_size == 50
    check_invariants(path)
    assert_same_rows(qbeast.read_table(path), pl.DataFrame(df.toArrow()), "row")


@pytest.mark.sweep
def test_delta_table_is_converted_in_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows(0).write_delta(path)
    result = converted(spark, path, dialect="qbeast-spark", commit_metadata={"why": "so"})
    assert (result.version, result.created_log, result.rows) == (1, False, 400)
    assert qbeast.open_table(path).history(1)["metadata"][0]["why"] == "so"
