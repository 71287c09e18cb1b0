"""Run a query batch by batch, in little memory: it waits until a batch is taken."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import Full, Queue
from threading import Event, Thread, current_thread
from typing import Final

import polars as pl

_LOOK_SECONDS: Final = 0.1
_JOIN_SECONDS: Final = 2.0
_BATCH_ROWS: Final = 65_536


def batches_within(lazy: pl.LazyFrame, *, size_bytes: int) -> Generator[pl.DataFrame]:
    """Yield the rows of a query in frames of at most `size_bytes`, approximately; none is empty.

    >>> [batch.height for batch in batches_within(pl.LazyFrame({"a": range(10)}), size_bytes=32)]
    [4, 4, 2]
    """
    for batch in query_batches(lazy, batch_rows=_BATCH_ROWS):
        yield from within(batch, size_bytes)


def within(frame: pl.DataFrame, size_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a frame in slices of `size_bytes`, approximately; nothing is copied."""
    if frame.height:
        row_bytes = max(frame.estimated_size() / frame.height, 1.0)
        yield from frame.iter_slices(max(int(size_bytes / row_bytes), 1))


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
