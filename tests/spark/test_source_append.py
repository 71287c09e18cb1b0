"""df.write.format("qbeast") appends to tables that exist: all rows or none, indexed or staged, never half a commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- as everybody names it

import qbeast
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows
from tests.spark.frames import to_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def numbers(rows: int, *, first: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(first)
    return pl.DataFrame(
        {
            "id": np.arange(first, first + rows),
            "x": rng.normal(size=rows),
            "s": [f"v{i % 9}" for i in range(rows)],
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """10,000 ids from 0 on, linear, and numbers by quantiles."""
    qbeast.write_table(numbers(10_000), tmp_path / "t", columns=["id:linear", "x:quantiles"], cube_size=500)
    return tmp_path / "t"


def append(frame: DataFrame, table: Path, **options: Any) -> None:
    frame.write.format("qbeast").mode("append").options(**options).save(str(table))


def data_files(table: Path) -> set[str]:
    return {path.name for path in table.glob("*.parquet")}


def test_append_by_several_tasks_is_one_commit(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    more = numbers(6_000)
    append(to_spark(spark, more, tmp_path / "rows", parts=3), table)
    assert qbeast.open_table(table).version == 1
    check_invariants(table)
    everything = pl.concat([numbers(10_000), more])
    actual = qbeast.read_table(table)
    assert_same_rows(actual.sort("id", "x"), everything.sort("id", "x"), key="id")
    assert qbeast.open_table(table).history(1)["metrics"][0]["numOutputRows"] == 6000


@pytest.mark.sweep
def test_outside_rows_are_staged_in_same_commit(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    append(to_spark(spark, numbers(2_000, first=9_000), tmp_path / "rows"), table)
    assert qbeast.open_table(table).version == 1
    check_invariants(table, may_stage=True)
    staged = [add for add in read_log(table).adds.values() if "revision" not in (add.get("tags") or {})]
    assert sum(json.loads(add["stats"])["numRecords"] for add in staged) == 1_000
    assert qbeast.scan_table(table).filter(pl.col("id") >= 10_000).collect().height == 1_000
    sample = qbeast.read_table(table, sample=0.3)
    read = spark.read.format("qbeast").option("sample", 0.3).load(str(table))
    assert sorted(row["id"] for row in read.select("id").collect()) == sorted(sample["id"])


def test_repeated_append_is_recognized_by_name(spark: SparkSession, table: Path) -> None:
    rows = spark.range(50).select("id", F.lit(0.5).alias("x"), F.lit("a").alias("s"))
    append(rows, table, txnAppId="nightly", txnVersion=3)
    before = data_files(table)
    append(rows, table, txnAppId="nightly", txnVersion=3)
    assert qbeast.read_table(table).height == 10_050
    assert data_files(table) == before


@pytest.mark.sweep
def test_append_of_no_rows_commits_nothing(spark: SparkSession, table: Path) -> None:
    append(spark.read.format("qbeast").load(str(table)).where("id < 0"), table)
    assert qbeast.open_table(table).version == 0


@pytest.mark.sweep
def test_table_is_appended_to_itself(spark: SparkSession, table: Path) -> None:
    append(spark.read.format("qbeast").load(str(table)), table)
    assert qbeast.read_table(table)["id"].n_unique() == 10_000
    assert qbeast.read_table(table).height == 20_000


def test_failed_task_leaves_the_table_unchanged(spark: SparkSession, table: Path) -> None:
    before = data_files(table)
    broken = F.when(F.col("id") == 9_999, F.raise_error(F.lit("a broken row"))).otherwise(F.lit(0.5))
    rows = spark.range(0, 10_000, 1, 2).select("id", broken.cast("double").alias("x"), F.lit("a").alias("s"))
    with pytest.raises(PySparkException, match="a broken row"):
        append(rows, table)
    assert qbeast.open_table(table).version == 0
    assert qbeast.read_table(table).height == 10_000
    assert len(data_files(table) - before) <= 1  # of the task that went on while the job was given up


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda rows: rows.drop("x"), "'x' is missing"),
        (lambda rows: rows.withColumn("y", F.lit(1)), "'y' is not in the table"),
        (lambda rows: rows.withColumn("x", F.lit("text")), "'x' is String"),
        (lambda rows: rows.withColumn("s", F.expr("INTERVAL '1' DAY")), "cannot be stored"),
    ],
    ids=["missing", "new", "type", "interval"],
)
def test_rows_must_fit(spark: SparkSession, table: Path, change: Any, part: str) -> None:
    rows = spark.range(5).select("id", F.lit(0.5).alias("x"), F.lit("a").alias("s"))
    with pytest.raises(PySparkException, match=part):
        append(change(rows), table)
    assert qbeast.open_table(table).version == 0


@pytest.mark.sweep
def test_columns_come_in_any_order_and_narrower(spark: SparkSession, table: Path) -> None:
    rows = spark.range(5).select(
        F.lit("a").alias("s"), F.lit(0.5).cast("float").alias("x"), F.col("id").cast("int").alias("id")
    )
    append(rows, table)
    assert qbeast.read_table(table).filter(pl.col("s") == "a")["x"].to_list() == [0.5] * 5


def test_unsupported_writes_change_nothing(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    rows = spark.range(5)
    with pytest.raises(PySparkException, match="columnsToIndex"):
        append(rows, tmp_path / "none")
    with pytest.raises(PySparkException, match="columns"):
        rows.write.format("qbeast").mode("overwrite").save(str(table))
    with pytest.raises(PySparkException, match="no option"):
        append(rows, table, mergeSchema="true")
    with pytest.raises(PySparkException, match="go together"):
        append(rows, table, txnAppId="a")
    assert qbeast.open_table(table).version == 0
    assert not (tmp_path / "none").exists()
