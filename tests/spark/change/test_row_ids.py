"""Rows that Spark rewrites keep their ids, computed by the protocol from commits and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.changes import ROW, changes, spread
from tests.helpers.row_ids import check_log, commits, highest, row_ids, tracked
from tests.spark.twins import small_tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")]


def test_rows_that_spark_rewrites_keep_ids(spark: SparkSession, tmp_path: Path) -> None:
    path, rows = tmp_path / "t", spread(300)
    tracked(path, rows)
    qbeast.convert_table(path, columns=[ROW, "a", "s"])
    source = changes(rows).unique(ROW, keep="first", maintain_order=True)
    table = bridge.open_table(spark, path)
    steps: list[Callable[[], object]] = [
        lambda: bridge.write_table(spark.createDataFrame(spread(50, 1000).to_arrow()), path, mode="append"),
        table.optimize,
        lambda: table.update("a % 3 = 1", {"f": "0.5"}),
        lambda: table.update("a % 4 = 1", {"a": "a + 1000"}),
        lambda: table.delete("a % 5 = 2"),
        lambda: table.merge(spark.createDataFrame(source.to_arrow()), on=ROW),
        lambda: table.optimize(full=True),
    ]
    for step in steps:
        old_rows = {row[ROW]: row for row in qbeast.read_table(path).fill_nan(None).iter_rows(named=True)}
        old, mark = row_ids(path, ROW), highest(path)
        with small_tasks():
            step()
        check_log(path)
        assert commits(path)[-1][0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}
        version = len(commits(path)) - 1
        new_rows = {row[ROW]: row for row in qbeast.read_table(path).fill_nan(None).iter_rows(named=True)}
        new = row_ids(path, ROW)
        assert new.keys() == new_rows.keys()
        for key, (row_id, changed_in) in new.items():
            if key not in old:
                assert (row_id > mark, changed_in) == (True, version)
                continue
            assert row_id == old[key][0]
            assert changed_in in (old[key][1], version)
            assert (changed_in == version) or new_rows[key] == old_rows[key]
    # The last step copied rows alone.
    assert new == old
    assert qbeast.open_table(path).check().ok
    assert len(new) == pl.scan_delta(str(path)).select(pl.len()).collect().item()
