"""Tasks that fail leave nothing of the change data feed; tests/spark/change/test_contract.py reads others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.table.dml import change as feed
from tests.helpers.change_feed import enable_feed
from tests.helpers.changes import written

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def table_with_feed(path: Path) -> pl.DataFrame:
    written(path)
    enable_feed(path)
    return qbeast.read_table(path)


@pytest.mark.sweep
def test_failed_tasks_leave_no_feed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    before = table_with_feed(path)
    files, version = set(path.rglob("*.parquet")), qbeast.open_table(path).version
    scans_of = feed.scans_of
    last = qbeast.open_table(path).files().height - 1

    def with_a_missing_file(reader: Any, scan: Any, numbers: Any) -> Any:
        scans = scans_of(reader, scan, numbers)
        assert numbers[-1] == last
        return [*scans[:-1], replace(scans[-1], path="missing.parquet")]

    monkeypatch.setattr(feed, "scans_of", with_a_missing_file)
    monkeypatch.setattr(feed, "_ROWS_PER_TASK", 1)
    with pytest.raises(qbeast.StorageError, match=r"missing\.parquet"):
        bridge.open_table(spark, path).update(where=True, set={"f": "f + 1"})
    assert set(path.rglob("*.parquet")) == files
    assert qbeast.open_table(path).version == version
    assert qbeast.read_table(path).equals(before)
