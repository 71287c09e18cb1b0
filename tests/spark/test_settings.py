"""A write asks Spark not to count the bytes of rows that are short, for as long as it takes, and respects who chose."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge import engine
from qbeast_spark_bridge.settings import chosen, uncounted_batches

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST = str(2**31 - 1)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.conf.unset(BYTES)


def test_rows_that_are_short_are_not_counted_for_as_long_as_they_are_written(
    session: SparkSession, tmp_path: Path
) -> None:
    seen: list[str | None] = []

    @contextmanager
    def looking(spark: SparkSession, settings: dict[str, int]) -> Generator[None]:
        with chosen(spark, settings):
            seen.append(spark.conf.get(BYTES, None))
            yield

    with mock.patch.object(engine, "chosen", looking):
        bridge.write_table(session.range(100), tmp_path / "t", ["id"])
    assert seen == [MOST]
    assert session.conf.get(BYTES, None) is None
    assert qbeast.read_table(tmp_path / "t")["id"].sort().to_list() == list(range(100))


def test_rows_of_any_size_and_the_choice_of_others_are_left_alone(session: SparkSession) -> None:
    def asked(columns: str) -> dict[str, int]:
        return uncounted_batches(session, session.createDataFrame([], columns).schema)

    assert asked("a long, b decimal(9, 2), c timestamp, d boolean, e date") == {BYTES: int(MOST)}
    for other in ("string", "binary", "array<int>", "map<string, int>", "struct<x: int>"):
        assert asked(f"a long, b {other}") == {}
    session.conf.set(BYTES, 1 << 20)
    assert asked("a long") == {}
    with suppress(ZeroDivisionError), chosen(session, {BYTES: 7}):
        assert session.conf.get(BYTES) == "7"
        raise ZeroDivisionError
    assert session.conf.get(BYTES) == str(1 << 20)
