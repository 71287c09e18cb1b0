"""writeStream.format("qbeast"): every micro-batch is in the table once, whatever is stopped, lost or repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.errors import PySparkException

import qbeast
from tests.helpers.invariants import check_invariants, read_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SCHEMA = "id bigint, s string"


def rows(first: int, count: int = 100) -> pl.DataFrame:
    return pl.DataFrame({"id": range(first, first + count), "s": ["text"] * count})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    qbeast.write_table(rows(0, 1_000), tmp_path / "t", columns=["id:linear"])
    return tmp_path / "t"


@pytest.fixture
def arrive(tmp_path: Path) -> Callable[[int], None]:
    """Put a file of 100 rows where the stream looks."""
    (tmp_path / "in").mkdir()
    return lambda first: rows(first).write_parquet(tmp_path / "in" / f"{first}.parquet")


def source(spark: SparkSession, tmp_path: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(tmp_path / "in"))


def run(writer: DataStreamWriter, table: Path, **options: Any) -> str:
    """Take all there is, and stop."""
    query = writer.format("qbeast").options(**options).trigger(availableNow=True).start(str(table))
    query.awaitTermination()
    return str(query.id)


def ids(table: Path) -> list[int]:
    return sorted(qbeast.read_table(table)["id"])


def test_stopped_stream_continues(spark: SparkSession, table: Path, tmp_path: Path, arrive: Any) -> None:
    place = str(tmp_path / "checkpoint")
    for first in (0, 100, 200):
        arrive(first)
    query = run(source(spark, tmp_path).writeStream, table, checkpointLocation=place)
    assert ids(table) == sorted([*range(1_000), *range(300)])
    assert qbeast.open_table(table).version == 3  # a commit for each micro-batch
    arrive(990)
    assert run(source(spark, tmp_path).writeStream, table, checkpointLocation=place) == query
    assert ids(table) == sorted([*range(1_000), *range(300), *range(990, 1_090)])
    check_invariants(table, may_stage=True)  # 90 of them lie outside the table's range
    assert qbeast.open_table(table).history(1)["operation"].to_list() == ["STREAMING UPDATE"]
    assert progress(table) == {query: 3}


def progress(table: Path) -> dict[str, int]:
    actual: dict[str, int] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            txn = json.loads(line).get("txn")
            if txn:
                actual[txn["appId"]] = txn["version"]
    return actual


@pytest.mark.sweep
def test_repeated_batch_changes_nothing(
    spark: SparkSession, table: Path, tmp_path: Path, arrive: Any
) -> None:
    """As after a commit whose answer was lost: the table has the batch, the checkpoint does not know."""
    checkpoint = tmp_path / "checkpoint"
    arrive(0)
    arrive(100)
    run(source(spark, tmp_path).writeStream, table, checkpointLocation=checkpoint)
    before = sorted(path.name for path in table.rglob("*"))
    for path in (checkpoint / "commits").glob("*1*"):
        path.unlink()
    run(source(spark, tmp_path).writeStream, table, checkpointLocation=checkpoint)
    assert sorted(path.name for path in table.rglob("*")) == before
    assert (checkpoint / "commits" / "1").exists()


@pytest.mark.sweep
def test_stream_without_name_raises(spark: SparkSession, table: Path, tmp_path: Path, arrive: Any) -> None:
    arrive(0)
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(tmp_path / "checkpoints"))
    try:
        with pytest.raises(PySparkException, match=r"txnAppId"):
            run(source(spark, tmp_path).writeStream, table)
        run(source(spark, tmp_path).writeStream, table, txnAppId="named")
    finally:
        spark.conf.unset(setting)
    assert len(ids(table)) == 1_100


@pytest.mark.sweep
def test_stream_only_appends(spark: SparkSession, table: Path, tmp_path: Path, arrive: Any) -> None:
    arrive(0)
    counts = source(spark, tmp_path).groupBy("id").count()
    for mode, part in [("complete", "no output mode"), ("update", "[Uu]pdate")]:
        writer = counts.writeStream.outputMode(mode)
        with pytest.raises(PySparkException, match=part):
            run(writer, table, checkpointLocation=tmp_path / mode)
    with pytest.raises(PySparkException, match=r"write_table\(df, path, columns"):
        run(source(spark, tmp_path).writeStream, tmp_path / "none", checkpointLocation=tmp_path / "c")
    assert len(ids(table)) == 1_000
    assert len(read_log(table).adds) == 1
