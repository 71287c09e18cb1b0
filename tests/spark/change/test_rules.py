"""Rules of rows on Spark: executors compute and check as this process does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.change_races import check_no_orphans
from tests.spark.frames import to_spark
from tests.write.rules.tables import high_water_mark
from tests.write.rules.visits import complete, rows, table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

COMPUTED = ["ts", "price", "day", "kind", "double"]


@pytest.mark.sweep
def test_executors_compute_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t", ["day", "price", "id"])
    for number in range(2):
        df = to_spark(spark, rows(500), tmp_path / f"raw-{number}")
        bridge.write_table(df.repartition(3), path, mode="append")
    actual = qbeast.read_table(path)
    wanted = pl.concat([complete(rows(500))] * 2).select(COMPUTED)
    assert_frame_equal(actual.select(COMPUTED).sort(COMPUTED), wanted.sort(COMPUTED))
    mark = high_water_mark(path, "id")
    assert actual["id"].n_unique() == 1000
    assert mark is not None
    assert actual["id"].is_between(1, mark).all()
    assert qbeast.open_table(path).check().ok
    qbeast.write_table(rows(5), path, mode="append")
    assert qbeast.read_table(path)["id"].max() == mark + 5


def test_executors_check_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    df = to_spark(spark, rows(100).with_columns(price=pl.col("price") - 3), tmp_path / "raw")
    with pytest.raises(qbeast.ConstraintViolationError, match="'positive', price > 0") as caught:
        bridge.write_table(df, path, mode="append")
    assert caught.value.constraint == "positive"
    assert caught.value.example["price"] <= 0  # type: ignore[operator]
    assert qbeast.read_table(path).is_empty()
    check_no_orphans(path)
