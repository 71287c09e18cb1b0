"""Spark's own Delta writer changes a table of ours: its rows are read right, kept by an optimize, and ours stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from tests.integration.tables import small_files
from tests.interop.delta import INDEXED, Delta, assert_right, rows_from, to_spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

VECTORS = "alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'true')"


@pytest.fixture(params=["copies", "deletion vectors"])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Delta:
    """A table of ours, in many files, that Spark changes by rewriting files or by deletion vectors."""
    found = Delta(spark, tmp_path / "t")
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(rows_from(0), found.path, columns=INDEXED, cube_size=40)
    if request.param == "deletion vectors":
        found.sql(VECTORS)
    return found


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


def take(table: Delta, steps: list[Callable[[Delta, pl.DataFrame], pl.DataFrame]]) -> pl.DataFrame:
    model = rows_from(0)
    for step in steps:
        model = step(table, model)
        assert_right(table, model)
    return model


@pytest.mark.parametrize(
    "steps",
    [
        [delete, append_ours, delete_one],
        [update],
        [merge, delete_one],
        [overwrite_part],
        [overwrite],
        [delete_one, purge],
    ],
    ids=lambda steps: " ".join(step.__name__ for step in steps),
)
def test_what_spark_did_is_read_and_an_optimize_indexes_it(
    table: Delta, steps: list[Callable[[Delta, pl.DataFrame], pl.DataFrame]]
) -> None:
    check_steps(table, steps)


def check_steps(table: Delta, steps: list[Callable[[Delta, pl.DataFrame], pl.DataFrame]]) -> None:
    model = take(table, steps)
    opened = qbeast.open_table(table.path)
    opened.optimize()
    assert_right(table, model)
    assert opened.files()["revision_id"].null_count() == 0
    assert not opened.optimize().optimized
    more = append_ours(table, model)
    assert_right(table, delete(table, more))


@pytest.mark.parametrize("table", ["copies"], indirect=True)
@pytest.mark.parametrize(
    "steps", [[compact, delete], [z_order]], ids=lambda steps: " ".join(step.__name__ for step in steps)
)
def test_what_spark_reorganised_is_read_and_indexed_again(
    table: Delta, steps: list[Callable[[Delta, pl.DataFrame], pl.DataFrame]]
) -> None:
    check_steps(table, steps)
