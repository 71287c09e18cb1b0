"""Merges by Spark: keys in buckets, new columns, invalid sources, other writers; batches of a stream come once."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.table.engine.row_change import SUFFIX
from tests.helpers.changes import changes, written
from tests.helpers.races import landing_first
from tests.helpers.small_files import resized
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows
from tests.spark.frames import to_spark
from tests.spark.twins import assert_same_change, small_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
SOURCE_F = pl.col("source").struct.field("f")


def _shifted_by_the_clock(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = pl.DataFrame(batch).with_columns(pl.col(ROW) + time.time_ns() // 1000)
        yield from rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(batch.schema).to_batches()


def assert_nothing_is_left(path: Path) -> None:
    """What was stored between the steps of a merge is gone."""
    assert not list(path.glob(f"*{SUFFIX}"))


@pytest.mark.sweep
def test_keys_in_several_buckets_match_as_here(spark: SparkSession, tmp_path: Path) -> None:
    path, twin = tmp_path / "t", tmp_path / "u"
    rows = written(path)
    shutil.copytree(path, twin)
    source = changes(rows)
    df = to_spark(spark, source, tmp_path / "raw")
    in_columns = {"matched_if": F.col("f") > F.col("source.f"), "update": {"f": F.col("source.f")}}
    here = {"matched_if": pl.col("f") > SOURCE_F, "update": {"f": SOURCE_F}}
    insert = {ROW: "source.row", "a": 100_000, "s": "'put'"}
    merges: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({"on": ["a", "s"], "duplicates": "insert"}, {}, {}),  # keys with nulls, most rows are new
        ({"on": ROW, "delete_if": "source.f >= 0.25 AND s = 'key 3'"}, in_columns, here),
        ({"on": ROW, "when_matched": "ignore", "not_matched_if": "source.f > 10", "insert": insert}, {}, {}),
    ]
    by_spark, local = bridge.open_table(spark, path), qbeast.open_table(twin)
    for request, columns, expressions in merges:
        with small_tasks(), resized(bucket_bytes=20_000):
            result = by_spark.merge(df, **request, **columns)
            expected = local.merge(source, **request, **expressions)
        assert_same_change(path, result, twin, expected)
        assert_nothing_is_left(path)
    assert result.new_revision
    history = [qbeast.open_table(item).history(1)["metrics"][0] for item in (path, twin)]
    counted = [
        {key: value for key, value in item.items() if "Rows" in key or "Files" in key} for item in history
    ]
    assert counted[0] == counted[1]


@pytest.mark.sweep
def test_merge_adds_columns_and_may_omit_some(spark: SparkSession, tmp_path: Path) -> None:
    path, twin = tmp_path / "t", tmp_path / "u"
    source = changes(written(path)).drop("f").with_columns(pl.format("of {}", ROW).alias("note"))
    shutil.copytree(path, twin)
    df = to_spark(spark, source, tmp_path / "raw")
    table = bridge.open_table(spark, path)
    with pytest.raises(qbeast.SchemaMismatchError, match='schema_mode="merge"'):
        table.merge(df, ROW)
    with small_tasks():
        result = table.merge(df, ROW, schema_mode="merge")
        expected = qbeast.open_table(twin).merge(source, ROW, schema_mode="merge")
    assert_same_change(path, result, twin, expected)
    assert table.columns[-1] == "note"
    assert min(result.rows_updated, result.rows_inserted) > 0


def test_invalid_source_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = written(path)
    df = to_spark(spark, changes(rows), tmp_path / "raw")
    table = bridge.open_table(spark, path)
    with pytest.raises(qbeast.SchemaMismatchError, match="does not fit"):
        table.merge(df.select(ROW, "a"), ROW)
    with pytest.raises(qbeast.InvalidInputError, match="no such column"):
        table.merge(df, "missing")
    with pytest.raises(qbeast.InvalidInputError, match=r"no such column: .source\.b."):
        table.merge(df, ROW, matched_if=F.col("source.b") > 1)
    with pytest.raises(qbeast.InvalidInputError, match="no equivalent in Polars"):
        table.merge(df, ROW, update={"f": F.col("source.f") + 1})
    assert table.version == qbeast.open_table(path).version == 1
    assert_nothing_is_left(path)


@pytest.mark.sweep
def test_changing_source_raises_unless_persisted(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    df = to_spark(spark, changes(written(path)), tmp_path / "raw")
    table = bridge.open_table(spark, path)
    changing = df.mapInArrow(_shifted_by_the_clock, df.schema)
    with pytest.raises(qbeast.InputChangedError, match=r"df\.persist\(\)"):
        table.merge(changing, ROW)
    assert qbeast.open_table(path).version == 1
    assert_nothing_is_left(path)
    assert table.merge(changing.persist(), ROW).rows_inserted > 0


@pytest.mark.sweep
def test_merge_sees_commits_of_other_writers(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = written(path)
    new = rows.head(3).with_columns(pl.lit(-1.0).alias("f"), pl.col(ROW) + 50_000)
    df = to_spark(spark, new, tmp_path / "raw", parts=1)
    landed = new.with_columns(pl.lit(7.0).alias("f"))
    with landing_first(lambda: qbeast.write_table(landed, path, mode="append")):
        result = bridge.open_table(spark, path).merge(df, ROW)
    assert (result.rows_updated, result.rows_inserted) == (3, 0)
    assert_same_rows(qbeast.read_table(path), pl.concat([rows, new]))
    assert_nothing_is_left(path)


@pytest.mark.sweep
def test_stream_batches_are_merged_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = written(path)
    frames = [
        rows.slice(10 * number, 20).with_columns(pl.lit(float(number)).alias("f"), pl.col(ROW) + 390)
        for number in range(2)
    ]
    raw = tmp_path / "raw"
    raw.mkdir()
    for number, frame in enumerate(frames):
        frame.write_parquet(raw / f"{number}.parquet")
        os.utime(raw / f"{number}.parquet", (number * 100, number * 100))  # the order in which they arrive

    def upsert(batch: DataFrame, number: int) -> None:
        for _ in range(2):  # as if the answer of the first had been lost
            bridge.open_table(spark, path).merge(batch, ROW, txn=("upserts", number))

    arriving = spark.readStream.schema(spark.read.parquet(str(raw)).schema).option("maxFilesPerTrigger", 1)
    stream = arriving.parquet(str(raw)).writeStream.foreachBatch(upsert)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination()
    assert qbeast.open_table(path).history(3)["operation"].to_list() == ["MERGE", "MERGE", "WRITE"]
    expected = rows
    for frame in frames:
        expected = pl.concat([expected.join(frame.select(ROW), on=ROW, how="anti"), frame])
    assert_same_rows(qbeast.read_table(path), expected)


@pytest.mark.sweep
def test_columns_may_have_internal_names(spark: SparkSession, tmp_path: Path) -> None:
    path, twin = tmp_path / "t", tmp_path / "u"
    names = ["__qbeast_file", "__qbeast_source_number", "rows", "drawn"]
    rows = pl.DataFrame({name: range(300) for name in names}).with_columns(pl.col(names[1]) * 7 % 301)
    bridge.write_table(to_spark(spark, rows, tmp_path / "raw"), path, columns=names[:2], cube_size=50)
    shutil.copytree(path, twin)
    source = rows.with_columns(pl.col(names[0]) + 200, pl.lit(5).alias("drawn"))
    bridge.open_table(spark, path).merge(to_spark(spark, source, tmp_path / "more"), names[0])
    qbeast.open_table(twin).merge(source, names[0])
    assert_same_rows(qbeast.read_table(path), qbeast.read_table(twin), names[0])
    assert qbeast.read_table(path).height == 500
