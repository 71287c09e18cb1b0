"""A name of register_table never shows old rows, and every function takes it in place of the path."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.io.location import Location
from qbeast_spark_bridge.worker.read_task import NewestTask, ReadTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = pl.DataFrame({"id": range(100), "x": [n % 7 / 2 for n in range(100)]})
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
REFUSED = r"has version \d+, and this name.*refresh\(spark, name\)"


@pytest.fixture
def table(tmp_path: Path) -> str:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"], cube_size=10)
    return str(tmp_path / "t")


@pytest.fixture
def name(spark: SparkSession, table: str) -> Iterator[str]:
    bridge.register_table(spark, table, "logs")
    yield "logs"
    spark.catalog.dropTempView("logs")


def count(spark: SparkSession, name: str) -> int:
    (row,) = spark.table(name).groupBy().count().collect()
    return int(row[0])


def test_name_is_refused_after_an_insert_and_refreshed(spark: SparkSession, table: str, name: str) -> None:
    assert count(spark, name) == 100
    spark.sql("INSERT INTO logs SELECT id + 100, 0.5 FROM range(10)")
    with pytest.raises(PySparkException, match=REFUSED):
        count(spark, name)
    assert bridge.refresh(spark, name) == "`logs`"
    qbeast.read_table(table).write_parquet(f"{table}.parquet")
    assert count(spark, name) == spark.read.parquet(f"{table}.parquet").count() == 110


@pytest.mark.sweep
@pytest.mark.classic  # a Connect client looks the name up at each use
def test_frame_of_a_name_is_refused_once_it_is_old(spark: SparkSession, table: str, name: str) -> None:
    before = spark.table(name)
    bridge.open_table(spark, table).delete("id = 42")
    assert count(spark, name) == 99
    with pytest.raises(PySparkException, match=REFUSED):
        before.collect()


def test_limits_and_ends_of_a_name_are_refused(spark: SparkSession, table: str, name: str) -> None:
    qbeast.write_table(ROWS, table, mode="append")
    bridge.refresh(spark, name)
    assert spark.table(name).limit(3).count() == len(spark.table(name).tail(3)) == 3
    qbeast.open_table(table).delete("id = 42")
    queries: list[Callable[[DataFrame], object]] = [
        lambda rows: rows.limit(3).collect(),
        lambda rows: rows.tail(3),
        lambda rows: rows.first(),
    ]
    for query in queries:
        with pytest.raises(PySparkException, match=REFUSED):
            query(spark.table(name))


def test_insert_from_a_stale_name_writes_nothing(spark: SparkSession, table: str, name: str) -> None:
    qbeast.open_table(table).delete("id = 42")
    with pytest.raises(PySparkException, match=REFUSED):
        spark.sql(f"INSERT INTO {name} SELECT id + 1000, x FROM {name}")  # noqa: S608 -- a name of this test
    assert len(qbeast.open_table(table)) == 99


@pytest.mark.sweep
def test_cached_name_is_not_answered_from_old_rows(spark: SparkSession, table: str, name: str) -> None:
    spark.catalog.cacheTable(name)
    assert count(spark, name) == 100
    spark.sql("INSERT INTO logs VALUES (100, 0.5)")
    with pytest.raises(PySparkException, match=REFUSED):
        count(spark, name)
    bridge.open_table(spark, table).delete("id = 42")
    assert spark.catalog.isCached(name)
    assert count(spark, name) == 100 == len(qbeast.open_table(table))


@pytest.mark.sweep
def test_views_of_a_name_follow_it_or_are_refused(spark: SparkSession, table: str, name: str) -> None:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW of_text AS SELECT * FROM logs WHERE id < 50")
    spark.table(name).where("id < 50").createOrReplaceTempView("of_plan")
    assert count(spark, "of_text") == count(spark, "of_plan") == 50
    bridge.open_table(spark, table).delete("id = 42")
    assert count(spark, "of_text") == 49
    with pytest.raises(PySparkException, match=REFUSED):
        count(spark, "of_plan")


def test_view_by_hand_keeps_its_version_unless_it_refuses(spark: SparkSession, table: str) -> None:
    made = "CREATE OR REPLACE TEMPORARY VIEW {} USING qbeast OPTIONS (path '{}', {})"
    options = {"allows": "stale 'allow'", "refuses": "stale 'refuse'", "fixed": "stale 'refuse', version '0'"}
    for view, option in options.items():
        spark.sql(made.format(view, table, option))
        assert count(spark, view) == 100
    qbeast.open_table(table).delete("id = 42")
    assert count(spark, "allows") == count(spark, "fixed") == 100
    with pytest.raises(PySparkException, match=REFUSED):
        count(spark, "refuses")
    with pytest.raises(PySparkException, match="stale must be refuse or allow, not 'never'"):
        spark.read.format("qbeast").option("stale", "never").load(table).printSchema()


def merge(spark: SparkSession, name: str) -> Any:
    return bridge.open_table(spark, name).merge(spark.sql("SELECT 7L AS id, 0.25D AS x"), on="id")


def insert(spark: SparkSession, name: str) -> Any:
    return bridge.write_table(spark.sql("SELECT 700L AS id, 0.25D AS x"), name, mode="append")


def overwrite(spark: SparkSession, name: str) -> Any:
    rows = spark.sql("SELECT 7L AS id, 0.25D AS x")
    return bridge.write_table(rows, name, mode="overwrite", where="id = 7")


CHANGES: dict[str, Callable[[SparkSession, str], Any]] = {
    "delete": lambda spark, name: bridge.open_table(spark, name).delete("id < 10"),
    "update": lambda spark, name: bridge.open_table(spark, name).update("id < 10", {"x": "9.5"}),
    "merge": merge,
    "append": insert,
    "overwrite": overwrite,
    "optimize": lambda spark, name: bridge.open_table(spark, name).optimize(full=True),
    "reindex": lambda spark, name: bridge.open_table(spark, name).reindex(["x"]),
    "add_sample_column": lambda spark, name: bridge.open_table(spark, name).add_sample_column(),
    "upgrade": lambda spark, name: bridge.open_table(spark, name).upgrade(),
    "convert": lambda spark, name: bridge.convert(spark, name, ["id"]),
    "forName": lambda spark, name: bridge.QbeastTable.forName(spark, name).delete("id < 10"),
}
SAME = ("upgrade", "convert")  # nothing to do


@pytest.mark.parametrize(
    "change", ["delete", *(pytest.param(key, marks=pytest.mark.sweep) for key in CHANGES if key != "delete")]
)
def test_changes_by_name_are_shown_by_the_name(
    spark: SparkSession, table: str, name: str, change: str
) -> None:
    CHANGES[change](spark, name)
    opened = qbeast.open_table(table)
    assert (opened.version == 0) == (change in SAME)
    expected = opened.read().select("id", "x").rows()
    assert sorted((row.id, row.x) for row in spark.table(name).collect()) == sorted(expected)
    assert not os.path.exists(name)  # noqa: PTH110 - a name, not a path
    if change not in ("forName", "add_sample_column"):  # these take names only, and work once
        CHANGES[change](spark, table)
    assert count(spark, name) == len(qbeast.open_table(table))


READS: dict[str, Callable[[SparkSession, str], Any]] = {
    "read_table": lambda spark, name: bridge.read_table(spark, name).count(),
    "estimate": lambda spark, name: (
        bridge.estimate(spark, name, "count(*) AS n", error=0.1).frame["n"].item()
    ),
    "check": lambda spark, name: bridge.open_table(spark, name).check(data=False).ok and 100,
    "changes": lambda spark, name: 100 - bridge.open_table(spark, name).changes(since=0).count(),
    "count": lambda spark, name: bridge.open_table(spark, name).count(),
}


@pytest.mark.parametrize(
    "read", ["check", *(pytest.param(k, marks=pytest.mark.sweep) for k in READS if k != "check")]
)
def test_reads_take_the_name(spark: SparkSession, name: str, read: str) -> None:
    assert READS[read](spark, name) == 100
    assert READS[read](spark, "Logs") == 100  # Spark ignores the case


def test_view_of_somebody_else_is_left_alone(spark: SparkSession, table: str, name: str) -> None:
    rows: DataFrame = spark.range(3)
    rows.createOrReplaceTempView(name)
    bridge.open_table(spark, table).delete("id = 42")
    assert count(spark, name) == 3
    for call in (bridge.refresh, bridge.QbeastTable.forName, bridge.open_table):
        with pytest.raises(qbeast.InvalidInputError, match="not the path of its table"):
            call(spark, name)
    spark.catalog.dropTempView(name)
    bridge.open_table(spark, table).delete("id = 43")
    assert not spark.catalog.tableExists(name)
    with pytest.raises(qbeast.InvalidInputError, match="has no name 'logs'"):
        bridge.refresh(spark, name)


def tasks(table: str, number: int) -> list[NewestTask]:
    parts: list[Any] = [ReadTask(Rows(), ROWS.to_arrow().schema)] * number
    return NewestTask.of(parts, Location.of(table), 0)


class Rows:
    def read(self) -> Iterator[pl.DataFrame]:
        yield ROWS


def refuses(task: NewestTask) -> bool:
    try:
        list(task.batches())
    except qbeast.InvalidInputError:
        return True
    return False


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_ends_of_a_read_look_for_newer_versions(table: str, number: int) -> None:
    assert not any(map(refuses, tasks(table, number)))
    qbeast.open_table(table).delete("id = 42")
    refused = [refuses(task) for task in tasks(table, number)]
    assert refused == {0: [True], 1: [True], 2: [True, True], 4: [True, False, False, True]}[number]


def test_last_task_of_a_long_query_does_not_look(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = iter([5, 5, 6])
    context = SimpleNamespace(stageId=lambda: next(stages))
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    _, between, last = tasks(table, 3)
    assert not refuses(between)
    qbeast.open_table(table).delete("id = 42")
    assert not refuses(last)
    assert refuses(last)  # alone in a stage, as for `tail`


@pytest.mark.parametrize(
    "file", ["checkpoint.parquet", f"checkpoint.{UUID}.json", f"checkpoint.{1:010d}.{2:010d}.parquet"]
)
def test_version_is_old_if_a_cleanup_removed_the_next_commit(table: str, tmp_path: Path, file: str) -> None:
    opened = qbeast.open_table(table)
    for number in range(3):
        opened.delete(f"id = {number}")
    log = tmp_path / "t" / "_delta_log"
    for path in log.glob("*0[12].json"):
        path.unlink()
    (log / f"{3:020d}.json").rename(log / f"{3:020d}.{file}")
    (task,) = tasks(table, 1)
    with pytest.raises(qbeast.InvalidInputError, match="has version 3"):
        list(task.batches())


@pytest.mark.parametrize(
    "file",
    [
        "backup/{next}.json",
        "backup/{next}.checkpoint.parquet",
        "_sidecars/{next}.json",
        f"_staged_commits/{{next}}.{UUID}.json",
        ".{next}.json.crc",
        "{next}.json.tmp",
        "{next}.checkpoint.parquet.tmp",
        ".{next}.checkpoint.parquet.crc",
        "{this}.{next}.compacted.json",
        "{this}.crc",
        "notes.txt",
    ],
)
def test_files_of_others_in_the_log_are_not_a_version(table: str, file: str, tmp_path: Path) -> None:
    place = tmp_path / "t" / "_delta_log" / file.format(this=f"{0:020d}", next=f"{1:020d}")
    place.parent.mkdir(exist_ok=True)
    place.write_text("{}")
    assert not any(map(refuses, tasks(table, 2)))
    if not file.endswith(".crc"):  # a checksum is read
        assert DeltaTable(table).version() == 0
    qbeast.open_table(table).delete("id = 42")
    assert all(map(refuses, tasks(table, 2)))


def test_checkpoint_and_cleanup_are_not_a_version(table: str) -> None:
    opened = qbeast.open_table(table)
    for number in range(3):
        opened.delete(f"id = {number}")
    (task,) = NewestTask.of([], Location.of(table), 3)
    delta = DeltaTable(table)
    for change in (
        delta.create_checkpoint,
        delta.cleanup_metadata,
        lambda: opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False),
    ):
        change()
        assert not refuses(task)
    opened.delete("id = 42")
    assert refuses(task)


def test_failed_plan_of_a_name_is_a_warning(
    spark: SparkSession, table: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise AnalysisException(message="no plan today.\nJVM trace")

    with monkeypatch.context() as patch:
        patch.setattr(type(spark.range(0)), "createOrReplaceTempView", failing)
        with pytest.warns(qbeast.QbeastWarning) as caught:
            bridge.open_table(spark, table).delete("id = 42")
    (warning,) = caught
    assert "'logs' again: no plan today. Queries" in str(warning.message)
    assert "JVM" not in str(warning.message)
    assert len(qbeast.open_table(table)) == 99
    with pytest.raises(PySparkException, match=REFUSED):
        count(spark, name)
    bridge.refresh(spark, name)
    assert count(spark, name) == 99


def test_unknown_name_is_neither_a_table_nor_a_name(spark: SparkSession) -> None:
    unknown = "/lgos, and the session has no name 'lgos'"
    with pytest.raises(qbeast.TableNotFoundError, match=unknown):
        bridge.read_table(spark, "lgos")
    with pytest.raises(qbeast.TableNotFoundError, match=f"{unknown}.*Nothing was changed"):
        bridge.convert(spark, "lgos", ["id"])


@pytest.mark.sweep
def test_broken_view_of_somebody_else_is_replaced(
    spark: SparkSession, table: str, name: str, recwarn: pytest.WarningsRecorder
) -> None:
    spark.range(3).createOrReplaceTempView("below")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW logs AS SELECT * FROM below")
    spark.catalog.dropTempView("below")
    bridge.open_table(spark, table).delete("id = 42")
    assert not recwarn.list
    bridge.register_table(spark, table, name)
    assert count(spark, name) == 99


@pytest.mark.sweep
def test_engine_without_hashes_of_plans_has_names(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise UnsupportedOperationException(message="handle analyze semantic hash")

    with monkeypatch.context() as patch:  # as Sail
        patch.setattr(type(spark.range(1)), "semanticHash", refuse)
        patch.setattr(type(spark.catalog), "isCached", refuse)
        name = bridge.register_table(spark, table, "on_sail")
        bridge.open_table(spark, "on_sail").delete("id = 42")
        assert count(spark, name) == 99
        qbeast.open_table(table).delete("id = 43")
        with pytest.raises(PySparkException, match=REFUSED):
            count(spark, name)
        bridge.refresh(spark, name)
        assert count(spark, name) == 98
    spark.catalog.dropTempView("on_sail")
