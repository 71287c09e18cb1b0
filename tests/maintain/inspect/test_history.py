"""The history is a frame of fixed columns, whatever commits say of themselves, and whoever wrote them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.table.inspect.history import history_frame

COLUMNS = [
    *("version", "timestamp", "operation", "summary"),
    *("rows_written", "rows_inserted", "rows_updated", "rows_deleted"),
    *("files_added", "files_removed", "bytes_added", "metrics", "parameters", "metadata", "engine"),
    *("read_version", "is_blind_append", "isolation_level", "txn_id"),
]
ROWS = pl.DataFrame({"id": range(500)})


@pytest.fixture
def table(tmp_path: Path) -> qbeast.Table:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    qbeast.write_table(ROWS.with_columns(pl.col("id") + 500), tmp_path / "t", mode="append")
    table = qbeast.open_table(tmp_path / "t")
    table.delete("id < 100", commit_metadata={"why": "too small"})
    return table


def test_history_has_time_operation_and_counts(table: qbeast.Table) -> None:
    actual = table.history()
    assert actual.columns == COLUMNS
    assert actual["operation"].to_list() == ["DELETE", "WRITE", "CREATE TABLE AS SELECT"]
    assert actual["timestamp"].is_sorted(descending=True)
    age = datetime.now(UTC) - actual["timestamp"][0]
    assert 0 <= age.total_seconds() < 600
    metrics = actual["metrics"].struct.unnest()
    assert metrics["numOutputRows"].to_list() == [None, 500, 500]
    assert metrics["numDeletedRows"].sum() == 100
    assert actual["rows_deleted"].to_list() == [100, None, None]
    assert actual["rows_written"].to_list() == [None, 500, 500]
    assert actual["files_removed"].to_list() == [1, None, None]
    assert actual["bytes_added"].min() > 0
    assert table.versions().drop("readable").equals(actual.select("version", "timestamp", "operation"))
    assert actual["summary"].to_list() == [
        "100 deleted, +1 -1 files",
        "500 rows, +1 files",
        "500 rows, +1 files",
    ]
    assert "100 deleted" in str(actual.select("version", "operation", "summary"))
    assert actual["metadata"].to_list() == [{"why": "too small"}, None, None]
    assert actual["engine"].unique().to_list() == [f"qbeast/{qbeast.__version__}"]
    assert actual["read_version"].to_list() == [1, 0, None]
    assert actual["is_blind_append"].to_list() == [False, True, False]


@pytest.mark.parametrize("width", [20, 80])
def test_history_prints_a_line_a_row(table: qbeast.Table, width: int) -> None:
    odd = {"version": 7, "operation": "a\nb" * 40, "operationMetrics": {"numFiles": "2"}, "other": "x" * 99}
    for actual in (table.history(), table.history().head(2), history_frame([odd])):
        with pl.Config(
            tbl_width_chars=width, tbl_formatting="ASCII_MARKDOWN", tbl_hide_column_data_types=True
        ):
            lines = str(actual).splitlines()
        assert repr(actual).startswith(f"shape: {actual.shape}, ")
        assert [line.split()[1] for line in lines[3:]] == [str(number) for number in actual["version"]]
        summaries = ["null" if text is None else text for text in actual["summary"]]
        assert all(text in line for text, line in zip(summaries, lines[3:], strict=True))
        assert actual._repr_html_().count("<tr>") == 2 + actual.height
        assert "isolation_level" not in actual._repr_html_()
    assert str(table.history().select("engine")) == str(pl.DataFrame(table.history()).select("engine"))


def test_history_frame_can_be_written(table: qbeast.Table, tmp_path: Path) -> None:
    for limit in (1, 2, None):
        actual = table.history(limit)
        actual.write_parquet(tmp_path / "history.parquet")
        assert pl.read_parquet(tmp_path / "history.parquet").equals(actual)
    assert qbeast.open_table(table.uri, version=0).history()["metadata"].to_list() == [None]
    assert table.history(0).columns == COLUMNS


def test_other_writers_are_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    qbeast.convert_table(tmp_path / "t", columns=["id"])
    actual = qbeast.open_table(tmp_path / "t").history()
    assert actual["version"].to_list() == [1, 0]
    assert actual["engine"][1].startswith("delta-rs")


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"timestamp": 2**62, "operation": None, "operationMetrics": 7, "operationParameters": [1]},
        {"operationMetrics": {"a": "1", "b": None, "c": {"d": [1]}, "e": "x" * 9, "f": "9" * 40}},
        {"isBlindAppend": "no", "readVersion": "3", "engineInfo": {"name": "x"}, "txnId": 5, "extra": [None]},
    ],
)
def test_any_provenance_becomes_a_row(report: dict[str, Any]) -> None:
    usual = {"version": 0, "timestamp": 5, "operation": "WRITE", "operationMetrics": {"a": "3"}}
    actual = history_frame([{**report, "version": 1}, usual])
    assert actual.columns == COLUMNS
    assert actual.height == 2
    assert actual["timestamp"].to_list()[1] == datetime.fromtimestamp(0.005, UTC)
    assert actual["metrics"].struct.field("a").to_list()[1] == 3


def test_non_numeric_metrics_stay_text() -> None:
    reports = [{"version": 0, "operationMetrics": {"a": "1", "b": "1.5", "c": "2"}}, {"version": 1}]
    assert history_frame(reports)["metrics"].to_list() == [{"a": 1, "b": "1.5", "c": 2}, None]


@pytest.mark.parametrize("limit", [-1, 1.5, True, "2"])
def test_invalid_limit_raises(table: qbeast.Table, limit: Any) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="whole number") as caught:
        table.history(limit)
    assert caught.value.argument == "limit"
