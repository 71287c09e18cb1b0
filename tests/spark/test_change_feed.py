"""Changes on executors write the change data feed: against plain Polars, read by deltalake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.table.dml import feed
from tests.helpers.change_feed import change_files, check_feed, enable_feed, feed_actions
from tests.helpers.changes import spread, written
from tests.helpers.strategies import ROW
from tests.spark.frames import to_spark
from tests.spark.twins import small_tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def table_with_feed(path: Path) -> pl.DataFrame:
    written(path)
    enable_feed(path)
    return qbeast.read_table(path)


def changed_keys(step: int, before: pl.DataFrame, source: pl.DataFrame) -> dict[str, pl.Series]:
    """Return the keys of the rows that a step changes, by kind."""
    if step == 0:
        return {"delete": before.filter(pl.col("a") % 5 == 0)[ROW]}
    if step == 1:
        return {"update": before.filter(pl.col("a") < 50)[ROW]}
    matched = pl.col(ROW).is_in(before[ROW].implode())
    lost = (pl.col("a") > 200).fill_null(value=False)
    return {
        "delete": source.filter(matched & lost)[ROW],
        "update": source.filter(matched & ~lost)[ROW],
        "insert": source.filter(~matched)[ROW],
    }


def test_changes_of_executors_are_in_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    before = table_with_feed(path)
    source = pl.concat([before.filter(pl.col(ROW) % 7 == 1).with_columns(f=pl.lit(0.25)), spread(40, 9000)])
    df = to_spark(spark, source, tmp_path / "raw")
    steps: list[Callable[[], qbeast.ChangeResult]] = [
        lambda: bridge.delete(spark, path, "a % 5 = 0"),
        lambda: bridge.update(spark, path, "a < 50", {"f": "f + 1", ROW: f"{ROW} * 1"}),
        lambda: bridge.merge(df, path, on=ROW, delete_if="source.a > 200"),
    ]
    for number, change in enumerate(steps):
        with small_tasks():
            version = change().version
        after = qbeast.read_table(path)
        check_feed(path, version, before, after, changed_keys(number, before, source))
        before = after
    versions = range(qbeast.open_table(path).version + 1)
    named = {action["path"] for version in versions for action in feed_actions(path, version)}
    assert change_files(path) == named


@pytest.mark.connect
def test_failed_tasks_leave_no_feed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    before = table_with_feed(path)
    files, version = set(path.rglob("*.parquet")), qbeast.open_table(path).version
    file_parts = feed.file_parts
    last = qbeast.open_table(path).files().height - 1

    def with_a_missing_file(reader: Any, scan: Any, number: int) -> Any:
        parts = file_parts(reader, scan, number)
        return type(parts)(whole=("missing.parquet",)) if number == last else parts

    monkeypatch.setattr(feed, "file_parts", with_a_missing_file)
    monkeypatch.setattr(feed, "_ROWS_PER_TASK", 1)
    with pytest.raises(qbeast.StorageError, match=r"missing\.parquet"):
        bridge.update(spark, path, where=True, set={"f": "f + 1"})
    assert set(path.rglob("*.parquet")) == files
    assert qbeast.open_table(path).version == version
    assert qbeast.read_table(path).equals(before)
