"""NumPy values to Arrow arrays with nulls, and bytes to integers of one to eight bytes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

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
