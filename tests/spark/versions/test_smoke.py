"""What works on every supported PySpark: to read and write by function. `make sweep` runs these on older ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import polars as pl
import pyspark
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.errors import QbeastError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.sweep

COLUMNS = ["key", "x:quantiles", "name:hash"]


def _rows(spark: SparkSession, first: int = 0, count: int = 20_000) -> DataFrame:
    return spark.range(first, first + count, 1, 4).selectExpr(
        "id AS key",
        "cast(id * 7919 % 10007 AS double) / 7 AS x",
        "concat('name ', id % 40) AS name",
        "date_add(DATE'2024-01-01', cast(id % 500 AS int)) AS day",
        "timestamp_seconds(1700000000 + id * 61) AS at",
        "CASE WHEN id % 10 <> 0 THEN cast(id % 1000 AS decimal(9, 2)) END AS price",
    )


def _keys(frame: DataFrame) -> list[int]:
    return sorted(row["key"] for row in frame.select("key").collect())


@pytest.fixture(scope="module")
def path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the table that the tests read and leave as it is."""
    path = str(tmp_path_factory.mktemp("versions") / "table")
    bridge.write_table(_rows(spark), path, columns=COLUMNS)
    return path


def test_spark_has_the_requested_version(spark: SparkSession) -> None:
    expected = os.environ.get("EXPECTED_PYSPARK", pyspark.__version__)
    assert pyspark.__version__.startswith(expected)
    assert spark.version == pyspark.__version__


def test_polars_reads_spark_tables(path: str) -> None:
    table = qbeast.read_table(path)
    assert sorted(table["key"]) == list(range(20_000))
    assert table.schema == {
        "key": pl.Int64(),
        "x": pl.Float64(),
        "name": pl.String(),
        "day": pl.Date(),
        "at": pl.Datetime("us", "UTC"),
        "price": pl.Decimal(9, 2),
    }
    assert table["price"].null_count() == 2_000


def test_spark_reads_spark_tables(spark: SparkSession, path: str) -> None:
    read = bridge.read_table(spark, path).orderBy("key")
    assert read.exceptAll(_rows(spark)).count() == 0
    assert read.count() == 20_000


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_samples_are_equal_in_spark_and_polars(spark: SparkSession, path: str, fraction: float) -> None:
    sample = _keys(bridge.read_table(spark, path, sample=fraction, columns=["key"]))
    assert sample == sorted(qbeast.read_table(path, sample=fraction)["key"])
    assert len(sample) == pytest.approx(20_000 * fraction, rel=0.3)


@pytest.mark.parametrize("writer", ["Polars", "Spark"])
def test_jvm_tables_have_no_hidden_column(writer: str, spark: SparkSession, tmp_path: Path) -> None:
    table, columns = str(tmp_path / "jvm"), ["key:linear", "name:hash"]
    if writer == "Spark":
        bridge.write_table(_rows(spark), table, columns=columns, dialect="qbeast-spark")
    else:
        rows = pl.DataFrame({"key": range(20_000)}).with_columns(
            name="name " + (pl.col("key") % 40).cast(pl.String)
        )
        qbeast.write_table(rows, table, columns=columns, dialect="qbeast-spark", cube_size=1_000)
    bridge.open_table(spark, table).optimize(full=True)
    for file in qbeast.open_table(table).rows().files()["path"]:
        assert "_qbeast_weight" not in pl.read_parquet_schema(file)
    for fraction in (0.05, 0.5):
        sample = _keys(bridge.read_table(spark, table, sample=fraction, columns=["key"]))
        assert sample == sorted(qbeast.read_table(table, sample=fraction)["key"])
        assert 0 < len(sample) < 20_000


def test_filters_keep_the_matching_rows(spark: SparkSession, path: str) -> None:
    read = bridge.read_table(spark, path, where="x < 100 AND name = 'name 7'")
    expected = _rows(spark).where("x < 100 AND name = 'name 7'")
    assert _keys(read) == _keys(expected)


def test_spark_and_polars_append_to_each_other(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "mixed")
    bridge.write_table(_rows(spark, 0, 1_000), path, columns=COLUMNS)
    qbeast.write_table(qbeast.read_table(path).with_columns(pl.col("key") + 1_000), path, mode="append")
    bridge.write_table(_rows(spark, 2_000, 1_000), path, mode="append")
    assert sorted(qbeast.read_table(path)["key"]) == list(range(3_000))
    assert _keys(bridge.read_table(spark, path)) == list(range(3_000))


def test_spark_converts_and_optimizes(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "plain")
    _rows(spark, 0, 1_000).write.parquet(path)
    assert bridge.convert(spark, path, COLUMNS).rows == 1_000
    result = bridge.open_table(spark, path).optimize()
    assert (result.rows, result.plan["reason"].unique().to_list()) == (1_000, ["staged"])
    assert qbeast.open_table(path).check().faults.is_empty()
    assert _keys(bridge.read_table(spark, path)) == list(range(1_000))


def test_existing_table_is_unchanged(spark: SparkSession, path: str) -> None:
    with pytest.raises(QbeastError):
        bridge.write_table(_rows(spark, 0, 10), path, columns=COLUMNS)
    assert bridge.read_table(spark, path).count() == 20_000
