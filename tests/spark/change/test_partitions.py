"""Partitioned tables that Spark writes: one tree per partition, the same folders as in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows, small_files
from tests.spark.frames import of_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.SmallPartitionsWarning"),
]


def rows_of(spark: SparkSession, count: int = 1_200, first: int = 0) -> DataFrame:
    return spark.range(first, first + count, 1, 3).selectExpr(
        "id AS row",
        "id * 7919 % 1009 AS a",
        "element_at(array('x', '', NULL, 'a/b=c %'), cast(id % 4 AS int) + 1) AS p",
        "element_at(array(-0.0D, 0.0D, double('NaN')), cast(id % 3 AS int) + 1) AS d",
        "element_at(array(timestamp'2024-01-01 10:00:00', timestamp'1960-05-01 01:02:03.000004'), "
        "cast(id % 2 AS int) + 1) AS at",
    )


def stored(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows as Delta keeps them in partition columns."""
    return rows.with_columns(
        pl.col("p").replace("", None), pl.when(pl.col("d") != 0).then("d").otherwise(0.0).alias("d")
    )


def test_executors_write_the_partitions_of_memory(spark: SparkSession, tmp_path: Path) -> None:
    by, df = ["p", "d", "at"], rows_of(spark)
    with small_files(file_rows=50):
        bridge.write_table(df, tmp_path / "spark", ["a", "p", "d"], partition_by=by, cube_size=40)
        qbeast.write_table(of_spark(df), tmp_path / "memory", ["a", "p", "d"], partition_by=by, cube_size=40)
    expected = stored(of_spark(df))
    counts = []
    for name in ("spark", "memory"):
        check_invariants(tmp_path / name)
        assert_same_rows(qbeast.read_table(tmp_path / name), expected, "row")
        assert qbeast.open_table(tmp_path / name).check().ok
        adds = read_log(tmp_path / name).adds.values()
        counts.append({tuple(add["partitionValues"].values()) for add in adds})
    assert counts[0] == counts[1]
    assert len(counts[0]) == 8
