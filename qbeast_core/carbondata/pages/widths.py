"""Integers of one to eight bytes in a row: little-endian ones, big-endian ones, and those with the sign bit flipped."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from qbeast_core.carbondata.damage import damaged
from qbeast_core.space.arrays import I32Array, I64Array, U8Array

_BIG: Final[dict[int, np.dtype[Any]]] = {width: np.dtype(f">u{width}") for width in (1, 2, 4, 8)}


def whole(data: U8Array, width: int) -> int:
    """Return how many elements of a width the bytes are; `Damaged` if something is left over."""
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
    """Return unsigned big-endian integers of one to eight bytes; those of eight wrap into negative ones.

    >>> big_endian(np.array([1, 0, 0, 7], np.uint8), 2)
    array([256,   7])
    """
    count = whole(data, width)
    if width == 3:
        return three_bytes(data, signed=False).astype(np.int64)
    if width in _BIG:
        return np.frombuffer(data, _BIG[width]).astype(np.uint64).view(np.int64)
    found = np.zeros(count, np.uint64)
    for byte in range(width):
        found = found << np.uint64(8) | data[byte::width]
    return found.view(np.int64)


def flipped_big_endian(data: U8Array, width: int) -> I64Array:
    """Return big-endian integers whose sign bit is flipped, so that their bytes sort as they do.

    >>> flipped_big_endian(np.array([128, 1, 127, 255], np.uint8), 2)
    array([ 1, -1])
    """
    half = np.uint64(1 << (8 * width - 1))
    return (big_endian(data, width).view(np.uint64) - half).view(np.int64)
