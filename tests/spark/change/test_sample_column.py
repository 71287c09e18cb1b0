"""The sample column on Spark: executors write it as this process does, and Spark SQL reads samples by it."""

from __future__ import annotations

import contextlib
import io
import math
from typing import TYPE_CHECKING

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, given, settings

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files
from tests.spark.frames import to_spark
from tests.spark.twins import assert_same_change, small_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

FRACTIONS = (0.01, 0.3, 0.5)
ROWS = pl.DataFrame({ROW: range(600)}).with_columns(a=pl.col(ROW) * 31 % 211)
few = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate], deadline=None)


def check_spark(spark: SparkSession, path: Path, rows: pl.DataFrame, indexed: list[str]) -> None:
    """Assert that Spark SQL reads samples by the column, and that the bridge reads exact ones."""
    names = DeltaTable(path).file_uris()
    if not names:  # Spark infers no schema
        return
    files = spark.read.parquet(*names)
    for fraction in FRACTIONS:
        found = sorted(row[ROW] for row in files.where(f"sample < {fraction}").select(ROW).collect())
        assert found == sampled(rows, indexed, math.ceil(fraction * 65536) / 65536)[ROW].sort().to_list()
        for sample in (fraction, (fraction / 3, fraction)):
            exact = bridge.read_table(spark, path, sample=sample).select(ROW).collect()
            assert sorted(row[ROW] for row in exact) == sampled(rows, indexed, sample)[ROW].sort().to_list()


@examples(1, sweep=10, parent=few)
@given(case=cases(most_frames=2).map(with_key_in_rows))
def test_executors_write_the_column_of_random_tables(spark: SparkSession, case: Case) -> None:
    with folder() as path, small_files():
        for number, frame in enumerate(case.frames):
            rows = to_spark(spark, frame, path.parent / f"raw-{number}")
            if number:
                bridge.write_table(rows, path, mode="append")
            else:
                bridge.write_table(rows, path, case.columns, cube_size=20, sample_column="sample")
        check_invariants(path)
        check_spark(spark, path, case.rows, case.indexed)


@pytest.mark.sweep
def test_changes_by_executors_compute_the_column(spark: SparkSession, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    wrong = ROWS.with_columns(sample=pl.lit(0.25, pl.Float32))
    with small_tasks():
        for path in (here, there):
            qbeast.write_table(ROWS, path, [ROW, "a"], cube_size=20)
        table, local = bridge.open_table(spark, here), qbeast.open_table(there)
        by_spark, ours = table.add_sample_column(), local.add_sample_column()
        assert (by_spark.changed, by_spark.version) == (ours.changed, ours.version)
        check_invariants(here)
        source = wrong.head(40).with_columns(pl.col(ROW) + 580, a=pl.col("a") + 1000)
        df = to_spark(spark, source, tmp_path / "source")
        result = table.merge(df, ROW)
        assert_same_change(here, result, there, local.merge(source, ROW))
        result = table.update("row < 30", {"a": "a + 5000"})
        assert_same_change(here, result, there, local.update("row < 30", {"a": "a + 5000"}))
        more = wrong.with_columns(pl.col(ROW) + 1000)
        to_spark(spark, more, tmp_path / "more").write.format("qbeast").mode("append").save(str(here))
        to_spark(spark, more.drop("sample").with_columns(pl.col(ROW) + 1000), tmp_path / "less").write.format(
            "qbeast"
        ).mode("append").save(str(here))
        table.optimize(full=True)
    check_invariants(here)
    rows = qbeast.read_table(here)
    assert rows.height == 620 + 1200
    check_spark(spark, here, rows.drop("sample"), [ROW, "a"])


@pytest.mark.sweep
def test_rows_of_other_writers_are_hashed(spark: SparkSession, tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path / "t", [ROW, "a"], cube_size=20, sample_column="sample")
    others = ROWS.with_columns(pl.col(ROW) + 1000, sample=pl.lit(0.999, pl.Float32))
    write_deltalake(tmp_path / "t", others, mode="append")
    every = pl.concat([ROWS, others.drop("sample")])
    for fraction in FRACTIONS:
        found = pl.DataFrame(bridge.read_table(spark, tmp_path / "t", sample=fraction).toArrow()).drop(
            "sample"
        )
        assert_same_rows(found, sampled(every, [ROW, "a"], fraction))


def test_sample_column_is_pushed_down(spark: SparkSession, tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path / "t", [ROW, "a"], sample_column="sample")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        bridge.read_table(spark, tmp_path / "t", sample=0.25).explain()
    assert "PushedFilters: [IsNotNull(sample), LessThanOrEqual(sample,0.24998474)]" in printed.getvalue()
