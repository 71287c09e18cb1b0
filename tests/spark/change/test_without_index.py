"""Spark samples tables without an index as Polars does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.plan.weights import sample_to_weights
from tests.helpers.strategies import ROW
from tests.spark.frames import INDEXED, every_type

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings(
    "ignore::qbeast.DesignEffectWarning", "ignore::qbeast.UnindexedSampleWarning"
)


def rows_of(df: DataFrame) -> list[int]:
    return sorted(row[0] for row in df.select(ROW).collect())


@pytest.mark.parametrize(
    "by",
    [
        pytest.param(["x.y"], marks=pytest.mark.sweep),
        ["flag", "bytes", "`day`"],
        pytest.param([*INDEXED], marks=pytest.mark.sweep),
    ],
    ids=len,
)
def test_samples_follow_the_hash_of_spark(spark: SparkSession, by: list[str], tmp_path: Path) -> None:
    bridge.register(spark)
    rows, names = every_type(), ", ".join("`" + name.replace("`", "``") + "`" for name in by)
    rows.write_delta(tmp_path / "t")
    last = sample_to_weights(0.3).last
    whole = bridge.read_table(spark, tmp_path / "t")
    assert rows_of(whole) == list(range(rows.height))
    expected = rows_of(whole.where(f"hash({names}) <= {last}"))
    assert qbeast.read_table(tmp_path / "t", sample=0.3, sample_by=by)[ROW].sort().to_list() == expected
    assert rows_of(bridge.read_table(spark, tmp_path / "t", sample=0.3, sample_by=by)) == expected
    source = spark.read.format("qbeast").option("sample", "0.3").option("sampleBy", json.dumps(by))
    assert rows_of(source.load(str(tmp_path / "t"))) == expected
    with pytest.raises(qbeast.InvalidInputError, match="sample_by"):
        bridge.read_table(spark, tmp_path / "t", sample=0.3)
    qbeast.convert_table(tmp_path / "t", columns=[ROW])
    qbeast.open_table(tmp_path / "t").optimize()
    assert rows_of(bridge.read_table(spark, tmp_path / "t", sample=0.3, sample_by=by)) == expected


def test_estimate_of_table_without_index_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    every_type().write_delta(tmp_path)
    answer = bridge.estimate(spark, tmp_path, {"n": f"sum({ROW})"}, sample=0.2, sample_by=["whole"])
    assert answer.frame.select("n", "n_low").row(0) == (sum(range(600)), sum(range(600)))
