"""Files that are indexed by different columns, on Spark: each is sampled by the columns of its revision."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.mixed_columns import (
    FRACTIONS,
    ROWS,
    check_version,
    columns_of_files,
    files_that_lost_their_place,
    new,
    sampled_by_log,
)
from tests.helpers.races import landing_first
from tests.helpers.strategies import ROW
from tests.spark.frames import to_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")]
MORE = ROWS.with_columns(pl.col(ROW) + 1000)


def numbers(df: Any) -> list[int]:
    return sorted(row[ROW] for row in df.select(ROW).collect())


def check_spark(spark: SparkSession, path: Path, rows: pl.DataFrame) -> None:
    """Assert that both readers of Spark return the rows, and the samples of the log."""
    check_version(path, rows)
    source = spark.read.format("qbeast")
    assert numbers(bridge.read_table(spark, path)) == rows[ROW].sort().to_list()
    parts = [numbers(bridge.read_table(spark, path, sample=ends)) for ends in pairwise(FRACTIONS)]
    assert sorted(number for part in parts for number in part) == rows[ROW].sort().to_list()
    for sample in (0.3, (0.07, 0.85)):
        expected = sampled_by_log(path, rows, sample)
        assert numbers(bridge.read_table(spark, path, sample=sample)) == expected[ROW].sort().to_list()
        text = f"{sample}" if isinstance(sample, float) else f"{sample[0]},{sample[1]}"
        assert numbers(source.option("sample", text).load(str(path))) == expected[ROW].sort().to_list()
        kept = expected.filter(pl.col("b") > 40)[ROW].sort().to_list()
        assert numbers(bridge.read_table(spark, path, sample=sample, where="b > 40")) == kept


@pytest.mark.parametrize("sample_column", [None, "sample"])
def test_samples_follow_columns_of_each_file(
    spark: SparkSession, tmp_path: Path, sample_column: str | None
) -> None:
    path = tmp_path / "t"
    table = new(path, ["a", "s"], sample_column=sample_column)
    table.reindex(["b"])
    table.optimize()
    bridge.write_table(to_spark(spark, MORE, tmp_path / "raw"), path, mode="append")
    assert set(columns_of_files(path)) == {("a", "s"), ("b",)}
    rows = pl.concat([ROWS, MORE])
    if sample_column is not None:
        rows = rows.join(qbeast.read_table(path).select(ROW, sample_column), on=ROW)
    check_spark(spark, path, rows)
    table = table.refresh()
    # Spark cannot read files at such a path: our tasks read all files.
    odd = shutil.copytree(path, tmp_path / "a:[b]")
    for size in (50, 300):
        expected = table.read(where="a < 60", rows=size)[ROW].sort().to_list()
        for place in (path, odd):
            assert numbers(bridge.read_table(spark, place, where="a < 60", rows=size)) == expected
    assert not bridge.read_table(spark, odd).inputFiles()


def test_hidden_weights_of_files_without_index_are_not_used(spark: SparkSession, tmp_path: Path) -> None:
    table = new(tmp_path, ["a"])
    with landing_first(lambda: table.reindex(["b"])), files_that_lost_their_place():
        assert qbeast.write_table(MORE, tmp_path, mode="append").staged_files
    check_spark(spark, tmp_path, pl.concat([ROWS, MORE]))
    assert bridge.open_table(spark, tmp_path).check().ok
