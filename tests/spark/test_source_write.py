"""df.write.format("qbeast") makes and replaces tables: one commit, with the options that qbeast-spark has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.errors import PySparkException

import qbeast
import qbeast_spark_bridge as bridge
from examples import qbeast_spark_quickstart
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows
from tests.spark.frames import to_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def rows_of(count: int, first: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"user": range(first, first + count), "price": [n % 97 / 7 for n in range(count)]})


def save(frame: DataFrame, path: Path, mode: str = "append", **options: Any) -> None:
    frame.write.format("qbeast").mode(mode).options(**options).save(str(path))


def test_new_table_is_made_by_options_of_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    rows, path = rows_of(2_000), tmp_path / "t"
    frame = to_spark(spark, rows, tmp_path / "rows", parts=3)
    options = {"columnsToIndex": "user,price:quantiles", "cubeSize": 500, "userMetadata": "first"}
    save(frame, path, **options)
    table = qbeast.open_table(path)
    assert (table.version, table.indexed_columns) == (0, ("user", "price"))
    assert table.metrics().health.reasons == ("staged",)
    assert_same_rows(table.read(), rows, "user")
    save(to_spark(spark, rows_of(50), tmp_path / "more"), path, **options)
    table = bridge.QbeastTable.forPath(spark, path)
    assert table.optimize().committed
    assert (table.indexedColumns(), table.cubeSize(), table.revisionsIDs()) == (
        ["user", "price"],
        500,
        [0, 1],
    )
    save(to_spark(spark, rows_of(50), tmp_path / "again"), path, **options)
    check_invariants(path)
    assert table.history()["metadata"].struct.field("userMetadata").to_list()[-1] == "first"


def test_overwrite_replaces_rows_in_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    save(to_spark(spark, rows_of(900), tmp_path / "a"), path, columnsToIndex="user", optimize="true")
    assert qbeast.open_table(path).rows().files()["revision_id"].null_count() == 0
    save(to_spark(spark, rows_of(300, 100), tmp_path / "b", parts=2), path, "overwrite")
    table = qbeast.open_table(path)
    assert table.rows().files()["revision_id"].null_count() == 0, "indexed by the tree of the table"
    assert_same_rows(table.read(), rows_of(300, 100), "user")
    spark.read.format("qbeast").load(str(path)).createOrReplaceTempView("replaced")
    spark.sql("INSERT OVERWRITE replaced SELECT user, price FROM replaced WHERE user < 150")
    assert sorted(qbeast.read_table(path)["user"]) == list(range(100, 150))


@pytest.mark.sweep
def test_partitions_and_keys_are_options(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of(200).with_columns(day=pl.col("user") % 3)
    frame = to_spark(spark, rows, tmp_path / "rows")
    options = {"columnsToIndex": "user", "partitionBy": "day", "sampleBy": "user", "compression": "snappy"}
    save(frame, tmp_path / "t", **options)
    assert sorted(item.name for item in (tmp_path / "t").glob("day=*")) == ["day=0", "day=1", "day=2"]
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows, "user")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "needs columns to index"),
        ({"columnsToIndex": "nobody"}, "nobody"),
        ({"columnsToIndex": "user", "cubeSize": "many"}, "cubeSize"),
        ({"columnsToIndex": "user", "optimize": "yes"}, "true or false"),
        ({"columnsToIndex": "user", "qbeastPreCommitHook.x": "y"}, "has no option"),
    ],
)
def test_invalid_writes_leave_nothing(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], part: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        save(to_spark(spark, rows_of(9), tmp_path / "rows"), tmp_path / "t", **options)
    message = bridge.explain_error(caught.value)
    assert part in message
    assert "Traceback" not in message
    assert not (tmp_path / "t").exists()


def test_other_index_of_existing_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    qbeast.write_table(rows_of(100), tmp_path / "t", columns=["user"])
    with pytest.raises(PySparkException, match="reindex"):
        save(to_spark(spark, rows_of(9), tmp_path / "rows"), tmp_path / "t", columnsToIndex="price")
    assert qbeast.open_table(tmp_path / "t").version == 0


def test_quickstart_of_the_jvm_runs_without_its_jar(spark: SparkSession, tmp_path: Path) -> None:
    printed = qbeast_spark_quickstart.run(spark, tmp_path)
    assert (printed["rows"], printed["older than 20"], printed["in SQL"]) == (5, ["c", "d", "e"], 210)
    assert printed["indexed by"] == ["id", "age"]
    assert printed["operations"] == ["OPTIMIZE", "WRITE", "WRITE", "CREATE TABLE AS SELECT"]
    assert len(printed) == 8
