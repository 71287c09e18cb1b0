"""Row-id pages and run-length pages: the order of values, and how often each counts.

Version 3 stores numbers of 16 bits. Versions 1 and 2 pack numbers of as many bits as the writer's blocklet size needs,
and store the width nowhere; but a page read with a wrong width is not a permutation, and its runs do not follow each
other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np

from qbeast_core.carbondata.damage import Damaged, damaged
from qbeast_core.space.arrays import I64Array

# Blocklets of 120,000 rows are usual, the minimum is 2,000.
_WIDTHS: Final = (17, *range(11, 17), *range(18, 26))

_Data = bytes | memoryview
_Unpack = Callable[[_Data], I64Array]


def row_ids(data: _Data, rows: int, *, is_packed: bool = False) -> I64Array:
    """Read a row-id page; return the position of each row's value in the data page."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 or size > len(data) - 4:
        damaged(f"a row-id page of {len(data)} bytes has ids of {size}")
    ids, pairs = data[4 : 4 + size], data[4 + size :]

    def read(unpack: _Unpack) -> I64Array:
        return inverse(expand_pairs(unpack(ids), unpack(pairs), rows), rows)

    return _read(read, is_packed=is_packed)


def run_lengths(data: _Data, rows: int, *, is_packed: bool = False) -> I64Array:
    """Read a run-length page: how often each value of the data page counts."""

    def read(unpack: _Unpack) -> I64Array:
        pairs = unpack(data)
        starts, counts = pairs[::2], pairs[1::2]
        if len(pairs) % 2 or np.any(counts < 1) or int(counts.sum()) != rows:
            damaged(f"{len(counts)} runs of {int(counts.sum())} rows do not fit {rows} rows")
        if is_packed and not np.array_equal(starts, np.cumsum(counts) - counts):
            damaged("the runs do not follow each other")
        return counts

    return _read(read, is_packed=is_packed)


def _read(read: Callable[[_Unpack], I64Array], *, is_packed: bool) -> I64Array:
    if not is_packed:
        return read(_shorts)
    for width in _WIDTHS:
        with suppress(Damaged):
            return read(partial(_unpacked, width=width))
    return damaged("no width of its numbers makes a valid page of row ids or runs")


def _shorts(data: _Data) -> I64Array:
    if len(data) % 2:
        damaged(f"{len(data)} bytes are not numbers of 16 bits")
    return np.frombuffer(data, ">i2").astype(np.int64)


def _unpacked(data: _Data, width: int) -> I64Array:
    r"""Read numbers of some bits from one large big-endian number, the last of them in its lowest bits.

    >>> _unpacked(b"\x01\x80\x03", 11)
    array([48,  3])
    """
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    count = len(bits) // width
    table = bits[len(bits) - count * width :].reshape(count, width)
    numbers = np.zeros(count, np.int64)
    for bit in range(width):
        numbers <<= 1
        numbers |= table[:, bit]
    return numbers


def expand_pairs(ids: I64Array, pairs: I64Array, rows: int) -> I64Array:
    """Replace pairs (first, last) by the runs they abbreviate.

    >>> expand_pairs(np.array([4, 0, 2, 3]), np.array([1]), 5)
    array([4, 0, 1, 2, 3])
    """
    if len(pairs) == 0:
        if len(ids) != rows:
            damaged(f"{len(ids)} row ids cannot order {rows} rows")
        return ids
    if pairs[0] < 0 or pairs[-1] + 1 >= len(ids) or np.any(np.diff(pairs) < 2):
        damaged("a row-id page has pairs behind its ids")
    last = np.zeros(len(ids), np.bool_)
    last[pairs + 1] = True
    counts = np.ones(len(ids), np.int64)
    counts[pairs] = ids[pairs + 1] - ids[pairs] + 1
    counts, first = counts[~last], ids[~last]
    if counts.min() < 1 or int(counts.sum()) != rows:
        damaged(f"runs of row ids do not make {rows} rows")
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(rows)


def inverse(ids: I64Array, rows: int) -> I64Array:
    """Return the position of each row's value by the row of each value; `Damaged` if these are not a permutation.

    >>> inverse(np.array([2, 0, 1]), 3)
    array([1, 2, 0])
    """
    if len(ids) != rows or (rows and (ids.min() < 0 or ids.max() >= rows)):
        damaged(f"row ids do not number {rows} rows")
    positions = np.full(rows, -1, np.int64)
    positions[ids] = np.arange(rows)
    if np.any(positions < 0):
        damaged("two row ids are equal")
    return positions
