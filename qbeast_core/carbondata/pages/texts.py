"""Byte strings that stand behind their lengths: where each begins, found for all at once, and Arrow arrays of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.pages.heads import length_heads
from qbeast_core.carbondata.pages.nulls import with_nulls
from qbeast_core.space.arrays import BoolArray, I64Array, U8Array

_BYTES_AT_ONCE: Final = 1 << 20
# What stands for a null text.
NULL_TOKEN: Final = b"@NU#LL$!"


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Byte strings in a buffer."""

    data: U8Array
    # Of each string, in bytes, shape (rows,); they ascend and do not overlap.
    starts: I64Array
    lengths: I64Array

    def __len__(self) -> int:
        return len(self.starts)

    def equal_to(self, token: bytes) -> BoolArray:
        """Tell which strings are a token."""
        same: BoolArray = self.lengths == len(token)
        for place, byte in enumerate(token):  # of a few bytes, over all strings
            at = self.starts[same]
            if len(at) == 0:
                break
            same[same] = self.data[at + place] == byte
        return same


def length_value(data: U8Array, width: int, rows: int = -1) -> Slices:
    r"""Find strings that each stand behind a big-endian length.

    >>> found = length_value(np.frombuffer(b"\0\2ab\0\0\0\1c", np.uint8), 2)
    >>> found.starts, found.lengths
    (array([2, 6, 8]), array([2, 0, 1]))
    """
    heads = length_heads(data, width)
    if rows >= 0 and len(heads) != rows:
        damaged(f"a page holds {len(heads)} strings where {rows} rows are to be")
    starts = heads + width
    return Slices(data, starts, np.append(heads[1:], len(data)) - starts if len(heads) else starts)


def binaries(slices: Slices, nulls: BoolArray | None = None) -> Any:
    """Return strings as an Arrow array of large_binary."""
    lengths = slices.lengths
    offsets = np.zeros(len(slices) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_packed(slices, offsets))]
    return with_nulls(pa.Array.from_buffers(pa.large_binary(), len(slices), buffers), nulls)


def texts(slices: Slices, nulls: BoolArray | None = None) -> Any:
    """Return strings as an Arrow array of large_string; `Damaged` if they are no UTF-8."""
    try:
        return pc.cast(binaries(slices, nulls), pa.large_string())
    except pa.ArrowInvalid as error:
        damaged(f"a text is no UTF-8: {error}")


def _packed(slices: Slices, offsets: I64Array) -> U8Array:
    """Return the bytes of all strings, one behind the other."""
    total = int(offsets[-1])
    if len(slices) and np.all(slices.starts[1:] >= slices.starts[:-1] + slices.lengths[:-1]):
        # In order: drop what lies between them.
        first, last = int(slices.starts[0]), int(slices.starts[-1] + slices.lengths[-1])
        if last - first == total:
            return slices.data[first:last]
        keep = np.ones(last - first, np.bool_)
        ends = slices.starts[:-1] + slices.lengths[:-1] - first
        gaps = slices.starts[1:] - first - ends
        if gaps.min() == gaps.max():
            for step in range(int(gaps[0])):
                keep[ends + step] = False
            return slices.data[first:last][keep]
    packed = np.empty(total, np.uint8)
    # A number for each byte takes eight times their place: of some bytes at a time.
    cuts = np.searchsorted(offsets, np.arange(0, total, _BYTES_AT_ONCE), side="left").tolist()
    for first, last in pairwise([*dict.fromkeys(cuts), len(slices)]):
        begin, end = int(offsets[first]), int(offsets[last])
        moved = np.repeat(slices.starts[first:last] - offsets[first:last], slices.lengths[first:last])
        packed[begin:end] = slices.data[np.arange(begin, end) + moved]
    return packed
