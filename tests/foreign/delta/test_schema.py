"""Columns, properties and features that Spark gives a table: followed, kept, or refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from qbeast_core.errors import ConstraintViolationError, InvalidInputError, QbeastError, UnsupportedTableError
from tests.foreign.delta.delta import INDEXED, Delta, assert_right, collected, rows_from, to_spark
from tests.helpers.tables import assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Delta:
    qbeast.write_table(rows_from(0), tmp_path / "t", columns=INDEXED, cube_size=40)
    return Delta(spark, tmp_path / "t")


def append(table: Delta, rows: pl.DataFrame, **options: str) -> None:
    qbeast.write_table(rows, table.path, mode="append", **options)  # type: ignore[arg-type] # options of the test


def test_spark_added_columns_are_read_and_written(table: Delta) -> None:
    table.sql("alter table {t} add columns (extra int comment 'theirs', tags array<string>)")
    kinds = {"extra": pl.Int32(), "tags": pl.List(pl.String())}
    model = rows_from(0).with_columns(pl.lit(None, dtype).alias(name) for name, dtype in kinds.items())
    assert_right(table, model)
    more = rows_from(400, 50).with_columns(extra=pl.lit(7, pl.Int32()), tags=pl.lit(["x"], kinds["tags"]))
    append(table, more)
    append(table, rows_from(450, 50), schema_mode="merge")
    model = pl.concat([model, more, rows_from(450, 50)], how="diagonal")
    assert_right(table, model)
    assert_same_rows(table.read("extra = 7"), more)
    qbeast.open_table(table.path).optimize(full=True)
    assert_right(table, model)


def test_spark_append_merges_columns(table: Delta) -> None:
    more = rows_from(400, 50).with_columns(price=pl.lit(1.5))
    table.append(more, mergeSchema="true")
    model = pl.concat([rows_from(0), more], how="diagonal")
    assert_right(table, model)
    qbeast.open_table(table.path).optimize()
    assert_right(table, model)


def test_spark_reads_columns_we_added_or_widened(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path)
    narrow = {"small": pl.Int8(), "medium": pl.Int16()}
    first = rows_from(0).with_columns(small=(pl.col("row") % 128).cast(pl.Int8), medium=pl.lit(300, pl.Int16))
    qbeast.write_table(first, tmp_path, columns=[*INDEXED, "small"], cube_size=40)
    opened = qbeast.open_table(tmp_path)
    opened.add_columns({"at": pl.Datetime("us", "UTC")})
    opened.widen_columns(dict.fromkeys(narrow, pl.Int32()))
    wide = {name: pl.Int32() for name in narrow}
    more = rows_from(400).with_columns(
        small=pl.lit(10**6, pl.Int32()),
        medium=pl.lit(-(10**6), pl.Int32()),
        at=pl.lit(datetime(2024, 1, 1, tzinfo=UTC)),
    )
    table.append(more[:200])
    append(table, more[200:])
    model = pl.concat([first.cast(wide), more], how="diagonal_relaxed")
    assert_right(table, model, [*INDEXED, "small"])
    assert_same_rows(table.read("small = 1000000"), more)
    assert_same_rows(table.read("medium = 300"), model[:400])
    opened.refresh().optimize(full=True)
    assert_right(table, model, [*INDEXED, "small"])


def test_rules_of_spark_are_kept_in_turn(spark: SparkSession, tmp_path: Path) -> None:
    """Spark and we append to a table with rules of all kinds; both compute, draw and refuse the same."""
    path = tmp_path / "t"
    spark.sql(
        f"create table delta.`{path}` (id bigint generated always as identity (start with 5 increment by 5), "
        "at timestamp, price double, day date generated always as (cast(at as date)), kind string default 'none') "
        "using delta tblproperties ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.sql(f"alter table delta.`{path}` add constraint cheap check (price < 100)")
    qbeast.convert_table(path, columns=["day", "price"])
    ours = pl.DataFrame(
        {"at": [datetime(2026, 3, day, 12, tzinfo=UTC) for day in (1, 2)], "price": [1.5, None]}
    )
    with pytest.raises(ConstraintViolationError):
        qbeast.write_table(ours, path, mode="append")
    for turn in range(4):
        if turn % 2:
            Delta(spark, path).sql(
                "insert into {t} (at, price) values (timestamp '2026-03-01 12:00:00Z', 1.5)"
            )
        else:
            qbeast.write_table(ours.head(1), path, mode="append")
    rows = qbeast.read_table(path)
    assert_same_rows(rows, Delta(spark, path).read(), "id")
    assert rows["id"].n_unique() == 4
    assert (rows["id"] % 5 == 0).all()
    assert set(rows["day"]) == {date(2026, 3, 1)}
    assert set(rows["kind"]) == {"none"}


def test_not_null_and_append_only_are_respected(table: Delta) -> None:
    table.sql("alter table {t} set tblproperties ('delta.appendOnly' = 'true')")
    append(table, rows_from(400, 50))
    with pytest.raises(UnsupportedTableError, match="appendOnly"):
        qbeast.write_table(rows_from(0), table.path, mode="overwrite")
    qbeast.open_table(table.path).optimize(full=True)
    assert_right(table, rows_from(0, 450))


def test_not_null_column_of_spark_rejects_nulls(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path / "t")
    table.sql("create table {t} (row bigint not null, a double, b string, note string) using delta")
    qbeast.convert_table(table.path, INDEXED, cube_size=40)
    append(table, rows_from(0))
    with pytest.raises(QbeastError, match="row"):
        append(table, rows_from(400).with_columns(pl.lit(None, pl.Int64()).alias("row")))
    assert_right(table, rows_from(0))


def test_change_feed_has_writes_but_not_optimize(table: Delta) -> None:
    table.sql("alter table {t} set tblproperties ('delta.enableChangeDataFeed' = 'true')")  # 1
    append(table, rows_from(400, 50))  # 2
    assert qbeast.open_table(table.path).optimize(full=True).version == 3
    qbeast.write_table(rows_from(1000, 30), table.path, mode="overwrite")  # 4
    table.sql("delete from {t} where row < 1010")  # 5
    reader = table.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    feed = collected(reader.load(str(table.path)))
    report = {
        (version, kind): part.drop("_change_type", "_commit_version", "_commit_timestamp")
        for (version, kind), part in feed.group_by("_commit_version", "_change_type")
    }
    assert report.keys() == {(2, "insert"), (4, "delete"), (4, "insert"), (5, "delete")}
    assert_same_rows(report[2, "insert"], rows_from(400, 50))
    assert_same_rows(report[4, "delete"], rows_from(0, 450))
    assert_same_rows(report[4, "insert"], rows_from(1000, 30))
    assert_same_rows(report[5, "delete"], rows_from(1000, 10))
    assert_right(table, rows_from(1010, 20))


@pytest.mark.parametrize("mapped", [False, True])
def test_spark_reads_the_feed_of_our_changes(spark: SparkSession, tmp_path: Path, *, mapped: bool) -> None:
    table = Delta(spark, tmp_path / "t")
    mapping = ", 'delta.columnMapping.mode' = 'name'" if mapped else ""
    table.sql(
        "create table {t} (row bigint, a double, b string, note string) using delta "
        f"tblproperties ('delta.enableChangeDataFeed' = 'true'{mapping})"
    )  # 0
    table.append(rows_from(0))  # 1
    if mapped:
        table.sql("alter table {t} rename column note to remark")  # 2
    qbeast.convert_table(table.path, INDEXED, cube_size=40)
    name = "remark" if mapped else "note"
    ours = qbeast.open_table(table.path)
    rows = ours.read()
    assert_same_rows(rows, rows_from(0).rename({"note": name}))
    deleted = ours.delete("row < 30").version
    updated = ours.update("row BETWEEN 50 AND 69", {name: "'new'"}).version
    source = rows.filter(pl.col("row").is_between(60, 69)).with_columns(a=pl.lit(0.5))
    source = pl.concat([source, rows_from(1000, 5).rename({"note": name})])
    merged = ours.merge(source, on="row").version
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", deleted)
    feed = collected(reader.load(str(table.path)))
    report = {
        (version, kind): part.drop("_change_type", "_commit_version", "_commit_timestamp")
        for (version, kind), part in feed.group_by("_commit_version", "_change_type")
    }
    middle = rows.filter(pl.col("row").is_between(50, 69))
    new = middle.with_columns(pl.lit("new").alias(name))
    expected = {
        (deleted, "delete"): rows.filter(pl.col("row") < 30),
        (updated, "update_preimage"): middle,
        (updated, "update_postimage"): new,
        (merged, "update_preimage"): new.filter(pl.col("row") >= 60),
        (merged, "update_postimage"): source.filter(pl.col("row") < 1000),
        (merged, "insert"): source.filter(pl.col("row") >= 1000),
    }
    assert report.keys() == expected.keys()
    for key, changed in expected.items():
        assert_same_rows(report[key].select(changed.columns), changed)


def test_commits_have_timestamps_spark_requires(table: Delta) -> None:
    table.sql("alter table {t} set tblproperties ('delta.enableInCommitTimestamps' = 'true')")  # 1
    append(table, rows_from(400, 50))  # 2
    table.append(rows_from(450, 50))  # 3
    qbeast.open_table(table.path).optimize()  # 4
    history = table.sql("describe history {t}")
    assert [entry["version"] for entry in history] == [4, 3, 2, 1, 0]
    times = [entry["timestamp"] for entry in history]
    assert sorted(times, reverse=True) == times
    assert_right(table, rows_from(0, 500))
    shown = table.spark.sql(f"describe history {table.name}").selectExpr("version", "string(timestamp) AS at")
    at = {row["version"]: row["at"] for row in shown.collect()}
    assert_same_rows(table.read(timestampAsOf=at[2]), rows_from(0, 450))


def test_both_see_properties_of_both(table: Delta) -> None:
    table.sql("alter table {t} set tblproperties ('team' = 'them', 'delta.checkpointInterval' = '2')")
    opened = qbeast.open_table(table.path)
    assert opened.properties == {"team": "them", "delta.checkpointInterval": "2"}
    opened.set_properties({"team": "us", "job": "nightly"})
    actual = table.properties()
    assert (actual["team"], actual["job"], actual["delta.checkpointInterval"]) == ("us", "nightly", "2")
    assert list(table.path.glob("_delta_log/*002.checkpoint*"))
    table.sql("alter table {t} unset tblproperties ('job')")
    table.sql("comment on table {t} is 'a table'")
    assert qbeast.open_table(table.path).properties["team"] == "us"
    assert "job" not in qbeast.open_table(table.path).properties
    append(table, rows_from(400, 50))
    assert table.sql("describe detail {t}")[0]["description"] == "a table"
    assert_right(table, rows_from(0, 450))


def test_dropped_column_ends_its_index(table: Delta) -> None:
    rows = rows_from(0, 60).drop("a")
    writer = to_spark(table.spark, rows).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").save(str(table.path))
    assert_same_rows(qbeast.read_table(table.path), rows)
    with pytest.raises((InvalidInputError, QbeastError)):
        append(table, rows_from(400, 50).drop("a"))
    qbeast.write_table(rows, table.path, columns=["row", "b"], mode="overwrite")
    assert_same_rows(table.read(), rows)
    assert qbeast.open_table(table.path).check().ok
