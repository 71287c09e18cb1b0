"""The changes of a table equal the feed that Spark's Delta reads, whichever of both changed the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from tests.foreign.delta.delta import Delta, rows_from
from tests.helpers.tables import small_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

FEATURES = {
    "plain": "",
    "vectors": "'delta.enableDeletionVectors' = 'true'",
    "mapping": "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'",
    "row tracking": "'delta.enableRowTracking' = 'true'",
    "in-commit timestamps": "'delta.enableInCommitTimestamps' = 'true'",
}
STEPS: tuple[Callable[[Delta], object], ...] = (
    lambda table: table.sql("delete from {t} where a < 20"),
    lambda table: qbeast.open_table(table.path).delete("row = 7 OR a > 95"),
    lambda table: table.sql("update {t} set a = a + 1 where b = 'key 3'"),
    lambda table: qbeast.open_table(table.path).update("b = 'key 4'", {"note": "'ours'", "a": "a * 2"}),
    lambda table: qbeast.open_table(table.path).merge(
        rows_from(350, 100).with_columns(a=pl.lit(0.5)), "row", delete_if="row % 9 = 0"
    ),
    lambda table: table.sql("optimize {t}"),
    lambda table: table.append(rows_from(2000, 30)),
    lambda table: qbeast.open_table(table.path).optimize(),
    lambda table: table.sql("restore {t} to version as of 3"),
    lambda table: qbeast.write_table(
        rows_from(5000, 5).with_columns(b=pl.lit("key 5")), table.path, mode="overwrite", where="b = 'key 5'"
    ),
    lambda table: table.sql("insert overwrite {t} select * from {t} where row < 100"),
)


@pytest.mark.parametrize("feature", FEATURES)
def test_changes_equal_the_feed_of_spark(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    table = Delta(spark, tmp_path / "t")
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(
            rows_from(0), table.path, columns=["row", "a", "b"], cube_size=40, change_feed=True
        )
        if FEATURES[feature]:
            table.sql(f"alter table {{t}} set tblproperties ({FEATURES[feature]})")
        first = qbeast.open_table(table.path).version
        for step in STEPS:
            step(table)
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first + 1)
    theirs = reader.load(str(table.path)).selectExpr(
        "row", "a", "b", "note", "_change_type", "_commit_version", "unix_micros(_commit_timestamp) AS micros"
    )
    ours = qbeast.open_table(table.path).changes(since=first).collect()
    assert set(ours["_change_type"]) == {"insert", "delete", "update_preimage", "update_postimage"}
    shown = ours.with_columns(micros=pl.col("_commit_timestamp").dt.timestamp("us")).drop("_commit_timestamp")
    if feature != "in-commit timestamps":  # Spark takes the time of the file of the commit
        shown, theirs = shown.drop("micros"), theirs.drop("micros")
    assert sorted(map(repr, shown.rows())) == sorted(repr(tuple(row)) for row in theirs.collect())
