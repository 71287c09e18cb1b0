"""Values that follow their lengths, and NumPy values, as Arrow arrays with nulls.

All starts are found without a loop over values: for every byte of a window the end of a value that began there is
computed at once, and the chain from the first is then followed with steps that double.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_carbondata.damage import damaged
from qbeast_core.space.values import BoolArray, I32Array, I64Array, U8Array

_BIG: Final[dict[int, np.dtype[Any]]] = {width: np.dtype(f">u{width}") for width in (1, 2, 4, 8)}


def whole(data: U8Array, width: int) -> int:
    """Return the number of elements of a width; `Damaged` if bytes are left over."""
    if len(data) % width:
        damaged(f"a page of {len(data)} bytes does not divide into elements of {width}")
    return len(data) // width


def three_bytes(data: U8Array, *, signed: bool) -> I32Array:
    """Return big-endian integers of three bytes as int32.

    >>> three_bytes(np.array([0, 1, 2, 255, 255, 254], np.uint8), signed=True)
    array([258,  -2], dtype=int32)
    """
    # Four bytes from one before each: the lowest three of them are the element.
    count = whole(data, 3)
    padded = np.empty(len(data) + 1, np.uint8)
    padded[0] = 0
    padded[1:] = data
    words = np.ndarray((count,), ">u4", padded, strides=(3,)).astype(np.uint32)
    if not signed:
        return (words & 0xFFFFFF).astype(np.int32)
    return (words << np.uint32(8)).view(np.int32) >> 8


def big_endian(data: U8Array, width: int) -> I64Array:
    """Return unsigned big-endian integers of one to eight bytes; eight bytes wrap into negative ones.

    >>> big_endian(np.array([1, 0, 0, 7], np.uint8), 2)
    array([256,   7])
    """
    count = whole(data, width)
    if width == 3:
        return three_bytes(data, signed=False).astype(np.int64)
    if width in _BIG:
        return np.frombuffer(data, _BIG[width]).astype(np.uint64).view(np.int64)
    numbers = np.zeros(count, np.uint64)
    for byte in range(width):
        numbers = numbers << np.uint64(8) | data[byte::width]
    return numbers.view(np.int64)


def flipped_big_endian(data: U8Array, width: int) -> I64Array:
    """Return big-endian integers whose sign bit is flipped, so that their bytes sort like the numbers.

    >>> flipped_big_endian(np.array([128, 1, 127, 255], np.uint8), 2)
    array([ 1, -1])
    """
    half = np.uint64(1 << (8 * width - 1))
    return (big_endian(data, width).view(np.uint64) - half).view(np.int64)


def null_mask(bits: U8Array, rows: int) -> BoolArray | None:
    """Return which rows are null; None without presence bits.

    >>> null_mask(np.array([5], np.uint8), 4)
    array([ True, False,  True, False])
    """
    if len(bits) == 0:
        return None
    if len(bits) > (rows + 7) // 8:
        damaged(f"{len(bits)} bytes of presence bits are too many for {rows} rows")
    mask = np.zeros((rows + 7) // 8 * 8, np.bool_)
    mask[: len(bits) * 8] = np.unpackbits(bits, bitorder="little").view(np.bool_)
    if mask[rows:].any():
        damaged(f"presence bits name a row beyond {rows}")
    return mask[:rows]


def array_of(values: Any, kind: Any, nulls: BoolArray | None = None) -> Any:
    """Return an Arrow array of NumPy values that have the width of its type; only the bits are copied."""
    buffers = [_validity(nulls, len(values)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def with_nulls(array: Any, nulls: BoolArray | None) -> Any:
    """Return a flat array in which more rows are null."""
    if nulls is None:
        return array
    if array.null_count:
        nulls = nulls | np.asarray(array.is_null())
    return pa.Array.from_buffers(array.type, len(array), [_validity(nulls, len(array)), *array.buffers()[1:]])


def _validity(nulls: BoolArray | None, rows: int) -> Any:
    if nulls is None:
        return None
    if len(nulls) != rows:
        damaged(f"{rows} values have presence bits of {len(nulls)} rows")
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))


_WINDOW: Final = 1 << 16  # bytes: their arrays fit the caches


def chain(ends_of: Callable[[I64Array], I64Array], start: int, size: int, count: int = -1) -> I64Array:
    r"""Return the starts of values that follow each other, and the end of the last one.

    >>> data = np.frombuffer(b"\2ab\0\1c", np.uint8)
    >>> chain(lambda at: at + 1 + data[at], 0, len(data))
    array([0, 3, 4, 6])
    """
    starts: list[I64Array] = []
    at, left = start, size if count < 0 else count
    while left > 0 and (at < size or count >= 0):
        if at >= size:
            damaged(f"{left} of {count} values are missing at byte {at} of {size}")
        window = np.arange(at, min(at + _WINDOW, size))
        ends = ends_of(window)
        own = _followed(np.minimum(ends - at, len(window)), left)
        starts.append(window[own])
        left -= len(own)
        at = int(ends[own[-1]])
    if at > size:
        damaged(f"a value ends at byte {at} of {size}")
    return np.append(np.concatenate(starts), at) if starts else np.array([at], np.int64)


def _followed(jumps: I64Array, limit: int) -> I64Array:
    """Return the first positions that are reached from 0 in turn, each by the jump of the one before it."""
    outside = len(jumps)
    # Half as wide as positions of a file: they stay in the caches.
    steps = np.append(jumps, outside).astype(np.int32)
    reached = np.zeros(1, np.int32)
    while reached[-1] < outside and len(reached) < limit:
        # `steps` advances by as many values as `reached` has positions.
        reached = np.concatenate([reached, steps[reached]])
        steps = steps[steps]
    return reached[: min(limit, int(np.searchsorted(reached, outside)))].astype(np.int64)


_BYTES_AT_ONCE: Final = 1 << 20
_MAX_PASSES: Final = 8
# The text that CarbonData stores for null.
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
        """Return which strings equal a token."""
        same: BoolArray = self.lengths == len(token)
        for place, byte in enumerate(token):  # of a few bytes, over all strings
            at = self.starts[same]
            if len(at) == 0:
                break
            same[same] = self.data[at + place] == byte
        return same


def length_value(data: U8Array, width: int) -> Slices:
    r"""Find the strings of a page, each of which follows its big-endian length.

    >>> slices = length_value(np.frombuffer(b"\0\2ab\0\0\0\1c", np.uint8), 2)
    >>> slices.starts, slices.lengths
    (array([2, 6, 8]), array([2, 0, 1]))
    """
    heads = length_heads(data, width)
    starts = heads + width
    return Slices(data, starts, np.append(heads[1:], len(data)) - starts if len(heads) else starts)


def length_heads(data: U8Array, width: int) -> I64Array:
    r"""Return the positions of the lengths.

    >>> length_heads(np.frombuffer(b"\0\2ab\0\0\0\1\0", np.uint8), 2)
    array([0, 4, 6])
    """
    for fast in (_equal_heads, _short_heads):
        heads = fast(data, width)
        if heads is not None:
            return heads
    return _walked_heads(data, width)


def _equal_heads(data: U8Array, width: int) -> I64Array | None:
    """Return the positions if all lengths are equal, else None."""
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
    """Return the positions if all lengths are below 256, else None.

    Then all but the last byte of each length are zero. Other positions with such bytes, within strings, are not the
    end of a string but by chance; positions that no other leads to, or that lead nowhere, are removed until the rest
    is a chain.
    """
    zero = data == 0
    possible = zero[: len(data) - width + 1]
    for byte in range(1, width - 1):
        possible = possible & zero[byte : len(possible) + byte]
    heads = np.flatnonzero(possible)
    if len(heads) == 0 or heads[0] != 0:
        return None
    ends = heads + width + data[heads + (width - 1)]
    if ends[-1] == len(data) and np.array_equal(ends[:-1], heads[1:]):
        return heads
    return _linked(heads, ends, len(data))


def _linked(heads: I64Array, ends: I64Array, size: int) -> I64Array | None:
    """Return the heads that lead from the first to the end, each to the next; None if there is no such chain."""
    is_place = np.zeros(max(int(ends.max()), size) + 1, np.bool_)
    is_place[heads] = True
    is_place[size] = True
    for _ in range(_MAX_PASSES):
        is_led_to = np.zeros(len(is_place), np.bool_)
        is_led_to[ends] = True
        is_led_to[0] = True
        kept = is_place[ends] & is_led_to[heads]
        if kept.all():
            break
        is_place[heads[~kept]] = False
        heads, ends = heads[kept], ends[kept]
    is_chain = len(heads) > 0 and heads[0] == 0 and ends[-1] == size and np.array_equal(ends[:-1], heads[1:])
    return heads if is_chain else None


def _walked_heads(data: U8Array, width: int) -> I64Array:
    """Return the positions, each found from the one before it."""
    padded = np.append(data, np.zeros(width, np.uint8))

    def ends(at: I64Array) -> I64Array:
        first, count = int(at[0]), len(at)
        lengths = np.zeros(count, np.int64)
        for byte in range(width):
            lengths <<= 8
            lengths |= padded[first + byte : first + byte + count]
        return at + width + lengths

    return chain(ends, 0, len(data))[:-1]


def binaries(slices: Slices, nulls: BoolArray | None = None) -> Any:
    """Return strings as an Arrow array of large_binary."""
    lengths = slices.lengths
    offsets = np.zeros(len(slices) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_packed(slices, offsets))]
    return with_nulls(pa.Array.from_buffers(pa.large_binary(), len(slices), buffers), nulls)


def texts(slices: Slices, nulls: BoolArray | None = None) -> Any:
    """Return strings as an Arrow array of large_string; `Damaged` if they are not UTF-8."""
    try:
        return pc.cast(binaries(slices, nulls), pa.large_string())
    except pa.ArrowInvalid as error:
        damaged(f"a text is not UTF-8: {error}")


def _packed(slices: Slices, offsets: I64Array) -> U8Array:
    """Return the bytes of all strings, one after the other."""
    total = int(offsets[-1])
    if len(slices) and np.all(slices.starts[1:] >= slices.starts[:-1] + slices.lengths[:-1]):
        # In order: drop the bytes between them.
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
    # An index for each byte takes eight times the memory: some bytes at a time.
    cuts = np.searchsorted(offsets, np.arange(0, total, _BYTES_AT_ONCE), side="left").tolist()
    for first, last in pairwise([*dict.fromkeys(cuts), len(slices)]):
        begin, end = int(offsets[first]), int(offsets[last])
        moved = np.repeat(slices.starts[first:last] - offsets[first:last], slices.lengths[first:last])
        packed[begin:end] = slices.data[np.arange(begin, end) + moved]
    return packed
