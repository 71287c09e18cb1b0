"""Rules of rows on Spark: executors compute and check as this process does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.change_races import check_no_orphans
from tests.spark.frames import to_spark
from tests.write.rules.visits import rows, table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

COMPUTED = ["ts", "price", "day", "kind", "double"]


def test_executors_check_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    df = to_spark(spark, rows(100).with_columns(price=pl.col("price") - 3), tmp_path / "raw")
    with pytest.raises(qbeast.ConstraintViolationError, match="'positive', price > 0") as caught:
        bridge.write_table(df, path, mode="append")
    assert caught.value.constraint == "positive"
    assert caught.value.example["price"] <= 0  # type: ignore[operator]
    assert qbeast.read_table(path).is_empty()
    check_no_orphans(path)
