"""Order rows so that pages of equal rows are boxes in space: the leaves of a k-d tree (format 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qbeast_core.space.values import I64Array, U32Array

# Ranks along one dimension: as many distinct ones as fit.
Ranks: TypeAlias = npt.NDArray[np.uint16]

_BITS: Final = 16
_ROW_BITS: Final = 32
_ROW: Final = (1 << _ROW_BITS) - 1
# Nodes of up to this number of rows are split together, some at a time: a key has 15 bits for the number of a page.
_SMALL_ROWS: Final = 1 << 10
_MAX_NODES: Final = 31
# Cells of up to this number of rows are sorted: that is faster than to count them.
_FEW_ROWS: Final = 1 << 12
# If cells that differ share a rank, and it has at least this share of the rows, the ranks are exact instead.
_CROWDED: Final = 1 / 64


def ranks(cells: U32Array) -> Ranks:
    """Return the share of rows before each cell, in steps of 1 / 65536. Equal cells have equal ranks.

    Extents in ranks compare dimensions by the rows that a filter keeps, whatever the distribution of values.

    >>> ranks(np.array([7, 1 << 31, 7, 1 << 30], np.uint32)).tolist()
    [0, 49152, 0, 32768]
    """
    buckets, counts = _buckets(cells)
    before = ((np.cumsum(counts) - counts) << _BITS) // max(len(cells), 1)
    shares: Ranks = before.astype(np.uint16)[buckets]
    return shares


def _buckets(cells: U32Array) -> tuple[npt.NDArray[Any], I64Array]:
    """Return an ascending number for each cell, and the number of rows of each number."""
    if len(cells) > _FEW_ROWS:
        offsets = cells - cells.min()
        shift = max(int(offsets.max()).bit_length() - _BITS, 0)
        buckets = (offsets >> np.uint32(shift)).astype(np.uint16)
        counts = np.bincount(buckets, minlength=1)
        crowded = np.flatnonzero(counts >= _CROWDED * len(cells)) if shift else ()
        if not any(np.ptp(cells[buckets == bucket]) for bucket in crowded):
            return buckets, counts
    return np.unique(cells, return_inverse=True, return_counts=True)[1:]


def kd_order(columns: Sequence[Ranks], page_rows: int, importance: Sequence[float]) -> I64Array:
    """Return an order of rows in which every `page_rows` rows, from the first on, are one page.

    Each node of the tree splits its rows along the dimension where they extend furthest. An extent counts as often as
    the `importance` of its dimension.

    >>> kd_order([np.array([9, 1, 8, 0], np.uint16), np.zeros(4, np.uint16)], 2, [1, 1]).tolist()
    [1, 3, 0, 2]
    """
    order = np.arange(len(columns[0]))
    nodes, small = [(0, len(order))] if len(order) else [], list[int]()
    while nodes:
        first, last = nodes.pop()
        pages = -(-(last - first) // page_rows)
        middle = pages // 2 * page_rows
        is_large = last - first > _SMALL_ROWS and pages > 1
        if is_large and _split(order[first:last], middle, columns, importance):
            nodes += [(first + middle, last), (first, first + middle)]
        else:
            small.append(first)
    for chunk in range(0, len(small), _MAX_NODES):
        first, end = small[chunk], (*small, len(order))[min(chunk + _MAX_NODES, len(small))]
        _split_small(
            order[first:end],
            np.array(small[chunk : chunk + _MAX_NODES]) - first,
            page_rows,
            columns,
            importance,
        )
    # The order within a page is free: that of the input often compresses best.
    order |= (np.arange(len(order)) // page_rows) << _ROW_BITS
    order.sort()
    order &= _ROW
    return order


def _split(rows: I64Array, middle: int, columns: Sequence[Ranks], importance: Sequence[float]) -> bool:
    """Move the first rows along the widest dimension to the front. Return False if all rows are at one place."""
    parts = [column[rows] for column in columns]
    extents = [
        (int(part.max()) - int(part.min())) * weight for part, weight in zip(parts, importance, strict=True)
    ]
    widest = int(np.argmax(extents))
    if not extents[widest]:
        return False
    # Rank and row in one number: this is partitioned faster than an array of positions.
    keys = parts[widest].astype(np.int64)
    keys <<= _ROW_BITS
    keys |= rows
    keys.partition(middle - 1)
    np.bitwise_and(keys, _ROW, out=rows)
    return True


def _split_small(
    rows: I64Array, starts: I64Array, page_rows: int, columns: Sequence[Ranks], importance: Sequence[float]
) -> None:
    """Move the rows of nodes to their pages, one level of all nodes at a time.

    For each of many small nodes, calls take longer than the work.
    """
    while True:
        sizes = np.diff(starts, append=len(rows))
        pages = -(-sizes // page_rows)
        parts = [column[rows] for column in columns]
        extents = np.array(
            [
                (np.maximum.reduceat(part, starts) - np.minimum.reduceat(part, starts)) * float(weight)
                for part, weight in zip(parts, importance, strict=True)
            ]
        )
        is_split = (pages > 1) & (extents.max(axis=0) > 0)
        if not is_split.any():
            return
        widest = np.repeat(np.argmax(extents, axis=0), sizes)
        keys = np.repeat(np.arange(len(starts)), sizes) << _BITS
        keys |= np.choose(widest, parts)
        keys <<= _ROW_BITS
        keys |= rows
        keys.sort()
        np.bitwise_and(keys, _ROW, out=rows)
        starts = np.sort(np.concatenate([starts, (starts + pages // 2 * page_rows)[is_split]]))
