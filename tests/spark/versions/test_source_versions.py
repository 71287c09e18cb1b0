"""format("qbeast") on every PySpark that has data sources, and what is said on those that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyspark
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.errors import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
has_sources = pytest.mark.skipif(VERSION < (4, 0), reason="PySpark 3.5 has no Python data sources")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = pl.DataFrame({"id": range(5_000), "x": [i * 7919 % 5_003 / 7 for i in range(5_000)]})
    qbeast.write_table(rows, tmp_path / "t", columns=["id:linear", "x"])
    return tmp_path / "t"


@pytest.mark.skipif(VERSION >= (4, 0), reason="this PySpark has data sources")
def test_missing_data_sources_name_the_functions(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match=r"4\.0 or later.*read_table and write_table"):
        bridge.register(spark)


@has_sources
def test_tables_are_read_sampled_and_appended(spark: SparkSession, table: Path) -> None:
    bridge.register(spark)
    read = spark.read.format("qbeast").option("sample", 0.1).load(str(table))
    assert sorted(row["id"] for row in read.collect()) == sorted(qbeast.read_table(table, sample=0.1)["id"])
    rows = spark.range(4_990, 5_010).selectExpr("id", "cast(id AS double) AS x")
    rows.write.format("qbeast").mode("append").save(str(table))
    assert sorted(qbeast.read_table(table)["id"]) == sorted([*range(5_000), *range(4_990, 5_010)])


@has_sources
def test_stream_batch_is_appended_once(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    pl.DataFrame({"id": range(100), "x": [0.5] * 100}).write_parquet(
        tmp_path / "in" / "a.parquet", mkdir=True
    )
    for _ in range(2):
        stream = spark.readStream.schema("id bigint, x double").parquet(str(tmp_path / "in"))
        sink = stream.writeStream.format("qbeast").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start(str(table)).awaitTermination()
        for path in (tmp_path / "checkpoint" / "commits").glob("*0*"):
            path.unlink()  # the batch comes again
    assert qbeast.read_table(table).height == 5_100


@has_sources
def test_pushed_filters_would_give_wrong_rows(spark: SparkSession) -> None:
    """A source with pushFilters gives wrong rows where a loaded frame is used with two filters."""
    from tests.spark.versions.toy_source import ToySource  # noqa: PLC0415 -- PySpark 3.5 cannot import it

    setting = "spark.sql.python.filterPushdown.enabled"
    spark.dataSource.register(ToySource)
    if VERSION >= (4, 1):
        spark.conf.set(setting, "true")
    try:
        frame = spark.read.format("toy").load()
        actual = (frame.where("x > 899").count(), frame.where("x < 50").count(), frame.count())
    finally:
        if VERSION >= (4, 1):
            spark.conf.unset(setting)
    right = (100, 50, 1_000)
    if VERSION < (4, 1):
        assert actual == right, "this PySpark knows no pushFilters, and filters by itself"
    else:
        assert actual != right, "this PySpark keeps pushed filters apart: the reader may have pushFilters now"


@has_sources
def test_functions_and_feeds_return_the_rows(spark: SparkSession, table: Path) -> None:
    """Before 4.1 functions return tuples, later Arrow batches."""
    bridge.register(spark)
    qbeast.open_table(table).delete("id < 7")
    place = {"path": str(table)}
    sample = spark.sql("SELECT * FROM qbeast_sample(:path, 0.1, 'x,id')", args=place).collect()
    expected = qbeast.read_table(table, sample=0.1, columns=["x", "id"])
    assert sorted(map(tuple, sample)) == sorted(expected.rows())
    history = spark.sql("SELECT version, operation FROM qbeast_history(:path)", args=place).collect()
    assert [row["version"] for row in history] == [1, 0]
    changed = spark.sql("SELECT id, _change_type FROM qbeast_changes(:path, 0)", args=place).collect()
    feed = spark.read.format("qbeast").options(readChangeFeed="true", startingVersion=1).load(str(table))
    assert sorted(map(tuple, feed.select("id", "_change_type").collect())) == sorted(map(tuple, changed))
    assert sorted(map(tuple, changed)) == [(number, "delete") for number in range(7)]
    assert spark.read.format("qbeast").option("versionAsOf", 0).load(str(table)).count() == 5_000
