"""What cannot be written from Spark is refused before the table changes, in words that help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import expr, lit

import qbeast
import qbeast_spark_bridge as bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two columns, the second one not nullable; no test may change it."""
    path = tmp_path_factory.mktemp("refused") / "t"
    bridge.write_table(rows(spark), path, ["a"])
    commit = path / "_delta_log" / f"{0:020}.json"
    name = r"\"name\":\"b\",\"type\":\"string\",\"nullable\":"
    text = commit.read_text()
    assert name + "true" in text
    commit.write_text(text.replace(name + "true", name + "false"))
    return path


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(30).selectExpr("id AS a", "concat('x', id) AS b")


def unchanged(table: Path) -> bool:
    return qbeast.open_table(table).version == 0 and len(list(table.glob("*.parquet"))) == 1


def test_worker_error_is_raised_unchanged(spark: SparkSession, table: Path) -> None:
    holes = rows(spark).withColumn("b", expr("IF(a = 7, NULL, b)"))
    with pytest.raises(qbeast.SchemaMismatchError, match="'b' may hold no nulls") as caught:
        bridge.write_table(holes, table, mode="append")
    assert caught.value.problems == ("column 'b' may hold no nulls",)
    assert caught.value.argument == "df"
    assert isinstance(caught.value.__cause__, PySparkException)
    assert unchanged(table)


def test_error_of_user_rows_stays_sparks(spark: SparkSession, table: Path) -> None:
    broken = rows(spark).withColumn("b", expr("IF(a = 7, raise_error('boom'), b)"))
    with pytest.raises(PySparkException, match="boom"):
        bridge.write_table(broken, table, mode="append")
    assert unchanged(table)


def test_all_mismatched_columns_are_named(spark: SparkSession, table: Path) -> None:
    other = rows(spark).selectExpr("CAST(a AS STRING) AS a", "b", "1 AS c")
    with pytest.raises(qbeast.SchemaMismatchError) as caught:
        bridge.write_table(other, table, mode="append")
    assert len(caught.value.problems) == 2


def test_types_that_delta_lacks_are_named(spark: SparkSession, tmp_path: Path) -> None:
    df = rows(spark).withColumn("i", expr("INTERVAL '1' DAY")).withColumn("v", lit(None))
    with pytest.raises(qbeast.SchemaMismatchError, match="'i' has type interval day"):
        bridge.write_table(df, tmp_path / "t", ["a"])
    with pytest.raises(qbeast.InvalidInputError, match="all values of v are null"):
        bridge.write_table(df.drop("i"), tmp_path / "t", ["a"])
    assert not list(tmp_path.iterdir())


def test_collated_columns_are_stored_but_not_indexed(spark: SparkSession, tmp_path: Path) -> None:
    df = rows(spark).withColumn("b", expr("b COLLATE UTF8_LCASE"))
    with pytest.raises(qbeast.InvalidColumnsError, match="collation") as caught:
        bridge.write_table(df, tmp_path / "t", ["a", "b"])
    assert caught.value.columns == ("b",)
    assert not list(tmp_path.iterdir())
    bridge.write_table(df, tmp_path / "t", ["a"])
    assert sorted(qbeast.read_table(tmp_path / "t")["b"]) == sorted(f"x{n}" for n in range(30))


def test_missing_and_unindexable_columns_raise(spark: SparkSession, tmp_path: Path) -> None:
    df = rows(spark).withColumn("list", expr("array(a)"))
    for wrong in ("A", "nothing", "list"):
        with pytest.raises(qbeast.InvalidColumnsError, match=wrong):
            bridge.write_table(df, tmp_path / "t", [wrong])
    twice = rows(spark).selectExpr("a", "b AS a")
    with pytest.raises(qbeast.SchemaMismatchError, match="more than one"):
        bridge.write_table(twice, tmp_path / "t", ["a"])


def test_stream_error_names_foreach_batch(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(qbeast.InvalidInputError, match="foreachBatch"):
        bridge.write_table(stream, tmp_path / "t", ["value"])


def test_vectors_of_tables_for_a_jvm_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="Leave `deletion_vectors` out"):
        bridge.write_table(rows(spark), tmp_path / "t", ["a"], dialect="qbeast-spark", deletion_vectors=True)
    assert not (tmp_path / "t").exists()
