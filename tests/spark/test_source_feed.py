"""format("qbeast") returns versions and changed rows by the options that Delta has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.errors import PySparkException

import qbeast
import qbeast_spark_bridge as bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NAMES = ["id", "s", "_change_type", "_commit_version"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a table of four versions: two of inserted rows, an update, and a delete."""
    place = tmp_path_factory.mktemp("feed") / "t"
    for first in (0, 10):
        rows = pl.DataFrame({"id": range(first, first + 10), "s": ["a"] * 10})
        qbeast.write_table(rows, place, columns=["id"], mode="append", change_feed=first == 0 or None)
    qbeast.open_table(place).update("id = 3", {"s": "'b'"})
    qbeast.open_table(place).delete("id >= 15")
    return place


def load(spark: SparkSession, table: Path, **options: Any) -> DataFrame:
    return spark.read.format("qbeast").options(**options).load(str(table))


def changed(rows: DataFrame) -> list[str]:
    return sorted(repr(tuple(row)) for row in rows.select(NAMES).collect())


@pytest.mark.parametrize(("first", "last"), [(0, None), (1, 2), (3, 3), (4, None)])
def test_changes_equal_those_of_python(
    spark: SparkSession, table: Path, first: int, last: int | None
) -> None:
    ends = {} if last is None else {"endingVersion": last}
    actual = load(spark, table, readChangeFeed="true", startingVersion=first, **ends)
    expected = qbeast.open_table(table).changes(first - 1, last).select(NAMES).collect()
    assert changed(actual) == sorted(map(repr, expected.rows()))
    assert actual.columns == ["id", "s", "_change_type", "_commit_version", "_commit_timestamp"]


def test_times_mean_the_first_and_the_last_commit(spark: SparkSession, table: Path) -> None:
    times = qbeast.open_table(table).history().sort("version")["timestamp"]
    begin, end = (times[version].isoformat() for version in (1, 2))
    by_time = load(spark, table, readChangeFeed="true", startingTimestamp=begin, endingTimestamp=end)
    assert changed(by_time) == changed(
        load(spark, table, readChangeFeed="true", startingVersion=1, endingVersion=2)
    )
    assert load(spark, table, timestampAsOf=begin).count() == 20
    assert load(spark, table, versionAsOf=0).count() == 10


def test_view_of_changes_has_chosen_columns(spark: SparkSession, table: Path) -> None:
    options = f"path '{table}', readChangeFeed 'true', startingVersion '2', columns '_change_type,id'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW changed_rows USING qbeast OPTIONS ({options})")
    rows = spark.sql("SELECT * FROM changed_rows WHERE _change_type LIKE 'update%'").collect()
    assert sorted(tuple(row) for row in rows) == [("update_postimage", 3), ("update_preimage", 3)]
    narrowed = spark.read.format("qbeast").schema("_commit_version bigint, id bigint")
    narrowed = narrowed.options(readChangeFeed="true", startingVersion=3).load(str(table))
    assert {tuple(row) for row in narrowed.collect()} == {(3, number) for number in range(15, 20)}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"readChangeFeed": "true"}, '.option("startingVersion", 0)'),
        ({"readChangeFeed": "true", "startingVersion": 9}, "at most 4"),
        ({"readChangeFeed": "true", "startingVersion": 2, "endingVersion": 1}, "endingVersion, 1, must not"),
        ({"startingVersion": 1}, '.option("readChangeFeed", "true")'),
        ({"versionAsOf": 9}, "has no version 9"),
    ],
)
def test_wrong_ranges_name_the_line(
    spark: SparkSession, table: Path, options: dict[str, Any], line: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, table, **options).collect()
    assert line in bridge.explain_error(caught.value)
