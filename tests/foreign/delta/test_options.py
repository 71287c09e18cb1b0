"""The options of versions and changed rows mean in format("qbeast") what they mean in format("delta")."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.errors import PySparkException

import qbeast
import qbeast_spark_bridge as bridge
from tests.foreign.delta.delta import Delta

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

FEED = {"readChangeFeed": "true"}
# Commits are at six o'clock of four days of the last week: Delta keeps older versions only by a property.
FIRST = datetime.now(tz=UTC).replace(hour=6, minute=0, second=0, microsecond=0) - timedelta(days=6)
DAYS = [(FIRST + timedelta(days=days)).date().isoformat() for days in range(4)]
SAME: list[dict[str, Any]] = [
    {"versionAsOf": 1},
    {"timestampAsOf": f"{DAYS[1]} 07:00:00"},
    {"timestampAsOf": DAYS[2]},
    {"timestampAsOf": f"{DAYS[2]}T06:00:00Z"},
    FEED | {"startingVersion": 0},
    FEED | {"startingVersion": "1", "endingVersion": "2"},
    FEED | {"startingVersion": 2, "endingVersion": 2},
    FEED | {"startingVersion": 3, "endingVersion": 9},
    FEED | {"startingVersion": 1, "endingTimestamp": f"{DAYS[2]} 07:00:00"},
    FEED | {"startingTimestamp": f"{DAYS[1]} 05:00:00"},
    FEED | {"startingTimestamp": f"{DAYS[1]} 06:00:00"},
    FEED | {"startingTimestamp": f"{DAYS[1]} 06:00:01"},
    FEED | {"startingTimestamp": DAYS[1], "endingTimestamp": f"{DAYS[2]} 06:00:00"},
    FEED | {"startingTimestamp": "2020-01-01", "endingVersion": 1},
]
REFUSED: list[dict[str, Any]] = [
    {"versionAsOf": 9},
    {"versionAsOf": "yesterday"},
    {"timestampAsOf": "2020-01-01"},
    {"timestampAsOf": "yesterday"},
    {"versionAsOf": 1, "timestampAsOf": DAYS[2]},
    FEED,
    FEED | {"startingVersion": 2, "endingVersion": 1},
    FEED | {"startingVersion": 9},
    FEED | {"startingVersion": "latest"},
    FEED | {"startingVersion": 0, "versionAsOf": 1},
    {"readChangeFeed": "yes", "startingVersion": 0},
]
LENIENT: list[dict[str, Any]] = [
    {"timestampAsOf": "2030-01-01"},  # the newest version
    FEED | {"startingVersion": 4},  # no rows: a job that runs before the next version
    FEED | {"startingTimestamp": "2030-01-01"},
    FEED | {"startingVersion": 0, "endingTimestamp": "2030-01-01"},
]
STRICT: list[dict[str, Any]] = [
    {"startingVersion": 1},  # Delta reads the newest version
    FEED | {"startingVersion": 1, "startingTimestamp": DAYS[2]},  # Delta ignores the time
]


def labels(options: dict[str, Any]) -> str:
    """Name a case without its days."""
    text = " ".join(f"{name}={value}" for name, value in options.items())
    for number, day in enumerate(DAYS):
        text = text.replace(day, f"day {number}")
    return text


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a table of four versions, and register the source in a session in UTC."""
    bridge.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    place = tmp_path_factory.mktemp("options") / "t"
    for first in (0, 10):
        rows = pl.DataFrame({"id": range(first, first + 10), "s": ["a"] * 10})
        qbeast.write_table(rows, place, columns=["id"], mode="append", change_feed=first == 0 or None)
    Delta(spark, place).sql("UPDATE {t} SET s = 'b' WHERE id = 3")
    qbeast.open_table(place).delete("id >= 15")
    for commit in (place / "_delta_log").glob("*.json"):
        set_time(commit, FIRST + timedelta(days=int(commit.stem)))
    return str(place)


def set_time(commit: Path, moment: datetime) -> None:
    """Give a commit a time, in its file and of its file: Delta takes the latter."""
    seconds = int(moment.timestamp())
    commit.write_text(re.sub(r'"timestamp":\d{13}', f'"timestamp":{seconds}000', commit.read_text()))
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    os.utime(commit, (seconds, seconds))


def rows_of(spark: SparkSession, kind: str, table: str, options: dict[str, Any]) -> list[str]:
    rows = spark.read.format(kind).options(**options).load(table)
    names = [name for name in rows.columns if name != "_commit_timestamp"]
    times = ["unix_micros(_commit_timestamp)"] if len(names) < len(rows.columns) else []
    return [*rows.columns, *sorted(repr(tuple(row)) for row in rows.selectExpr(*names, *times).collect())]


@pytest.mark.parametrize("options", SAME, ids=labels)
def test_options_read_the_rows_of_delta(spark: SparkSession, table: str, options: dict[str, Any]) -> None:
    expected = rows_of(spark, "delta", table, options)
    assert rows_of(spark, "qbeast", table, options) == expected
    assert len(expected) > 5


@pytest.mark.parametrize("options", REFUSED, ids=labels)
def test_options_are_refused_as_by_delta(spark: SparkSession, table: str, options: dict[str, Any]) -> None:
    for kind in ("delta", "qbeast"):
        with pytest.raises(PySparkException):
            rows_of(spark, kind, table, options)


@pytest.mark.parametrize("options", LENIENT, ids=labels)
def test_documented_options_are_read_where_delta_refuses(
    spark: SparkSession, table: str, options: dict[str, Any]
) -> None:
    with pytest.raises(PySparkException):
        rows_of(spark, "delta", table, options)
    assert rows_of(spark, "qbeast", table, options)


@pytest.mark.parametrize("options", STRICT, ids=labels)
def test_ignored_options_are_refused(spark: SparkSession, table: str, options: dict[str, Any]) -> None:
    assert rows_of(spark, "delta", table, options)
    with pytest.raises(PySparkException):
        rows_of(spark, "qbeast", table, options)
