"""Tables that plain writers and Spark's tasks append to: what they leave without index, either engine indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, sampled
from tests.spark.frames import to_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

INDEXED = ["row", "a"]


def rows(first: int, count: int = 300) -> pl.DataFrame:
    numbers = pl.int_range(first, first + count, eager=True).alias("row")
    return pl.select(numbers, a=(numbers * 7919 % 1009) / 7)


def test_appends_of_all_writers_are_indexed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(rows(0), path, ["row:linear", "a"], cube_size=50)
    # Rows beyond the space of the revision: tasks of the data source cannot make one, plain writers know none.
    by_tasks = to_spark(spark, rows(300), tmp_path / "raw")
    by_tasks.write.format("qbeast").mode("append").save(str(path))
    write_deltalake(path, rows(600), mode="append")
    check_reads(spark, path, rows(0, 900))
    assert load_snapshot(path).files["revision"].null_count() == 3
    result = bridge.optimize(spark, path)
    assert (result.new_revision, result.plan["reason"].to_list().count("staged")) == (True, 3)
    check_invariants(path)
    bridge.write_table(to_spark(spark, rows(900), tmp_path / "more"), path, mode="append")
    write_deltalake(path, rows(1200), mode="append")
    assert qbeast.open_table(path).optimize().rows >= 300
    check_invariants(path)
    check_reads(spark, path, rows(0, 1500))


def check_reads(spark: SparkSession, path: Path, wanted: pl.DataFrame) -> None:
    """Rows and samples, for both engines."""
    for sample in (None, 0.3):
        right = sampled(wanted, INDEXED, sample)
        assert_same_rows(qbeast.read_table(path, sample=sample), right)
        in_spark = bridge.read_table(spark, path, sample=sample).toArrow()
        assert_same_rows(pl.DataFrame(in_spark), right)
