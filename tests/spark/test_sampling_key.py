"""Tables with a sampling key on Spark: samples hold whole keys, and are those of Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, sampled, small_files
from tests.spark.frames import of_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def clicks(spark: SparkSession, count: int = 1_200, first: int = 0) -> DataFrame:
    return spark.range(first, first + count, 1, 3).selectExpr(
        "id AS row",
        "nullif(id * 31 % 97, 5) AS user",
        "concat('shop ', id % 7) AS shop",
        "id * 7919 % 1009 AS fare",
        "id * 104729 % 503 / 7D AS km",
    )


def check(spark: SparkSession, path: Path, expected: pl.DataFrame, key: list[str]) -> None:
    check_invariants(path, may_stage=True)
    table = qbeast.open_table(path)
    assert table.sample_by == tuple(key)
    assert table.check().ok
    for sample in (0.05, 0.4, (0.3, 0.6)):
        rows = sampled(expected, key, sample)
        assert_same_rows(table.read(sample=sample), rows, "row")
        assert_same_rows(of_spark(bridge.read_table(spark, path, sample=sample)), rows, "row")
        where = bridge.read_table(spark, path, sample=sample, where="fare < 300")
        assert_same_rows(of_spark(where), rows.filter(pl.col("fare") < 300), "row")


@pytest.mark.parametrize("key", [pytest.param(["user"], marks=pytest.mark.sweep), ["shop", "user"]])
def test_samples_of_spark_hold_whole_keys(spark: SparkSession, tmp_path: Path, key: list[str]) -> None:
    path, df = tmp_path / "t", clicks(spark)
    with small_files(file_rows=200):
        bridge.write_table(df, path, ["fare", "km"], cube_size=40, sample_by=key)
    expected = of_spark(df)
    check(spark, path, expected, key)
    more, other = clicks(spark, 300, 2_000), clicks(spark, 100, 3_000)
    bridge.write_table(more, path, mode="append")
    bridge.register(spark)
    other.write.format("qbeast").mode("append").save(str(path))
    expected = pl.concat([expected, of_spark(more), of_spark(other)])
    check(spark, path, expected, key)
    loaded = spark.read.format("qbeast").option("sample", "0.4").load(str(path))
    assert_same_rows(of_spark(loaded), sampled(expected, key, 0.4), "row")
    bridge.delete(spark, path, "row % 5 = 0")
    bridge.update(spark, path, "row % 5 = 1", {"user": "user + 1"})
    moved = pl.when(pl.col("row") % 5 == 1).then(pl.col("user") + 1).otherwise("user")
    expected = expected.filter(pl.col("row") % 5 != 0).with_columns(user=moved)
    check(spark, path, expected, key)
    bridge.optimize(spark, path, full=True)
    check(spark, path, expected, key)


def test_overwrite_of_spark_changes_the_key(spark: SparkSession, tmp_path: Path) -> None:
    path, df = tmp_path / "t", clicks(spark, 300)
    bridge.write_table(df, path, ["fare", "km"], sample_by="user")
    with pytest.raises(qbeast.InvalidInputError, match="sampling key"):
        bridge.write_table(df, path, mode="append", sample_by="shop")
    bridge.write_table(df, path, mode="overwrite", sample_by=["shop"])
    check(spark, path, of_spark(df), ["shop"])
