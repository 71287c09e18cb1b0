"""Row-id pages and run-length pages of versions 1 and 2: numbers of as many bits as the writer's blocklet size has.

Nothing tells that width; but a page that is read by a wrong one is no permutation, and its runs do not follow each
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from qbeast_core.carbondata.damage import Damaged, damaged
from qbeast_core.carbondata.pages.row_order import check_permutation, expand_pairs
from qbeast_core.space.arrays import I64Array

# 120,000 rows are usual, 2,000 the least that could be configured.
_WIDTHS: Final = (17, *range(11, 17), *range(18, 26))
_T = TypeVar("_T")


def packed_row_ids(data: bytes | memoryview, rows: int) -> I64Array:
    """Read a row-id page: value ``j`` of the data page belongs to row ``ids[j]``."""
    if len(data) < 4:
        damaged(f"a row-id page of {len(data)} bytes has no length")
    size = int.from_bytes(data[:4], "big")
    if size > len(data) - 4:
        damaged(f"a row-id page of {len(data)} bytes has ids of {size}")

    def read(width: int) -> I64Array:
        ids, pairs = _unpacked(data[4 : 4 + size], width), _unpacked(data[4 + size :], width)
        return check_permutation(expand_pairs(ids, pairs, rows), rows)

    return _by_some_width(read, f"a row-id page of {rows} rows")


def packed_run_lengths(data: bytes | memoryview, rows: int) -> I64Array:
    """Read a run-length page: how often each value of the data page counts."""

    def read(width: int) -> I64Array:
        pairs = _unpacked(data, width)
        starts, counts = pairs[::2], pairs[1::2]
        if len(pairs) % 2 or not len(counts) or counts.min() < 1 or int(counts.sum()) != rows:
            damaged("the runs do not make the rows")
        if not np.array_equal(starts, np.cumsum(counts) - counts):
            damaged("the runs do not follow each other")
        return counts

    return _by_some_width(read, f"a run-length page of {rows} rows")


def _unpacked(data: bytes | memoryview, width: int) -> I64Array:
    r"""Read numbers of some bits from one large big-endian number, the last of them in its lowest bits.

    >>> _unpacked(b"\x01\x80\x03", 11)
    array([48,  3])
    """
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    count = len(bits) // width
    table = bits[len(bits) - count * width :].reshape(count, width)
    found = np.zeros(count, np.int64)
    for place in range(width):
        found <<= 1
        found |= table[:, place]
    return found


def _by_some_width(read: Callable[[int], _T], what: str) -> _T:
    for width in _WIDTHS:
        try:
            return read(width)
        except Damaged:
            continue
    return damaged(f"{what} is none by any width of its numbers")
