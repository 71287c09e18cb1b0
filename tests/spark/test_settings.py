"""A write asks Spark not to count the bytes of rows, as long as they are short, and respects who chose."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.engine.workers import session_settings, with_uncounted_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST = str(2**31 - 1)
LONG = "x" * 30_000
"""Of ten thousand such rows a batch would have 300 MB."""


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.conf.unset(BYTES)
    spark.conf.unset(ROWS)


def test_short_rows_are_written_without_count(session: SparkSession, tmp_path: Path) -> None:
    rows = session.range(100).selectExpr(
        "id", "CAST(id AS STRING) AS `a.text`", "CAST(CAST(id AS STRING) AS BINARY) AS bytes"
    )
    put = type(session.conf).set
    with mock.patch.object(type(session.conf), "set", autospec=True, side_effect=put) as changed:
        bridge.write_table(rows, tmp_path / "t", ["id"])
    values = [call.args[2] for call in changed.call_args_list if call.args[1] == BYTES]
    assert values == [MOST]
    assert session.conf.get(BYTES, None) is None
    actual = qbeast.read_table(tmp_path / "t").sort("id").select("id", "a.text")
    assert actual.rows() == [(number, str(number)) for number in range(100)]


def test_long_rows_are_written_with_count(session: SparkSession, tmp_path: Path) -> None:
    options = [(1, "short", None), (2, None, LONG)]
    rows = session.createDataFrame(options, "id long, a string, b string")
    seen: list[str | None] = []

    def job(some: DataFrame) -> list[tuple[object, ...]]:
        seen.append(session.conf.get(BYTES, None))
        return sorted(tuple(row) for row in some.collect())

    assert with_uncounted_batches(rows, job) == options
    assert seen == [MOST, None]
    result = bridge.write_table(rows, tmp_path / "t", ["id"])
    assert session.conf.get(BYTES, None) is None
    assert qbeast.read_table(tmp_path / "t").sort("id").rows() == options
    # Nothing of the first attempt is left.
    assert len(list((tmp_path / "t").glob("*.parquet"))) == result.files == 1


def test_fixed_size_rows_and_user_settings_stay(session: SparkSession) -> None:
    def uncounted(columns: str) -> bool:
        rows = session.createDataFrame([], columns)
        return with_uncounted_batches(rows, lambda _: session.conf.get(BYTES, None)) == MOST

    assert uncounted("a long, b decimal(9, 2), c timestamp, d boolean, e date, f string, g binary")
    for other in ("array<int>", "map<string, int>", "struct<x: int>"):
        assert not uncounted(f"a long, b {other}")
    session.conf.set(ROWS, 0)  # batches of any number of rows
    assert not uncounted("a long")
    session.conf.unset(ROWS)
    session.conf.set(BYTES, 1 << 20)
    assert not uncounted("a long")
    with suppress(ZeroDivisionError), session_settings(session, {BYTES: 7}):
        assert session.conf.get(BYTES) == "7"
        raise ZeroDivisionError
    assert session.conf.get(BYTES) == str(1 << 20)


def test_job_error_is_not_a_long_row(session: SparkSession) -> None:
    calls = []

    def failing(rows: DataFrame) -> None:
        calls.append(rows)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        with_uncounted_batches(session.createDataFrame([], "a string"), failing)
    assert len(calls) == 1


def test_overlapping_calls_restore_the_setting(session: SparkSession) -> None:
    first, second = session_settings(session, {BYTES: 5}), session_settings(session, {BYTES: 5})
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert session.conf.get(BYTES, None) is None
