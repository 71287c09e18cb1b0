"""A table is checked by Spark as it is here: the same report, of a spoiled table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.changes import written
from tests.helpers.damage import other_hidden_weight, rewritten, spoil
from tests.helpers.strategies import ROW

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def test_report_equals_a_check_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path)
    spoil(path, rewritten(other_hidden_weight), indexed=[ROW, "a", "s"])
    steps: list[qbeast.Progress] = []
    actual, expected = (
        bridge.open_table(spark, path).check(progress=steps.append),
        qbeast.open_table(path).check(),
    )
    assert not actual.ok
    assert actual.faults.equals(expected.faults)
    assert [(step.files_done, step.rows) for step in steps] == [
        (done + 1, 400) for done in range(actual.files)
    ]
