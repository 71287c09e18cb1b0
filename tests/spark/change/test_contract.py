"""Spark passes every scenario of tests/contract, and reads the rows and samples of the tables that come of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import qbeast_spark_bridge as bridge
from tests.contract.scenarios import SCENARIOS, check
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled
from tests.spark.executors import Executors
from tests.spark.frames import of_spark
from tests.spark.twins import small_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


# The other scenarios do the same on executors, or test_parity.py does.
DEAR = {
    "write",
    "append beyond the range",
    "overwrite",
    "sampling key",
    "delete",
    "change feed",
    "change feed of merge",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.sweep if name in DEAR else ()) for name in SCENARIOS]
)
def test_spark_passes_the_scenario(spark: SparkSession, name: str, tmp_path: Path) -> None:
    scenario, path = SCENARIOS[name], tmp_path / "t"
    with small_tasks():
        expected = scenario.run(Executors(spark, tmp_path / "raw"), path)
    check(scenario, path, expected)
    assert_same_rows(of_spark(bridge.read_table(spark, path)), expected, ROW)
    if scenario.is_indexed:
        found = of_spark(bridge.read_table(spark, path, sample=0.3))
        assert_same_rows(found, sampled(expected, [*scenario.sampled_by], 0.3), ROW)
