"""Whole-array work cut into chunks that fit the caches, side by side on the cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import polars as pl

__all__ = ["CHUNK_ROWS", "map_chunks"]

CHUNK_ROWS: Final = 1 << 16
"""Rows of a chunk: its arrays fit the caches, and a call's overhead is small beside its work."""


_WORTH_THREADS: Final = 4  # starting them takes longer than a chunk or two
_Out = TypeVar("_Out")


def map_chunks(
    function: Callable[[int, int], _Out], rows: int, *, chunk_rows: int = CHUNK_ROWS
) -> list[_Out]:
    """Call ``function(start, stop)`` for consecutive chunks of rows; results come in order.

    Parameters
    ----------
    function : callable
        Pure, or writing to its own rows alone. What it raises is raised here.
    rows : int
        Rows in all; none makes no call.
    chunk_rows : int
        Rows of a chunk, at least 1.

    Examples
    --------
    >>> map_chunks(lambda start, stop: stop - start, 5, chunk_rows=2)
    [2, 2, 1]
    """
    bounds = [(start, min(start + chunk_rows, rows)) for start in range(0, rows, chunk_rows)]
    if len(bounds) < _WORTH_THREADS:
        return [function(*one) for one in bounds]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        starts, stops = zip(*bounds, strict=True)
        return list(pool.map(function, starts, stops))
