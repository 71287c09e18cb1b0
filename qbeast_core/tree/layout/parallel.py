"""Whole-array work cut into chunks that fit the caches, side by side on the cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

import polars as pl

# Rows of a chunk: its arrays fit the caches, and a call's overhead is small beside its work.
CHUNK_ROWS: Final = 1 << 16


_WORTH_THREADS: Final = 4  # starting them takes longer than a chunk or two
_Out = TypeVar("_Out")
_In = ParamSpec("_In")


def workers(most: int, *, rows: int, calls: int) -> Executor:
    """Return who makes calls side by side; one call, or calls for few rows, are made where they are submitted.

    >>> with workers(2, rows=10, calls=2) as pool:
    ...     pool.submit(max, 1, 2).result()
    2
    """
    return _AtOnce() if calls == 1 or rows <= CHUNK_ROWS else ThreadPoolExecutor(most)


def map_chunks(
    function: Callable[[int, int], _Out], rows: int, *, chunk_rows: int = CHUNK_ROWS
) -> list[_Out]:
    """Call ``function(start, stop)`` for consecutive chunks of rows; results come in order.

    >>> map_chunks(lambda start, stop: stop - start, 5, chunk_rows=2)
    [2, 2, 1]
    """
    bounds = [(start, min(start + chunk_rows, rows)) for start in range(0, rows, chunk_rows)]
    if len(bounds) < _WORTH_THREADS:
        return [function(*bound) for bound in bounds]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        starts, stops = zip(*bounds, strict=True)
        return list(pool.map(function, starts, stops))


class _AtOnce(Executor):
    """Makes calls where they are submitted: starting a thread takes longer than little work."""

    def submit(self, fn: Callable[_In, _Out], /, *args: _In.args, **kwargs: _In.kwargs) -> Future[_Out]:
        future = Future[_Out]()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for, as of a thread
            future.set_exception(error)
        return future
