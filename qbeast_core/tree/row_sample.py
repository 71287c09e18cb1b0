"""Which rows a uniform sample takes: those whose numbers hash to the smallest keys."""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.space.arrays import I64Array, U64Array
from qbeast_core.tree.parallel import map_chunks

__all__ = ["sampled_rows"]

_LARGEST_KEY: Final = 0xFFFFFFFFFFFFF800  # a float64 below 2**64


def sampled_rows(first_row: int, rows: int, most: int) -> tuple[I64Array, U64Array]:
    """Return the rows with the smallest keys, and these keys: a uniform sample that others' can join.

    Parameters
    ----------
    first_row : int
        Number of the first row in the whole input.
    rows : int
        How many rows to choose from.
    most : int
        How many of them at most.

    Returns
    -------
    tuple of ndarray of int64 and ndarray of uint64
        Places, ascending, from 0; and the key of each: a hash of the row's number.

    Examples
    --------
    >>> [array.tolist() for array in sampled_rows(0, 3, 1)]
    [[2], [487617019471545679]]
    """
    limit = np.uint64(min(2.0 * most / max(rows, 1), 1.0) * _LARGEST_KEY)
    everything = rows <= most

    def chunk(start: int, stop: int) -> tuple[I64Array, U64Array]:
        keys = _row_keys(first_row + start, stop - start)
        likely = np.arange(len(keys)) if everything else np.flatnonzero(keys <= limit)
        return likely + start, keys[likely]

    found = map_chunks(chunk, rows)
    places = np.concatenate([np.zeros(0, np.int64), *(place for place, _ in found)])
    keys = np.concatenate([np.zeros(0, np.uint64), *(key for _, key in found)])
    if len(keys) > most:
        kept = np.sort(np.argpartition(keys, most)[:most])
        places, keys = places[kept], keys[kept]
    return places, keys


def _row_keys(first_row: int, rows: int) -> U64Array:
    """Return a well-mixed 64-bit number per row number (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.arange(first_row + 1, first_row + rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
