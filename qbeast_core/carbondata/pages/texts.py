"""Byte strings that stand behind their lengths: where each begins, found for all at once, and Arrow arrays of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.pages.chains import chain
from qbeast_core.carbondata.pages.nulls import with_nulls
from qbeast_core.space.arrays import BoolArray, I64Array, U8Array

__all__ = ["NULL_TOKEN", "Slices", "binaries", "length_value", "texts"]

_BYTES_AT_ONCE: Final = 1 << 20
NULL_TOKEN: Final = b"@NU#LL$!"
"""What stands for a null text."""


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Byte strings in a buffer.

    Attributes
    ----------
    data
        The buffer.
    starts, lengths
        Of each string, in bytes, shape (rows,); they ascend and do not overlap.
    """

    data: U8Array
    starts: I64Array
    lengths: I64Array

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: I64Array) -> Slices:
        """Return strings in another order; they do not ascend any more."""
        return Slices(self.data, self.starts[rows], self.lengths[rows])

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

    Parameters
    ----------
    data : uint8 array
        ``length, bytes, length, bytes ...`` to its end.
    width : int
        Bytes of a length: 2 or 4.
    rows : int
        How many strings there have to be; any number if negative.

    Raises
    ------
    Damaged
        If the lengths do not end where the data does, or there are not so many.

    Examples
    --------
    >>> found = length_value(np.frombuffer(b"\0\2ab\0\0\0\1c", np.uint8), 2)
    >>> found.starts, found.lengths
    (array([2, 6, 8]), array([2, 0, 1]))
    """
    heads = _equal_heads(data, width)
    if heads is None:
        heads = _short_heads(data, width)
    if heads is None:
        heads = _walked_heads(data, width)
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


def _equal_heads(data: U8Array, width: int) -> I64Array | None:
    """Return where the lengths stand if all are equal, else None."""
    if len(data) == 0:
        return np.empty(0, np.int64)
    if len(data) < width:
        damaged("a page ends inside a length")
    step = int.from_bytes(data[:width].tobytes(), "big") + width
    if len(data) % step:
        return None
    rows = data.reshape(-1, step)
    return np.arange(0, len(data), step) if np.all(rows[:, :width] == rows[0, :width]) else None


def _short_heads(data: U8Array, width: int) -> I64Array | None:
    """Return where the lengths stand if all are below 256 and no string holds a zero byte, else None.

    Zero bytes are then lengths alone. A run of them begins at a length: where that is 0 its last byte is in the
    run too, so that lengths stand at every `width` bytes of the run; the last byte of the last is not zero
    unless the run ends with an empty string.
    """
    zero = np.flatnonzero(data == 0)
    if len(zero) == 0:
        return None
    run_begins = np.empty(len(zero), np.bool_)
    run_begins[0] = True
    np.not_equal(zero[1:], zero[:-1] + 1, out=run_begins[1:])
    begins = zero[run_begins]
    counts = np.diff(np.append(np.flatnonzero(run_begins), len(zero)))
    if counts.max() == 1 and width == 2:
        heads = begins
    else:
        place = zero - np.repeat(begins, counts)
        heads = zero[place % width == 0]
    last = heads + (width - 1)
    if heads[0] != 0 or last[-1] >= len(data):
        return None
    ends = heads + width + data[last]
    # By induction from the first: each string ends where the next length stands.
    if ends[-1] != len(data) or not np.array_equal(ends[:-1], heads[1:]):
        return None
    middle = (
        np.logical_or.reduce([data[heads + byte] != 0 for byte in range(1, width - 1)])
        if width > 2
        else False
    )
    return None if np.any(middle) else heads


def _walked_heads(data: U8Array, width: int) -> I64Array:
    """Return where the lengths stand, each of which is known by the one before alone."""
    padded = np.append(data, np.zeros(width, np.uint8))

    def ends(at: I64Array) -> I64Array:
        first, count = int(at[0]), len(at)
        lengths = np.zeros(count, np.int64)
        for byte in range(width):
            lengths <<= 8
            lengths |= padded[first + byte : first + byte + count]
        return at + width + lengths

    return chain(ends, 0, len(data))[:-1]
