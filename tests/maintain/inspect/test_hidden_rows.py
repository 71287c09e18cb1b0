"""Rows that deletion vectors hide, in what a table shows: reads do not return them, so counts leave them out."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import qbeast

ROWS = pl.DataFrame({"id": range(1000), "x": [i % 7 for i in range(1000)]})
GONE = pl.col("id") % 100 == 0


@pytest.mark.parametrize("columns", [["id"], []])
def test_health_counts_hidden_rows(tmp_path: Path, columns: list[str]) -> None:
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=columns, deletion_vectors=True)
    table = qbeast.open_table(path)
    assert table.metrics().health.hidden_rows == 0
    table.delete(GONE)
    stored = sum(pl.read_parquet(file).height for file in table.rows().files()["path"])
    health = table.metrics().health
    assert health.hidden_rows == stored - pl.read_delta(str(path)).height == 10
    assert health.hidden_share == 0.01
    assert "10 rows (1.0%) are hidden by deletion vectors" in str(health)
    assert not health.needs_optimize
    table.optimize(purge=True)
    assert table.metrics().health.hidden_rows == 0


@pytest.mark.parametrize("columns", [["id"], []])
def test_texts_count_rows_that_reads_return(tmp_path: Path, columns: list[str]) -> None:
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=columns, deletion_vectors=True)
    table = qbeast.open_table(path)
    table.delete(GONE)
    assert "990 rows in 1 files" in repr(table)
    assert "990" in table._repr_html_()
    assert table.rows().files()["has_deletion_vector"].to_list() == [True]
    assert table.count() == pl.read_delta(str(path)).height
