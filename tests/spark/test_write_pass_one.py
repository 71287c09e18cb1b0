"""What Spark counts and samples of the indexed columns is what Polars finds in the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from qbeast_core.log.schema import schema_to_delta
from qbeast_core.table.engine.files import SummaryTask
from qbeast_core.tree.grid import frame_weights
from qbeast_core.tree.summary import KEY_COLUMN, IndexSummary, summarise
from qbeast_spark_bridge.engine import first_pass as pass_one
from qbeast_spark_bridge.spark_types import empty_frame
from tests.helpers.small_files import resized
from tests.spark.frames import EVERY_TYPE, INDEXABLE, of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def summary_of(df: DataFrame, columns: list[str], *, cube_size: int | None = None) -> IndexSummary:
    schema = empty_frame(df.schema).schema
    task = SummaryTask(pl.Schema({name: schema[name] for name in columns}), cube_size)
    return pass_one.summarise_rows(df, task, schema_to_delta(schema))


def check_all(df: DataFrame, columns: list[str]) -> None:
    """Every row is in the sample, and all that was counted is right."""
    frame = of_spark(df).select(columns)
    summary, expected = summary_of(df, columns), summarise(frame, columns)
    assert (summary.rows, summary.columns) == (expected.rows, expected.columns)
    assert summary.weight_sum == int(frame_weights(frame, columns).sum(dtype=np.int64))
    assert summary.key_limit == expected.key_limit
    sample, everything = (item.sample.drop(KEY_COLUMN).sort(columns) for item in (summary, expected))
    assert sample.schema == everything.schema
    assert sample.equals(everything)


@pytest.mark.parametrize(
    "zone", [*(pytest.param(zone, marks=pytest.mark.sweep) for zone in ("UTC", "America/New_York")), "+05:30"]
)
def test_every_type_works_in_all_zones(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        check_all(spark.sql(EVERY_TYPE), INDEXABLE)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.sweep
@pytest.mark.parametrize(
    "rows",
    [
        "SELECT id AS a, CAST(NULL AS STRING) AS b FROM range(0, 90, 1, 9) WHERE id > 80",
        "SELECT id AS a, 'x' AS b FROM range(0) WHERE id > 1",
        "SELECT id AS a, CAST(NULL AS STRING) AS b FROM range(0, 9, 1, 3) WHERE id < 0",
        "SELECT a, b FROM (SELECT id AS a, 'x' AS b FROM range(20)) WHERE false",
        "SELECT id AS a, 'x' AS b FROM range(20) LIMIT 0",
        "SELECT id % 3 AS a, max(concat('x', id)) AS b FROM range(0, 50, 1, 3) GROUP BY 1 HAVING a < 0",
        "SELECT l.id AS a, 'x' AS b FROM range(9) l JOIN range(5) r ON l.id = r.id + 100",
    ],
)
def test_empty_partitions_work(spark: SparkSession, rows: str) -> None:
    check_all(spark.sql(rows), ["a", "b"])


def test_timestamps_beyond_python_calendar_work(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT timestamp_micros(v) AS at, CAST(timestamp_micros(v) AS TIMESTAMP_NTZ) AS ntz,"
        " date_from_unix_date(CAST(v / 10000000000000 AS INT)) AS day"
        " FROM VALUES (9000000000000000000), (-60000000000000001), (-1), (0), (NULL) AS t(v)"
    )
    names = ["at", "ntz", "day"]
    summary = summary_of(df, names)
    expected = summarise(pl.DataFrame(df.toArrow()).select(names), names)
    assert summary.columns == expected.columns


@pytest.mark.sweep
def test_rows_are_read_after_shuffle_and_cache(spark: SparkSession) -> None:
    shuffled = spark.range(0, 3_000, 1, 4).selectExpr("id % 700 AS a").groupBy("a").count()
    check_all(shuffled, ["a", "count"])
    rows_held = shuffled.persist()
    try:
        check_all(rows_held, ["count", "a"])
    finally:
        rows_held.unpersist()


def test_samples_shrink_and_stay_uniform(spark: SparkSession) -> None:
    rows = 60_000
    df = spark.range(0, rows, 1, 3).selectExpr("id AS a")
    with resized(min_sample_rows=1_000):
        wide = summary_of(df, ["a"], cube_size=4_096)
    share = wide.sample.height / rows
    assert share == pytest.approx(0.25, rel=0.05)  # a cube of 4,096 rows has 1,024 in the sample
    assert wide.values("a").mean() == pytest.approx(rows / 2, rel=0.03)
    with resized(min_sample_rows=1_000, domain_rows=3_000, domain_bytes=1 << 20):
        thin = summary_of(df, ["a"], cube_size=4_096)
    assert 2_500 < thin.sample.height <= 3_000
    assert thin.values("a").mean() == pytest.approx(rows / 2, rel=0.05)
