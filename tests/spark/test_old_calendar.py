"""Dates and times that Spark wrote in the old calendar are what Spark reads of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.classic, pytest.mark.sweep]

ZONES = ["UTC", "America/Los_Angeles", "Asia/Tokyo"]
SETTINGS = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
ROWS = """
    SELECT id, date_add(DATE'0001-01-10', CAST(id * 613 AS INT)) AS day,
        timestamp_micros(unix_micros(TIMESTAMP'0001-01-10 00:00:00Z') + id * 52963200123456) AS moment
    FROM range(1200)
"""


@pytest.fixture
def legacy(spark: SparkSession) -> Iterator[SparkSession]:
    """Give the session with settings that write the old calendar, and put back what it had."""
    names = [*SETTINGS, "spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType"]
    before = {name: spark.conf.get(name) for name in names}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, str(value))


def by_spark(spark: SparkSession, path: Path) -> pl.DataFrame:
    actual = spark.read.parquet(str(path)).selectExpr(
        "id",
        "unix_date(day) AS day",
        "unix_micros(moment) AS moment",
        "unix_date(nested.day) AS in_struct",
        "transform(days, one -> unix_date(one)) AS in_array",
        "unix_micros(named['a']) AS in_map",
    )
    return pl.DataFrame(actual.toArrow()).sort("id")


def as_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        "id",
        pl.col("day").to_physical(),
        pl.col("moment").to_physical(),
        in_struct=pl.col("nested").struct.field("day").to_physical(),
        in_array=pl.col("days").list.eval(pl.element().to_physical()),
        in_map=pl.col("named").map.get("a").to_physical(),
    ).sort("id")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("stored", ["INT96", "TIMESTAMP_MICROS"])
def test_old_dates_equal_a_read_by_spark(
    zone: str, stored: str, legacy: SparkSession, tmp_path: Path
) -> None:
    legacy.conf.set("spark.sql.session.timeZone", zone)
    legacy.conf.set("spark.sql.parquet.outputTimestampType", stored)
    path = tmp_path / "t"
    rows = legacy.sql(ROWS).selectExpr(
        "*", "struct(id, day) AS nested", "array(day, NULL) AS days", "map('a', moment) AS named"
    )
    rows.coalesce(1).write.parquet(str(path))
    expected = by_spark(legacy, path)
    assert expected["day"].to_list() == list(range(expected["day"][0], expected["day"][-1] + 1, 613))
    qbeast.convert_table(path, columns=["day", "moment"])
    actual = qbeast.read_table(path)
    assert_frame_equal(as_numbers(actual), expected)
    for row in range(0, 1200, 97):
        day, moment = actual["day"][row], actual["moment"].slice(row, 1)
        kept = qbeast.read_table(
            path, where=(pl.col("day") == day) & (pl.col("moment") == pl.lit(moment).first())
        )
        assert kept["id"].to_list() == [actual["id"][row]]
    assert qbeast.open_table(path).check().ok
    qbeast.open_table(path).optimize()
    assert_frame_equal(as_numbers(qbeast.read_table(path)), expected)
