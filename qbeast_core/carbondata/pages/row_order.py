"""Row-id pages and run-length pages of version 3: in which order values stand, and how often each counts."""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.carbondata.damage import damaged
from qbeast_core.space.arrays import I64Array

_MOST_UNKNOWN: Final = 1 << 24  # values of a page of a nested column


def row_ids(data: bytes | memoryview, rows: int) -> I64Array:
    """Read a row-id page: value ``j`` of the data page belongs to row ``ids[j]``."""
    if len(data) < 4:
        damaged(f"a row-id page of {len(data)} bytes has no length")
    size = int.from_bytes(data[:4], "big")
    if size % 2 or len(data) % 2 or size > len(data) - 4:
        damaged(f"a row-id page of {len(data)} bytes has ids of {size}")
    ids = np.frombuffer(data, ">i2", size // 2, 4).astype(np.int64)
    pairs = np.frombuffer(data, ">i2", offset=4 + size).astype(np.int64)
    return check_permutation(expand_pairs(ids, pairs, rows), rows)


def expand_pairs(ids: I64Array, pairs: I64Array, rows: int) -> I64Array:
    """Put runs in the place of the pairs (first, last) that stand for them.

    >>> expand_pairs(np.array([4, 0, 2, 3]), np.array([1]), 5)
    array([4, 0, 1, 2, 3])
    """
    if len(pairs) == 0:
        if len(ids) != rows:
            damaged(f"{len(ids)} row ids cannot order {rows} rows")
        return ids
    if pairs[0] < 0 or pairs[-1] + 1 >= len(ids) or np.any(np.diff(pairs) < 2):
        damaged("a row-id page has pairs where there are no ids")
    last = np.zeros(len(ids), np.bool_)
    last[pairs + 1] = True
    counts = np.ones(len(ids), np.int64)
    counts[pairs] = ids[pairs + 1] - ids[pairs] + 1
    counts, first = counts[~last], ids[~last]
    if counts.min() < 1 or int(counts.sum()) != rows:
        damaged(f"runs of row ids do not make {rows} rows")
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(rows)


def check_permutation(ids: I64Array, rows: int) -> I64Array:
    """Return the ids if they are a permutation of ``range(rows)``, else raise `Damaged`."""
    if len(ids) != rows or (rows and (ids.min() < 0 or ids.max() >= rows)):
        damaged(f"row ids do not number {rows} rows")
    seen = np.zeros(rows, np.bool_)
    seen[ids] = True
    if not seen.all():
        damaged("row ids name a row twice")
    return ids


def inverse(ids: I64Array) -> I64Array:
    """Return where the value of each row stands, of a permutation that tells the row of each value.

    >>> inverse(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    found = np.empty_like(ids)
    found[ids] = np.arange(len(ids))
    return found


def run_lengths(data: bytes | memoryview, rows: int) -> I64Array:
    """Read a run-length page: how often each value of the data page counts."""
    if len(data) % 4:
        damaged(f"a run-length page of {len(data)} bytes holds no pairs")
    counts = np.frombuffer(data, ">i2").astype(np.int64)[1::2]
    most = _MOST_UNKNOWN if rows < 0 else rows
    if np.any(counts < 1) or int(counts.sum()) > most or (rows >= 0 and int(counts.sum()) != rows):
        damaged(f"{len(counts)} runs of {int(counts.sum())} rows do not fit {rows} rows")
    return counts
