"""A Spark DataFrame becomes a table: every type, every shape of input, the same rows for every reader."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.functions import col, expr, lit

import qbeast
import qbeast_spark_bridge as bridge
from benchmarks.measure import peak_rss_bytes, reset_peak
from qbeast_core.io.store import LocalStore
from qbeast_spark_bridge.engine import first_pass as pass_one
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows, small_files
from tests.spark.frames import EVERY_TYPE, INDEXABLE, of_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from qbeast_core.tree.summary import IndexSummary

# Sessions of one JVM share tables and cached plans, and a process with the other kind of session may use it too.
OWN = os.getpid()


def check(path: Path, wanted: pl.DataFrame, key: str = "row") -> None:
    """The table holds these rows, for us and for a plain Delta reader, and keeps its invariants."""
    actual = qbeast.read_table(path)
    assert_same_rows(actual, wanted, key)
    assert_same_rows(pl.scan_delta(path).collect(), wanted, key)
    assert sum(block.rows for block in check_invariants(path)) == actual.height


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Other settings of the session for a while; double underscores stand for dots."""
    new = {f"spark.sql.{name.replace('__', '.')}": value for name, value in values.items()}
    old = {name: spark.conf.get(name) for name in new}
    for name, value in new.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, before in old.items():
            if before is not None:
                spark.conf.set(name, before)


def numbers(spark: SparkSession, count: int = 2_000, parts: int = 3, first: int = 0) -> DataFrame:
    return spark.range(first, first + count, 1, parts).selectExpr(
        "id AS row", "id * 7919 % 1009 AS a", "sqrt(id) AS b"
    )


def test_values_of_every_type_round_trip(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql(EVERY_TYPE)
    expected = of_spark(df)
    for number in range(0, len(INDEXABLE), 6):
        path = tmp_path / f"t{number}"
        result = bridge.write_table(df, path, INDEXABLE[number : number + 6], cube_size=20)
        assert (result.version, result.rows, result.committed, result.new_revision) == (0, 300, True, True)
        check(path, expected)


@pytest.mark.sweep
def test_session_settings_do_not_change_tables(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql(EVERY_TYPE).drop("at_ntz")  # by its cast: another zone, another time
    expected = of_spark(df)
    with settings(spark, session__timeZone="+05:30", ansi__enabled="false", adaptive__enabled="false"):
        bridge.write_table(df, tmp_path / "t", ["at", "day"])
    check(tmp_path / "t", expected)


@pytest.mark.sweep
def test_char_and_varchar_are_strings(spark: SparkSession, tmp_path: Path) -> None:
    name = f"padded_{OWN}"
    spark.sql(f"CREATE TABLE {name} (row BIGINT, c CHAR(4), v VARCHAR(9)) USING parquet")
    try:
        rows = spark.range(9).selectExpr("id", "concat('c', id % 3)", "concat('v', id)")
        rows.write.insertInto(name)
        df = spark.table(name)
        bridge.write_table(df, tmp_path / "t", ["c", "v"])
        check(tmp_path / "t", of_spark(df))
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.sweep
@pytest.mark.parametrize("parts", [1, 10])
def test_few_and_many_partitions_work(spark: SparkSession, tmp_path: Path, parts: int) -> None:
    df = numbers(spark, 2_000, parts).where("row < 400 OR row > 700")  # some partitions are empty
    with small_files(file_rows=400):
        result = bridge.write_table(df, tmp_path / "t", ["a", "b"], cube_size=50)
    assert result.files == len(read_log(tmp_path / "t").adds) > 2
    check(tmp_path / "t", of_spark(df))


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_heavy_key_goes_to_several_files(spark: SparkSession, tmp_path: Path) -> None:
    df = numbers(spark).withColumn("a", expr("IF(row % 10 = 0, row, 5)"))
    with small_files(file_rows=400):
        result = bridge.write_table(df, tmp_path / "t", ["a"], cube_size=20)
    assert result.files > 3
    check(tmp_path / "t", of_spark(df))


def test_empty_write_creates_table_or_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    df = numbers(spark)
    assert bridge.write_table(df.where("row < 0"), tmp_path / "t", ["a", "b"]).files == 0
    assert bridge.write_table(spark.createDataFrame([], df.schema), tmp_path / "t", mode="append").rows == 0
    assert qbeast.read_table(tmp_path / "t").schema == of_spark(df).schema
    assert bridge.write_table(df, tmp_path / "t", mode="append").rows == 2_000
    check(tmp_path / "t", of_spark(df))


@pytest.mark.sweep
def test_rows_take_the_types_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    bridge.write_table(numbers(spark), tmp_path / "t", ["a", "b"])
    narrow = numbers(spark, 100, 2, 2_000).selectExpr("CAST(a AS INT)", "row", "CAST(b AS FLOAT)")
    bridge.write_table(narrow, tmp_path / "t", mode="append")
    expected = of_spark(narrow).select("row", "a", "b").cast({"a": pl.Int64, "b": pl.Float64})
    check(tmp_path / "t", pl.concat([of_spark(numbers(spark)), expected]))


@pytest.mark.sweep
def test_schema_merge_adds_and_omits_columns(spark: SparkSession, tmp_path: Path) -> None:
    bridge.write_table(numbers(spark, 100), tmp_path / "t", ["a", "b"])
    other = numbers(spark, 100, 2, 100).select("row", "b", lit("x").alias("new"))
    bridge.write_table(other, tmp_path / "t", mode="append", schema_mode="merge")
    void = numbers(spark, 100, 2, 200).withColumn("a", lit(None))  # a column without a type takes the table's
    bridge.write_table(void, tmp_path / "t", mode="append", schema_mode="merge")
    frames = [of_spark(df) for df in (numbers(spark, 100), other, void.drop("a"))]
    check(tmp_path / "t", pl.concat(frames, how="diagonal"))


def test_modes_work_as_in_polars(spark: SparkSession, tmp_path: Path) -> None:
    path, df = tmp_path / "t", numbers(spark, 100)
    assert bridge.write_table(df, path, ["a"], mode="ignore", txn=("app", 3)).committed
    with pytest.raises(qbeast.TableExistsError):
        bridge.write_table(df, path, ["a"])
    assert not bridge.write_table(df, path, ["a"], mode="ignore").committed
    assert not bridge.write_table(df, path, mode="append", txn=("app", 3)).committed
    bridge.write_table(df.where("row < 50"), path, ["b"], mode="overwrite", commit_metadata={"why": "test"})
    check(path, of_spark(df.where("row < 50")))
    assert qbeast.open_table(path).history()["metadata"][0]["why"] == "test"


@pytest.mark.sweep
def test_second_writer_continues_existing_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df, first, plain = numbers(spark, 100), numbers(spark, 100, 2, 200), LocalStore.put_if_absent
    other = tmp_path / "other"
    qbeast.write_table(of_spark(first), other, columns=["a"])

    def put_if_absent(store: LocalStore, path: str, data: bytes) -> None:
        if other.exists():
            shutil.copytree(other, store.local_root, dirs_exist_ok=True)
            shutil.rmtree(other)
        plain(store, path, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
    assert bridge.write_table(df, tmp_path / "t", ["a"], mode="append").version == 1
    check(tmp_path / "t", pl.concat([of_spark(first), of_spark(df)]))
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 2


def test_names_of_columns_are_taken_literally(spark: SparkSession, tmp_path: Path) -> None:
    df = numbers(spark, 100).selectExpr("row", "a AS `x.y`", "b AS `p ``q`", "CAST(a AS STRING) AS `é%20`")
    bridge.write_table(df, tmp_path / "t", ["x.y", "p `q", "é%20"])
    check(tmp_path / "t", of_spark(df))


def test_progress_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    report: list[qbeast.Progress] = []
    with small_files(file_rows=500):
        bridge.write_table(numbers(spark), tmp_path / "t", ["a"], progress=report.append)
    assert [item.stage for item in report] == ["read", "plan", "write", "write", "commit", "done"]
    assert (report[-1].rows, report[-1].files_done) == (2_000, 4)


@pytest.mark.sweep
def test_clustered_sample_warns_once(spark: SparkSession, tmp_path: Path) -> None:
    df = numbers(spark).withColumn("a", col("a") % 5)
    with pytest.warns(qbeast.DesignEffectWarning, match="enter a sample together"):
        bridge.write_table(df, tmp_path / "t", ["a"])
    bridge.write_table(df, tmp_path / "t", mode="append")


def shaken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add random numbers, others every time that the rows are asked for."""
    dice = np.random.default_rng()
    for batch in batches:
        noise = pa.array(dice.random(batch.num_rows))
        yield pa.record_batch([*batch.columns, noise], names=[*batch.schema.names, "noise"])


def test_changing_rows_raise_unless_persisted(spark: SparkSession, tmp_path: Path) -> None:
    df = numbers(spark, first=OWN).mapInArrow(shaken, "row bigint, a bigint, b double, noise double")
    with pytest.raises(qbeast.InputChangedError, match="persist"):
        bridge.write_table(df, tmp_path / "t", ["noise"])
    assert not list(tmp_path.rglob("*.parquet"))
    bridge.write_table(df, tmp_path / "t", ["noise"], persist=True)
    check(tmp_path / "t", qbeast.read_table(tmp_path / "t"))
    assert not df.storageLevel.useMemory


@pytest.mark.sweep
def test_columns_without_index_may_be_random(spark: SparkSession, tmp_path: Path) -> None:
    rows = numbers(spark, first=OWN)
    df = rows.mapInArrow(shaken, "row bigint, a bigint, b double, noise double")
    bridge.write_table(df, tmp_path / "t", ["a"])
    assert_same_rows(qbeast.read_table(tmp_path / "t").drop("noise"), of_spark(rows))


@pytest.mark.sweep
def test_persisted_frame_stays_persisted(spark: SparkSession, tmp_path: Path) -> None:
    df = numbers(spark, 50, first=OWN).persist()
    try:
        bridge.write_table(df, tmp_path / "t", ["a"], persist=True)
        assert df.storageLevel.useMemory
    finally:
        df.unpersist()


def test_more_rows_in_second_pass_raise(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    def growing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if flag.exists():
                yield batch.slice(0, 1)

    schema = "row bigint, a bigint, b double"
    bridge.write_table(numbers(spark, 50), tmp_path / "t", ["a"])
    with pytest.raises(qbeast.InputChangedError) as caught:
        bridge.write_table(
            numbers(spark, 100).mapInArrow(growing, schema),
            tmp_path / "t",
            mode="append",
            progress=lambda now: flag.touch() if now.stage == "plan" else None,
        )
    assert (caught.value.rows_before, caught.value.rows_after) == (100, 103)
    check(tmp_path / "t", of_spark(numbers(spark, 50)))
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1


@pytest.mark.sweep
@pytest.mark.timeout(900)  # two passes of a thousand tasks each, every one with a Python worker
def test_driver_memory_ignores_number_of_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: dict[str, int] = {}
    peaks: dict[str, int] = {}
    real = pass_one._summary  # noqa: SLF001 -- it is given all that the driver collects
    for name, parts, count in (("few", 4, 400_000), ("many", 1_000, 4_000_000)):

        def seen(sent: list[pa.Table], *others: Any, to: str = name) -> IndexSummary:
            collected[to] = sum(rows.nbytes for rows in sent)
            return real(sent, *others)

        monkeypatch.setattr(pass_one, "_summary", seen)
        reset_peak()
        before = peak_rss_bytes()
        bridge.write_table(numbers(spark, count, parts), tmp_path / name, ["row", "a"])
        peaks[name] = peak_rss_bytes() - before
        assert qbeast.scan_table(tmp_path / name).select(pl.len()).collect().item() == count
    assert collected["few"] < 12 << 20
    assert collected["many"] < 8 * (
        24 << 20
    )  # a million rows of 24 bytes, for each time there are e times as many
    assert peaks["many"] < 400 << 20
