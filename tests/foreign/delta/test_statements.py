"""The statements that docs/spark-statements.md lists work with Delta's jar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import qbeast
from tests.foreign.delta.delta import Delta
from tests.helpers.delta_statements import Statement, statements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    rows = pl.DataFrame({"id": range(20), "s": ["a"] * 20})
    qbeast.write_table(rows, tmp_path / "logs", columns=["id"], change_feed=True)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    (tmp_path / "files").mkdir()
    rows.write_parquet(tmp_path / "files" / "a.parquet")
    spark.createDataFrame([(7, "new"), (50, "new")], "id bigint, s string").createOrReplaceTempView("source")
    yield tmp_path
    for name in ("logs", "copied"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize(
    "item",
    statements(),
    ids=lambda item: item.statement,
)
def test_statement_does_what_the_page_says(spark: SparkSession, item: Statement, place: Path) -> None:
    written_ns = (place / "logs" / "_delta_log" / f"{0:020}.json").stat().st_mtime_ns
    time = datetime.fromtimestamp(written_ns // 10**9, tz=UTC) + timedelta(
        milliseconds=written_ns // 10**6 % 1000
    )
    text = item.at(place, time.isoformat(timespec="milliseconds")).statement
    if item.with_jar == "works with column mapping":
        Delta(spark, place / "logs").sql(
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )
    if "logs`" not in text and "TABLE logs USING" not in text:
        spark.sql(f"CREATE TABLE logs USING delta LOCATION '{place}/logs'")
    if "DROP CONSTRAINT" in text:
        qbeast.open_table(place / "logs").add_constraint("positive", "id >= 0")
    if "UNSET" in text:
        qbeast.open_table(place / "logs").set_properties({"delta.appendOnly": "true"})
    if item.with_jar.startswith("refused"):
        with pytest.raises((PySparkException, Py4JJavaError)):
            spark.sql(text).collect()
    else:
        assert item.with_jar.startswith("works")
        spark.sql(text).collect()
    table = qbeast.open_table(place / "logs")
    assert table.check().ok
    assert table.count() == spark.read.format("delta").load(str(place / "logs")).count()
