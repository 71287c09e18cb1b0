"""The session of the tests is what the other tests take it for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.spark.sessions import ZONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def _interpreters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"python": [sys.executable] * batch.num_rows})


def test_workers_run_this_python(spark: SparkSession) -> None:
    actual = spark.range(2, numPartitions=2).mapInArrow(_interpreters, "python string").toArrow()
    assert set(actual["python"].to_pylist()) == {sys.executable}


def test_session_has_requested_kind(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    remote = "connect" in type(spark).__module__
    assert remote == request.config.getoption("--connect")


def test_session_zone_is_not_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == ZONE
    row = spark.sql("SELECT CAST(TIMESTAMP'2024-07-01 00:00:00' AS LONG) AS seconds").toArrow()
    assert row["seconds"].to_pylist() == [1_719_806_400]


@pytest.mark.classic
def test_classic_sessions_bind_only_to_localhost(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
