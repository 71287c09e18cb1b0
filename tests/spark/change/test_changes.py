"""Executors read the changes of commits, and replace the rows of a condition."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the usual name

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.tables import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FIRST = date(2026, 11, 1)
ROWS = pl.DataFrame({"id": range(400)}).with_columns(
    day=pl.lit(FIRST) + pl.duration(days=pl.col("id") % 28), tags=pl.concat_list("id", pl.lit(None, pl.Int64))
)
DAY = FIRST + timedelta(days=4)
OTHERS = ROWS.filter(pl.col("day") != DAY)
ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]


def collected(df: DataFrame) -> pl.DataFrame:
    return pl.DataFrame([row.asDict() for row in df.collect()])


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    kind = getattr(request, "param", "vectors")
    options = {"feed": {"change_feed": True}, "vectors": {"deletion_vectors": True}}.get(kind, {})
    qbeast.write_table(ROWS, tmp_path / "t", columns=["day", "id"], **options)
    yield tmp_path / "t"
    assert not list((tmp_path / "t").glob("*.rows.arrow"))


@pytest.mark.parametrize(
    "path",
    ["files", *(pytest.param(kind, marks=pytest.mark.sweep) for kind in ("feed", "vectors"))],
    indirect=True,
)
def test_changes_equal_those_of_polars(spark: SparkSession, path: Path) -> None:
    table = qbeast.open_table(path)
    table.delete("id < 30")
    table.update("id = 50", {"day": "DATE '2020-01-01'"})
    qbeast.write_table(ROWS[:3].with_columns(pl.col("id") + 900), path, mode="append")
    expected = table.refresh().changes(since=0).collect()
    by_spark = bridge.open_table(spark, path)
    changes = by_spark.changes(since=0)
    assert changes.columns == expected.columns
    assert changes.dtypes[-3:] == list(zip(ADDED, ["string", "bigint", "timestamp"], strict=True))
    actual = collected(changes.withColumn("_commit_timestamp", F.unix_micros("_commit_timestamp")))
    order = ["_commit_version", "_change_type", "id"]
    micros = expected.with_columns(pl.col("_commit_timestamp").dt.timestamp("us"))
    assert actual.sort(order).rows() == micros.sort(order).rows()
    some = by_spark.changes(since=1, until=2).select("_commit_version").distinct()
    assert some.count() == 1
    assert by_spark.changes(since=3).count() == 0


def test_a_column_selects_the_day_to_replace(spark: SparkSession, path: Path) -> None:
    where = F.col("day") == F.lit(DAY)
    df = spark.range(9000, 9003).select(
        "id", F.lit(DAY).alias("day"), F.array("id", F.lit(None)).alias("tags")
    )
    result = bridge.write_table(df, path, mode="overwrite", where=where, txn=("job", 1))
    assert (result.rows, result.rows_deleted, result.engine) == (3, ROWS.height - OTHERS.height, "spark")
    assert result.copies is not None
    assert result.copies["rows"].to_list() == [OTHERS.height, 0]  # the table has deletion vectors
    assert (result.rows_copied, result.hint) == (0, None)
    new = pl.DataFrame({"id": [9000, 9001, 9002]}).with_columns(
        day=pl.lit(DAY), tags=pl.concat_list("id", pl.lit(None, pl.Int64))
    )
    assert_same_rows(qbeast.read_table(path), pl.concat([OTHERS, new]), key="id")
    assert bridge.write_table(df, path, mode="overwrite", where=where, txn=("job", 1)).skipped


def test_rows_outside_are_refused_with_their_count(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    wrong = spark.range(4, 60).selectExpr("id", "date_add(date'2026-11-01', cast(id % 28 as int)) AS day")
    options: dict[str, Any] = {"mode": "overwrite", "where": f"day = DATE '{DAY}'", "schema_mode": "merge"}
    before = sorted(path.rglob("*"))
    with pytest.raises(qbeast.InvalidInputError, match=r"54 row\(s\) of df do not match"):
        bridge.write_table(wrong, path, **options)
    assert sorted(path.rglob("*")) == before
    with pytest.raises(qbeast.InvalidInputError, match=r"54 row\(s\) of df do not match"):
        bridge.write_table(wrong, tmp_path / "new", columns=["id"], **options)
    assert not (tmp_path / "new").exists()


def test_missing_table_is_created_by_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(3).select("id", F.lit(DAY).alias("day"))
    options: dict[str, Any] = {"columns": ["id"], "mode": "overwrite", "where": f"day = DATE '{DAY}'"}
    assert bridge.write_table(df, tmp_path / "t", **options).version == 0
    assert qbeast.open_table(tmp_path / "t").count() == 3
