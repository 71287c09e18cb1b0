"""Spark reads, writes and changes tables with mapped and partition columns as this process does."""

from __future__ import annotations

import json
import shutil
from datetime import date
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.change_feed import enable_feed
from tests.helpers.tables import assert_same_rows, sampled, small_files
from tests.spark.frames import of_spark, to_spark
from tests.spark.twins import assert_same_change, small_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.SmallPartitionsWarning"),
]
INDEXED, BY = ["row", "a", "part"], ["part", "day"]
PARTS = ["x", None, "a/b=c %", "é'`"]
MODE = "delta.columnMapping.mode"
DAYS = [date(1582, 1, 1), date(2024, 2, 29)]


def rows_of(count: int = 480, first: int = 0) -> pl.DataFrame:
    """Rows with the names after the changes of names."""
    row = pl.int_range(first, first + count, eager=True).alias("row")
    return pl.DataFrame(
        [
            row,
            (row * 7919 % 1009).alias("a"),
            (row * 31 % 97).alias("b.c"),
            pl.Series("part", [PARTS[number % 4] for number in row]),
            pl.Series("day", [DAYS[number % 2] for number in row]),
            pl.Series("s", [{"x": number, "y": number % 7} if number % 5 else None for number in row]),
            pl.Series("list", [[{"z": number}] for number in row]),
        ]
    )


def mapped(path: Path, mode: str = "name", *, feed: bool = False) -> pl.DataFrame:
    """Write a table whose files have the names of columns in other orders; return its rows."""
    old = rows_of().rename({"a": "b.c", "b.c": "a", "part": "p"})
    old = old.with_columns(pl.col("s").struct.rename_fields(["y", "x"]))
    with small_files(file_rows=40, page_rows=8):
        qbeast.write_table(old, path, ["row", "b.c", "p"], partition_by=["p", "day"], cube_size=40)
    if feed:
        enable_feed(path)
    table = qbeast.open_table(path)
    steps = [("b.c", "t"), ("a", "b.c"), ("t", "a"), ("p", "part"), ("list.element.z", "u")]
    steps += [("s.y", "t"), ("s.x", "y"), ("s.t", "x"), ("list.element.u", "z")]
    for number, (before, after) in enumerate(steps):
        table.rename_column(before, after, upgrade_protocol=not number)
    if mode == "id":
        change_log(path, "metaData", lambda about: about["configuration"].update({MODE: "id"}))
    return rows_of()


def change_log(path: Path, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change all actions of a kind."""
    for commit in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if kind in action:
                change(action[kind])
        commit.write_text("\n".join(map(json.dumps, actions)) + "\n")
    for check in (path / "_delta_log").glob("*.crc"):
        check.unlink()


def by_deltalake(path: Path) -> pl.DataFrame:
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    return pl.DataFrame(query.read_all())


def check(path: Path, expected: pl.DataFrame, *, by_other: bool = True) -> None:
    assert_same_rows(qbeast.read_table(path), expected)
    if by_other:
        assert_same_rows(by_deltalake(path).select(expected.columns).cast(dict(expected.schema)), expected)
    assert qbeast.open_table(path).check().ok


def with_equal_names(path: Path) -> None:
    """Give the files of two folders the same names."""
    names: dict[str, int] = {}

    def rename(add: dict[str, Any]) -> None:
        old = path / unquote(add["path"])
        number = names[str(old.parent)] = names.get(str(old.parent), 0) + 1
        new = old.with_name(f"{number}.parquet")
        if number < 4:
            old.rename(new)
            add["path"] = quote(str(new.relative_to(path)))

    change_log(path, "add", rename)


def without_tags(path: Path) -> None:
    """Make some files those of another writer, which found by ids in mode `id`."""
    count = iter(range(10_000))
    change_log(path, "add", lambda add: add.pop("tags", None) if next(count) % 3 == 0 else None)


WHERE: list[tuple[str, pl.Expr]] = [
    ("part = 'x' AND a < 300", (pl.col("part") == "x") & (pl.col("a") < 300)),
    ("part IS NULL", pl.col("part").is_null()),
    ("day > DATE'2000-01-01' AND `b.c` > 50", (pl.col("day") > date(2000, 1, 1)) & (pl.col("b.c") > 50)),
]


def test_reads_return_the_rows_of_polars(spark: SparkSession, tmp_path: Path) -> None:
    """One job reads all tables in all ways."""
    bridge.register(spark)
    whole, some = list[DataFrame](), list[DataFrame]()
    expected: list[list[int]] = []

    def read(found: DataFrame, wanted: pl.DataFrame) -> None:
        assert found.columns == wanted.columns
        some.append(found.selectExpr(f"{len(expected)} AS number", "row"))
        expected.append(wanted["row"].sort().to_list())

    for mode in ("name", "id", "equal names"):
        path = tmp_path / mode
        rows = mapped(path, mode)
        if mode == "equal names":
            with_equal_names(path)
        if mode == "id":
            without_tags(path)
        whole.append(bridge.read_table(spark, path))
        read(bridge.read_table(spark, path, sample=0.3), sampled(rows, INDEXED, 0.3))
        read(bridge.read_table(spark, path, rows=100), qbeast.read_table(path, rows=100))
        read(bridge.read_table(spark, path, columns=["day", "row"]), rows.select("day", "row"))
        for text, expr in WHERE:
            read(bridge.read_table(spark, path, where=text), rows.filter(expr))
            read(bridge.read_table(spark, path, where=expr), rows.filter(expr))
        source = spark.read.format("qbeast").options(sample="0.5", columns="row,part,s", where=WHERE[0][0])
        wanted = sampled(rows, INDEXED, 0.5).filter(WHERE[0][1]).select("row", "part", "s")
        read(source.load(str(path)), wanted)
    counts = (
        of_spark(reduce(DataFrame.union, some)).group_by("number").agg(pl.col("row").sort()).sort("number")
    )
    found = dict(counts.iter_rows())
    assert [found.get(number, []) for number in range(len(expected))] == expected
    assert_same_rows(of_spark(reduce(DataFrame.union, whole)), pl.concat([rows_of()] * 3))


def test_appends_and_streams_keep_columns_and_partitions(spark: SparkSession, tmp_path: Path) -> None:
    bridge.register(spark)
    path = tmp_path / "t"
    rows = [mapped(path)]
    for number in range(3):
        new = rows_of(200, 1_000 * (number + 1))
        frame = to_spark(spark, new, tmp_path / f"raw {number}")
        with small_files(file_rows=40, page_rows=8):
            if number == 0:
                bridge.write_table(frame, path, mode="append")
            elif number == 1:
                frame.write.format("qbeast").mode("append").save(str(path))
            else:
                source = spark.readStream.schema(frame.schema).parquet(str(tmp_path / f"raw {number}"))
                stream = source.writeStream.format("qbeast").trigger(availableNow=True)
                stream.option("checkpointLocation", str(tmp_path / "c")).start(str(path)).awaitTermination()
        rows.append(new)
        check(path, pl.concat(rows))
    wider = rows_of(100, 5_000).with_columns(pl.col("row").alias("new"), pl.lit("later").alias("part"))
    frame = to_spark(spark, wider, tmp_path / "wider")
    bridge.write_table(frame, path, mode="append", schema_mode="merge")
    expected = pl.concat([*rows, wider], how="diagonal")
    check(path, expected)
    with small_files(file_rows=60):
        bridge.open_table(spark, path).optimize()
    check(path, expected)
    assert_same_rows(of_spark(bridge.read_table(spark, path, sample=0.4)), sampled(expected, INDEXED, 0.4))


def test_changes_and_feed_equal_those_of_memory(spark: SparkSession, tmp_path: Path) -> None:
    path, twin = tmp_path / "t", tmp_path / "u"
    mapped(path, feed=True)
    shutil.copytree(path, twin)
    moved = pl.concat([rows_of(60, 300), rows_of(60, 2_000)]).with_columns(
        pl.col("a") + 5, part=pl.when(pl.col("row") % 2 == 0).then(pl.lit("new")).otherwise("part")
    )
    given = to_spark(spark, moved, tmp_path / "raw")
    updates: dict[str, dict[str, Any]] = {
        "row % 7 = 1": {"part": "'moved'", "b.c": "a + 1"},
        "day IS NOT NULL AND row % 11 = 2": {"day": pl.lit(None), "a": 4},
    }
    by_spark, here = bridge.open_table(spark, path), qbeast.open_table(twin)
    with small_tasks():
        for where in ("part = 'x' AND a % 3 = 0", "part IS NULL"):
            assert_same_change(path, by_spark.delete(where), twin, here.delete(where))
        for where, values in updates.items():
            assert_same_change(path, by_spark.update(where, values), twin, here.update(where, values))
        assert_same_change(path, by_spark.merge(given, "row"), twin, here.merge(moved, "row"))
        by_spark.optimize(full=True)
    check(path, qbeast.read_table(twin))
    feeds = [
        pl.concat(
            [
                pl.read_parquet(file, hive_partitioning=False)
                for file in (item / "_change_data").rglob("*.parquet")
            ],
            how="diagonal",
        )["_change_type"].value_counts(sort=True)
        for item in (path, twin)
    ]
    assert feeds[0].sort(pl.all()).equals(feeds[1].sort(pl.all()))
