"""Run a query batch by batch, in little memory: it waits until a batch is taken."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from queue import Full, Queue
from threading import Event, Lock, Thread, current_thread
from typing import TYPE_CHECKING, Final

import polars as pl

from qbeast_core.support.sizing import sizing

if TYPE_CHECKING:
    import pyarrow as pa

_LOOK_SECONDS: Final = 0.1
_JOIN_SECONDS: Final = 2.0

_FIRST_ROWS: Final = 1 << 14
_GROWTH: Final = 32  # of one slice after the other
_OTHER_SOURCES: Final = re.compile(r"(\d+) other sources\]")

_ARROW_ROWS: Final = 65_536

_READ_AHEAD: Final = "POLARS_ROW_GROUP_PREFETCH_SIZE"
_LOCK: Final = Lock()
_users: list[None] = []  # queries that run with little read-ahead


def batches_within(lazy: pl.LazyFrame, *, size_bytes: int) -> Generator[pl.DataFrame]:
    """Yield the rows of a query in frames of about `size_bytes`, as far as there are rows; none is empty.

    Polars chooses how many rows it computes at once: a number of rows would be joined, whatever their size.

    >>> [batch.height for batch in batches_within(pl.LazyFrame({"a": range(10)}), size_bytes=32)]
    [4, 4, 2]
    """
    waiting: list[pl.DataFrame] = []
    waiting_bytes = 0
    for batch in query_batches(lazy):
        waiting.append(batch)
        waiting_bytes += int(batch.estimated_size())
        if waiting_bytes >= size_bytes // 2:
            yield from within(pl.concat(waiting, rechunk=False), size_bytes)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield from within(pl.concat(waiting, rechunk=False), size_bytes)


def within(frame: pl.DataFrame, size_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a frame in slices of `size_bytes`, approximately; nothing is copied."""
    if frame.height:
        row_bytes = max(frame.estimated_size() / frame.height, 1.0)
        yield from frame.iter_slices(max(int(size_bytes / row_bytes), 1))


@contextmanager
def little_read_ahead() -> Generator[None]:
    """Let Polars read only one row group ahead in scans that start in this block, instead of hundreds of megabytes.

    Polars has no option of a query for it, only an environment variable. A value that the user set stays.
    """
    with _LOCK:
        is_set = not _users and _READ_AHEAD in os.environ
        if not is_set:
            _users.append(None)
            os.environ[_READ_AHEAD] = "1"
    try:
        yield
    finally:
        with _LOCK:
            if not is_set:
                _users.pop()
                if not _users:
                    os.environ.pop(_READ_AHEAD, None)


def takes_slices(lazy: pl.LazyFrame) -> bool:
    """Return whether a slice of a query reads only its rows: the query selects columns of a few local Parquet files.

    >>> pl.DataFrame({"x": [1, 2]}).write_parquet("x.parquet")
    >>> rows = pl.scan_parquet("x.parquet")
    >>> takes_slices(rows.select(pl.col("x") + 1)), takes_slices(rows.filter(pl.col("x") > 1))
    (True, False)
    """
    plan = lazy.slice(1, 1).explain()
    others = _OTHER_SOURCES.search(plan)
    return (
        plan.count("SCAN [") == plan.count("Parquet SCAN [") == plan.count("SLICE: Positive") == 1
        and not any(text in plan for text in ("SLICE[", "SELECTION:", "://"))
        and (others is None or int(others[1]) < sizing().max_sliced_sources)
    )


def has_any_width(dtype: pl.DataType) -> bool:
    """Return whether values of a type have no fixed size."""
    return dtype.is_nested() or isinstance(dtype, pl.String | pl.Binary)


def slices_within(lazy: pl.LazyFrame, *, size_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a query in order, read as slices of about `size_bytes`.

    Polars reads many row groups of a scan ahead, whatever the size of the batches. A slice limits them. Rows of any
    size are first read alone: a few may fill the memory.

    >>> [frame.height for frame in slices_within(pl.LazyFrame({"a": range(50_000)}), size_bytes=240_000)]
    [16384, 30000, 3616]
    >>> [frame.height for frame in slices_within(pl.LazyFrame({"a": ["text"] * 50_000}), size_bytes=1 << 20)]
    [1, 32, 1024, 32768, 16175]
    """
    grows = any(map(has_any_width, lazy.collect_schema().dtypes()))
    first, rows = 0, 1 if grows else _FIRST_ROWS
    while True:
        frame = lazy.slice(first, rows).collect(engine="streaming")
        if frame.height:
            yield frame
        if frame.height < rows:
            return
        first += rows
        fitting = max(int(size_bytes * rows / max(frame.estimated_size(), 1)), 1)
        rows = min(fitting, rows * _GROWTH)


def arrow_stream(lazy: pl.LazyFrame) -> pa.RecordBatchReader:
    """Return the rows of a query as Arrow batches. A few batches are in memory at a time.

    Strings are ``large_string``, which all Arrow libraries support.

    >>> arrow_stream(pl.LazyFrame({"a": [1, 2]})).read_all().to_pylist()
    [{'a': 1}, {'a': 2}]
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and most reads do without

    schema = _arrow(pl.DataFrame(schema=lazy.collect_schema())).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for frame in query_batches(lazy, batch_rows=_ARROW_ROWS):
            yield from _arrow(frame).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def query_batches(lazy: pl.LazyFrame, *, batch_rows: int | None = None) -> Generator[pl.DataFrame]:
    """Yield the rows of a query in order, all of them or an error. By default Polars chooses the size of the batches.

    `LazyFrame.collect_batches` ends without an error where a decoder panics; this raises the panic.

    >>> [batch.height for batch in query_batches(pl.LazyFrame({"a": range(5)}), batch_rows=2)]
    [2, 2, 1]
    """
    batches: Queue[pl.DataFrame | None] = Queue(1)
    stopped = Event()
    failures: list[BaseException] = []

    def put(batch: pl.DataFrame | None) -> bool:
        while not stopped.is_set():
            try:
                batches.put(batch, timeout=_LOOK_SECONDS)
            except Full:
                continue
            return False
        return True

    def run() -> None:
        try:
            lazy.sink_batches(put, chunk_size=batch_rows, maintain_order=True)
        except BaseException as error:  # noqa: BLE001 -- a panic is not an `Exception`; raised below
            failures.append(error)
        finally:
            put(None)  # the end

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while (batch := batches.get()) is not None:
            if batch.height:
                yield batch
        if failures:
            raise failures[0]
    finally:
        stopped.set()
        # The garbage collector may end an abandoned query in a thread that the query needs: do not wait for ever.
        if thread is not current_thread():
            thread.join(_JOIN_SECONDS)
