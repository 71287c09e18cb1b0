"""readStream.format("qbeast"): rows of new versions arrive once, also after a stop, in batches of limited size."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.errors import PySparkException

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.datasource import streams
from tests.helpers.tables import assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def append(path: Path, first: int, count: int = 50) -> None:
    rows = pl.DataFrame({"id": range(first, first + count), "x": [n / 7 for n in range(count)]})
    qbeast.write_table(rows, path, columns=["id"], mode="append")


def run(spark: SparkSession, tmp_path: Path, name: str, **options: Any) -> list[int]:
    """Read what there is into files, and return the rows of each batch."""
    rows = spark.readStream.format("qbeast").options(**options).load(str(tmp_path / "t"))
    writer = rows.writeStream.format("parquet").option(
        "checkpointLocation", str(tmp_path / f"{name}.checkpoint")
    )
    query = writer.trigger(availableNow=True).start(str(tmp_path / name))
    query.awaitTermination()
    counts = [sum(source.numInputRows for source in progress.sources) for progress in query.recentProgress]
    return [count for count in counts if count]


def arrived(tmp_path: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(tmp_path / name / "*.parquet")


def test_stopped_stream_continues_with_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    for first in (0, 50):
        append(tmp_path / "t", first)
    assert run(spark, tmp_path, "out") == [100]
    assert run(spark, tmp_path, "out") == []
    append(tmp_path / "t", 100)
    qbeast.open_table(tmp_path / "t").optimize()
    append(tmp_path / "t", 150)
    assert sum(run(spark, tmp_path, "out")) == 100
    assert_same_rows(arrived(tmp_path, "out"), qbeast.read_table(tmp_path / "t"), "id")


@pytest.mark.skipif(not streams.LIMITS_BATCHES, reason="before Spark 4.2 a batch has all there is")
def test_batches_are_limited(spark: SparkSession, tmp_path: Path) -> None:
    for first in range(0, 250, 50):
        append(tmp_path / "t", first)
    assert run(spark, tmp_path, "out", startingVersion=1, maxFilesPerTrigger=2) == [100, 100]
    assert sorted(arrived(tmp_path, "out")["id"]) == list(range(50, 250))


@pytest.mark.sweep
def test_changes_arrive_as_a_feed_or_stop_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t", 0)
    append(tmp_path / "t", 50)
    qbeast.open_table(tmp_path / "t").delete("id < 7")
    with pytest.raises(PySparkException) as caught:
        run(spark, tmp_path, "out", startingVersion=0)
    assert "skipChangeCommits" in bridge.explain_error(caught.value)
    run(spark, tmp_path, "skipped", startingVersion=0, skipChangeCommits="true")
    assert sorted(arrived(tmp_path, "skipped")["id"]) == list(range(100))
    run(spark, tmp_path, "feed", startingVersion=0, readChangeFeed="true")
    expected = qbeast.open_table(tmp_path / "t").changes(-1).collect()
    order = ["_commit_version", "id", "_change_type"]
    columns = ["id", "x", "_change_type", "_commit_version"]
    actual = arrived(tmp_path, "feed").select(columns).sort(order)
    assert actual.equals(expected.select(columns).sort(order))


def test_registered_name_reads_the_table(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t", 0)
    name = bridge.register_table(spark, tmp_path / "t", "db.named_rows")
    assert spark.table(name).where("id < 10").count() == 10
    with pytest.raises(qbeast.TableNotFoundError):
        bridge.register_table(spark, tmp_path / "none", "nothing")


def test_quantiles_are_values_of_the_column(spark: SparkSession) -> None:
    frame = spark.range(1000).selectExpr(
        "id", "concat('k', lpad(id, 4, '0')) AS name", "current_date() AS day"
    )
    numbers = bridge.computeQuantilesForColumn(frame, "id", 5)
    texts = bridge.computeQuantilesForColumn(frame, "name", 3)
    assert pl.Series(json.loads(numbers)).is_sorted()
    assert (json.loads(texts)[0], json.loads(texts)[-1]) == ("k0000", "k0999")
    with pytest.raises(qbeast.InvalidInputError, match="numbers and strings"):
        bridge.computeQuantilesForColumn(frame, "day")
