"""Tasks that fail leave nothing of the change data feed; tests/spark/change/test_contract.py reads others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.change_feed import enable_feed
from tests.helpers.changes import written
from tests.helpers.small_files import resized

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def table_with_feed(path: Path) -> pl.DataFrame:
    written(path)
    enable_feed(path)
    return qbeast.read_table(path)


@pytest.mark.sweep
def test_failed_tasks_leave_no_feed(spark: SparkSession, tmp_path: Path) -> None:
    path, aside = tmp_path / "t", tmp_path / "aside"
    before = table_with_feed(path)
    table = qbeast.open_table(path)
    files, version = set(path.rglob("*.parquet")), table.version
    missing = path / table.rows().files()["path"][-1]

    def take_away(step: qbeast.Progress) -> None:
        """Take a file of the last task away once the new files are written, when the feed is not."""
        if step.stage == "write" and step.files_done == step.files_total > 0:
            missing.rename(aside)

    one_file_each = resized(feed_task_rows=1)
    with one_file_each, pytest.raises(qbeast.StorageError, match=missing.name):
        bridge.open_table(spark, path).update(where=True, set={"a": 200}, progress=take_away)
    assert aside.exists()
    aside.rename(missing)
    assert set(path.rglob("*.parquet")) == files
    assert qbeast.open_table(path).version == version
    assert qbeast.read_table(path).equals(before)
