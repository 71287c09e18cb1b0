"""All rows of a query come, or its error does; nothing runs on where nobody takes the batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.table.data.frames import query_batches

ROWS = pl.DataFrame({"a": range(50_000)})


@pytest.mark.parametrize("batch_rows", [1000, 20_000, 1 << 20])
def test_all_rows_come_in_order(batch_rows: int) -> None:
    batches = list(query_batches(ROWS.lazy(), batch_rows=batch_rows))
    assert pl.concat(batches).equals(ROWS)
    assert max(batch.height for batch in batches) <= batch_rows


def test_query_errors_are_raised() -> None:
    with pytest.raises(pl.exceptions.InvalidOperationError):
        list(query_batches(ROWS.lazy().select(pl.lit("x").cast(pl.Int64) + pl.col("a")), batch_rows=100))


def test_damaged_file_raises_instead_of_ending(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = pl.DataFrame({"a": [i % 50 for i in range(3000)], "s": [str(i % 40) for i in range(3000)]})
    rows.write_parquet(path, compression="uncompressed", row_group_size=500)
    data = path.read_bytes()
    for place in range(8, len(data) - 3000, 149):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x5B]) + data[place + 1 :])
        actual = None
        try:
            actual = sum(batch.height for batch in query_batches(pl.scan_parquet(path), batch_rows=300))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            continue
        assert actual == 3000


def test_abandoned_query_stops() -> None:
    before = threading.active_count()
    batches = query_batches(ROWS.lazy(), batch_rows=10)
    assert next(batches).height == 10
    batches.close()
    assert threading.active_count() <= before


def test_small_row_groups_are_not_joined(tmp_path: Path) -> None:
    """Rows may be wide: as many as Polars' usual batch may not fit into memory."""
    rows = pl.select(a=pl.int_range(5_000))
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=200)
    heights = [batch.height for batch in query_batches(pl.scan_parquet(tmp_path / "rows.parquet"))]
    assert sum(heights) == 5_000
    assert max(heights) <= 200


class Query:
    """A query that drops its own generator while it runs, as the garbage collector may."""

    def __init__(self) -> None:
        self.batches: list[Generator[pl.DataFrame]] = []
        self.read, self.ended, self.stopped = threading.Event(), threading.Event(), False

    def sink_batches(self, put: Callable[[pl.DataFrame], bool], **_: object) -> None:
        put(pl.DataFrame({"a": [1]}))
        assert self.read.wait(10)
        self.batches.clear()
        self.stopped = put(pl.DataFrame({"a": [2]}))
        self.ended.set()


def test_query_dropped_in_its_thread_ends() -> None:
    query: Any = Query()
    query.batches.append(query_batches(query))
    assert next(query.batches[0])["a"].to_list() == [1]
    query.read.set()
    assert query.ended.wait(10)
    assert query.stopped


@pytest.mark.parametrize("condition", ["CAST(s AS INT) = 1", pl.col("s").cast(pl.Int32) == 1])
def test_non_numeric_text_does_not_damage_files(tmp_path: Path, condition: str | pl.Expr) -> None:
    qbeast.write_table(
        pl.DataFrame({"row": range(4), "s": ["1", "x", "2", "y"]}), tmp_path / "t", columns=["row"]
    )
    with pytest.raises(qbeast.InvalidInputError, match="cannot be evaluated"):
        qbeast.open_table(tmp_path / "t").delete(condition)
