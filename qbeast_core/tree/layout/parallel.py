"""Split work on arrays into chunks that fit the caches, and run them in parallel."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

import polars as pl

from qbeast_core.support.sizing import sizing

_MIN_THREADED_CHUNKS: Final = 4  # starting threads takes longer than a chunk or two
_MAX_INLINE_CALLS: Final = 16  # more files wait for the disk one after the other
_Out = TypeVar("_Out")
_In = ParamSpec("_In")


def workers(max_workers: int, *, rows: int, calls: int) -> Executor:
    """Return a thread pool; for a single call, or a few calls of few rows, an executor that runs calls immediately.

    >>> with workers(2, rows=10, calls=2) as pool:
    ...     pool.submit(max, 1, 2).result()
    2
    """
    is_little = calls <= _MAX_INLINE_CALLS and rows <= sizing().chunk_rows
    return _InlineExecutor() if calls == 1 or is_little else ThreadPoolExecutor(max_workers)


def map_chunks(
    function: Callable[[int, int], _Out], rows: int, *, chunk_rows: int | None = None
) -> list[_Out]:
    """Call ``function(start, stop)`` for consecutive chunks of rows; return the results in order.

    >>> map_chunks(lambda start, stop: stop - start, 5, chunk_rows=2)
    [2, 2, 1]
    """
    step = chunk_rows or sizing().chunk_rows
    bounds = [(start, min(start + step, rows)) for start in range(0, rows, step)]
    if len(bounds) < _MIN_THREADED_CHUNKS:
        return [function(*bound) for bound in bounds]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        starts, stops = zip(*bounds, strict=True)
        return list(pool.map(function, starts, stops))


class _InlineExecutor(Executor):
    """Runs calls in the calling thread: starting a thread takes longer than small work."""

    def submit(self, fn: Callable[_In, _Out], /, *args: _In.args, **kwargs: _In.kwargs) -> Future[_Out]:
        future = Future[_Out]()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - `result` raises it, as for a thread
            future.set_exception(error)
        return future
