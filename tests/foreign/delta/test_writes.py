"""Spark's own Delta writer changes a table of ours: its rows are read right, kept by an optimize, and ours stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from tests.foreign.delta.delta import INDEXED, Delta, assert_right, rows_from, to_spark
from tests.helpers.tables import assert_same_rows, small_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

VECTORS = "alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'true')"


@pytest.fixture(params=["copies", "deletion vectors"])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Delta:
    """A table of ours, in many files, that Spark changes by rewriting files or by deletion vectors."""
    actual = Delta(spark, tmp_path / "t")
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(rows_from(0), actual.path, columns=INDEXED, cube_size=40)
    if request.param == "deletion vectors":
        actual.sql(VECTORS)
    return actual


def insert(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    more = rows_from(1000)
    table.append(more)
    return pl.concat([model, more])


def insert_far(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    """Rows outside of what the index covers."""
    table.sql(
        "insert into {t} values (-1000000, 1e9, 'zz', 'far'), (1000000, double('NaN'), null, 'none'), "
        "(null, double('-0.0'), '', '')"
    )
    far = {"row": [-1000000, 1000000, None], "a": [1e9, float("nan"), -0.0]}
    texts = {"b": ["zz", None, ""], "note": ["far", "none", ""]}
    return pl.concat([model, pl.DataFrame(far | texts, schema=model.schema)])


def delete(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    table.sql("delete from {t} where a < 20")
    return model.filter((pl.col("a") < 20).fill_null(value=False).not_())


def delete_one(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    table.sql("delete from {t} where row = 7")
    return model.filter(pl.col("row").ne_missing(7))


def update(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    """Values of indexed columns change: the rows' places and weights do too."""
    table.sql("update {t} set a = a * 3 + 1, b = concat(b, '!') where b = 'key 3'")
    those = pl.col("b") == "key 3"
    return model.with_columns(
        a=pl.when(those).then(pl.col("a") * 3 + 1).otherwise("a"),
        b=pl.when(those).then(pl.col("b") + "!").otherwise("b"),
    )


def merge(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    source = rows_from(300, 200).with_columns(a=pl.lit(-5.5))
    to_spark(table.spark, source).createOrReplaceTempView("source")
    table.sql(
        "merge into {t} as t using source as s on t.row = s.row "
        "when matched and s.b = 'key 1' then delete when matched then update set * when not matched then insert *"
    )
    there, gone = model["row"].implode(), source.filter(b="key 1")["row"].implode()
    new = source.filter(~pl.col("row").is_in(there) | (pl.col("b") != "key 1"))
    old = model.filter(~pl.col("row").is_in(source["row"].implode()))
    assert gone.explode().len() > 0
    return pl.concat([old, new])


def overwrite_part(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    more = rows_from(5000, 50).with_columns(b=pl.lit("key 5"))
    writer = to_spark(table.spark, more).write.format("delta").mode("overwrite")
    writer.option("replaceWhere", "b = 'key 5'").save(str(table.path))
    return pl.concat([model.filter(pl.col("b").ne_missing("key 5")), more])


def overwrite(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    more = rows_from(9000, len(model) // 2)
    to_spark(table.spark, more).write.format("delta").mode("overwrite").save(str(table.path))
    return more


def compact(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    table.sql("optimize {t}")
    return model


def z_order(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    table.sql("optimize {t} zorder by (a, row)")
    return model


def purge(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    table.sql("reorg table {t} apply (purge)")
    return model


def append_ours(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    more = rows_from(20_000, 150)
    qbeast.write_table(more, table.path, mode="append")
    return pl.concat([model, more])


def optimize_ours(table: Delta, model: pl.DataFrame) -> pl.DataFrame:
    qbeast.open_table(table.path).optimize()
    return model


def take(table: Delta, steps: list[Callable[[Delta, pl.DataFrame], pl.DataFrame]]) -> pl.DataFrame:
    model = rows_from(0)
    for step in steps:
        model = step(table, model)
        assert_right(table, model)
    return model


@pytest.mark.parametrize(
    "steps",
    [
        [insert, insert_far],
        [delete, append_ours, delete_one],
        [update],
        [merge, delete_one],
        [overwrite_part],
        [overwrite],
        [delete_one, purge],
        [compact, delete],
        [z_order],
    ],
    ids=lambda steps: " ".join(step.__name__ for step in steps),
)
def test_optimize_indexes_changes_by_spark(
    table: Delta, steps: list[Callable[[Delta, pl.DataFrame], pl.DataFrame]]
) -> None:
    model = take(table, steps)
    opened = qbeast.open_table(table.path)
    opened.optimize()
    assert_right(table, model)
    assert opened.rows().files()["revision_id"].null_count() == 0
    assert not opened.optimize().committed
    more = append_ours(table, model)
    assert_right(table, delete(table, more))


def test_spark_deletion_vectors_always_hide_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Vectors in files and vectors again for the same files, restored, appended to, and rewritten."""
    table = Delta(spark, tmp_path)
    with small_files(file_rows=200):
        qbeast.write_table(rows_from(0), tmp_path, columns=INDEXED, cube_size=100)
    table.sql(VECTORS)
    model = take(table, [delete_one, delete, append_ours, update])
    adds = qbeast.open_table(tmp_path).optimize(dry_run=True).plan
    assert "deletion vector" in adds["reason"].to_list()
    version = qbeast.open_table(tmp_path).version
    optimize_ours(table, model)
    assert (
        "deletion vector" not in qbeast.open_table(tmp_path).optimize(dry_run=True).plan["reason"].to_list()
    )
    assert_right(table, model)
    qbeast.open_table(tmp_path).restore(version)
    assert_right(table, model)
    table.sql("restore table {t} to version as of 1")
    assert_right(table, rows_from(0))
    assert_same_rows(qbeast.read_table(tmp_path, version=version), model)


@pytest.mark.parametrize("writer", ["spark", "qbeast"])
def test_spark_table_is_converted_and_shared(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    table = Delta(spark, tmp_path / "t")
    table.append(rows_from(0))
    table.sql(VECTORS)
    model = delete(table, rows_from(0))
    qbeast.convert_table(table.path, INDEXED, cube_size=50)
    assert_right(table, model)
    steps = [insert, append_ours] if writer == "spark" else [append_ours, insert]
    for step in [*steps, delete_one, optimize_ours, update]:
        model = step(table, model)
        assert_right(table, model)


def test_spark_stream_gets_appended_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    path, seen = tmp_path / "t", tmp_path / "seen"
    qbeast.write_table(rows_from(0), path, columns=INDEXED, cube_size=40)

    def catch_up() -> None:
        stream = spark.readStream.format("delta").load(str(path)).writeStream.format("delta")
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(
            str(seen)
        ).awaitTermination()

    catch_up()
    opened = qbeast.open_table(path)
    assert opened.optimize(full=True).committed
    opened.set_properties({"owner": "us"})
    catch_up()
    qbeast.write_table(rows_from(400), path, mode="append")
    catch_up()
    assert_same_rows(Delta(spark, seen).read(), rows_from(0, 800))
