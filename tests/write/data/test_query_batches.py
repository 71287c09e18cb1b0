"""All rows of a query come, or its error does; nothing runs on where nobody takes the batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.data.frames import ahead, query_batches
from tests.helpers.examples import examples

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
    before = set(threading.enumerate())
    batches = query_batches(ROWS.lazy(), batch_rows=10)
    assert next(batches).height == 10
    batches.close()
    assert set(threading.enumerate()) <= before


class Made:
    """Frames of a few rows that are made one by one, with an error at the end or without."""

    def __init__(self, heights: list[int], error: BaseException | None = None) -> None:
        self.heights, self.error, self.count, self.closed = heights, error, 0, False
        self.many = threading.Event()

    def frames(self) -> Generator[pl.DataFrame]:
        try:
            for height in self.heights:
                self.count += 1
                if self.count == 5:
                    self.many.set()
                yield pl.DataFrame({"a": range(self.count, self.count + height)})
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


@examples(30, sweep=500)
@given(heights=st.lists(st.integers(1, 9), max_size=12), size_bytes=st.integers(0, 300), fails=st.booleans())
def test_frames_made_ahead_are_those_of_a_loop(heights: list[int], size_bytes: int, *, fails: bool) -> None:
    threads = set(threading.enumerate())
    error = OSError("broken") if fails else None
    made, found, raised = Made(heights, error), list[pl.DataFrame](), None
    try:
        for frame in ahead(made.frames(), size_bytes=size_bytes):
            found.append(frame)
    except OSError as caught:
        raised = caught
    expected = list(Made(heights).frames())
    assert len(found) == len(expected)
    assert all(one.equals(other) for one, other in zip(found, expected, strict=True))
    assert raised is error
    assert made.closed
    assert set(threading.enumerate()) <= threads  # threads of other tests may end meanwhile


def test_as_many_frames_as_fit_are_made_ahead() -> None:
    made, threads = Made([10] * 100), set(threading.enumerate())
    frames = ahead(made.frames(), size_bytes=3 * 80)  # one is taken, three wait, and the next one has no room
    next(frames)
    assert made.many.wait(10)
    assert made.count == 5
    frames.close()
    assert made.closed
    assert made.count <= 6
    assert set(threading.enumerate()) <= threads  # threads of other tests may end meanwhile


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
