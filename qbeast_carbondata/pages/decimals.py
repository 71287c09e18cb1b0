"""Decimals to Arrow's 16 bytes: CarbonData stores unscaled integers, of one width or each behind its scale."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from qbeast_carbondata.damage import damaged
from qbeast_carbondata.pages.arrays import array_of, whole
from qbeast_carbondata.pages.texts import Slices
from qbeast_core.space.values import BoolArray, I64Array, U8Array

_BYTES: Final = 16
_SHORT: Final = 8


def small_decimals(unscaled: I64Array, kind: Any, nulls: BoolArray | None = None) -> Any:
    """Return decimals of unscaled numbers that fit 64 bits.

    >>> small_decimals(np.array([150, -1]), pa.decimal128(10, 2)).to_pylist()
    [Decimal('1.50'), Decimal('-0.01')]
    """
    return array_of(_extended(unscaled), kind, nulls)


def _extended(numbers: I64Array) -> Any:
    """Extend numbers to 16 bytes."""
    return np.stack([numbers, numbers >> 63], axis=1).astype("<i8", copy=False)


def decimal_width(precision: int) -> int:
    """Return the bytes that the unscaled numbers of a precision take.

    >>> decimal_width(19), decimal_width(38)
    (9, 16)
    """
    largest: int = 10**precision
    return largest.bit_length() // 8 + 1


def fixed_decimals(data: U8Array, width: int, kind: Any, nulls: BoolArray | None = None) -> Any:
    """Return decimals of big-endian unscaled numbers of one width."""
    rows = whole(data, width)
    words = np.empty((rows, _BYTES), np.uint8)
    words[:, :width] = data.reshape(rows, width)[:, ::-1]
    words[:, width:] = np.where(words[:, width - 1 : width] & 0x80 != 0, np.uint8(0xFF), np.uint8(0))
    return array_of(words, kind, nulls)


def scaled_decimals(slices: Slices, kind: Any, nulls: BoolArray | None = None) -> Any:
    """Return decimals, each of which follows a byte with its scale."""
    empty = slices.lengths == 0
    missing = empty if nulls is None else nulls | empty
    sizes = np.where(missing, 0, slices.lengths - 1)
    if np.any(sizes > _BYTES) or np.any((sizes < 1) & ~missing):
        damaged("a decimal has no digits, or more than 38")
    words = _short_words if sizes.max(initial=0) <= _SHORT else _long_words
    return _rescaled(words(slices, sizes), slices, kind, missing)


def _short_words(slices: Slices, sizes: I64Array) -> Any:
    """Return unscaled numbers of at most 8 bytes, extended to 16; 0 where there is none."""
    # Eight bytes from the first of each number: the bytes behind it are shifted out, its sign fills up.
    padded = np.zeros(len(slices.data) + _SHORT + 1, np.uint8)
    padded[: len(slices.data)] = slices.data
    eights = np.ndarray((len(padded) - _SHORT + 1,), ">i8", padded, strides=(1,))
    numbers = eights[slices.starts + 1].astype(np.int64) >> 8 * (_SHORT - np.maximum(sizes, 1))
    numbers[sizes < 1] = 0
    return _extended(numbers).view(np.uint8)


def _long_words(slices: Slices, sizes: I64Array) -> Any:
    """Return unscaled numbers of any length, extended to 16 bytes."""
    byte = np.arange(_BYTES)[None, :]
    # Byte k of the result is byte k from the end of the number; its sign fills the rest.
    at = (slices.starts + slices.lengths)[:, None] - 1 - np.minimum(byte, np.maximum(sizes, 1)[:, None] - 1)
    stored = slices.data[np.where(sizes[:, None] < 1, 0, at)]
    sign = np.where(stored[:, -1:] & 0x80 != 0, np.uint8(0xFF), np.uint8(0))
    return np.where(byte < sizes[:, None], stored, sign)


def _rescaled(words: Any, slices: Slices, kind: Any, nulls: BoolArray) -> Any:
    """Return decimals of numbers that may have several scales."""
    of_row = np.where(nulls, 0, slices.starts)
    scales = np.unique(slices.data[of_row[~nulls]]).tolist()
    if not scales or scales == [kind.scale]:
        return array_of(words, kind, nulls if nulls.any() else None)
    rows = np.arange(len(words))
    result = pa.nulls(len(words), kind)
    for scale in scales:
        own = (slices.data[of_row] == scale) & ~nulls
        try:
            part = array_of(words, pa.decimal128(38, scale), ~own).cast(kind)
        except pa.ArrowInvalid as error:
            damaged(f"a decimal of scale {scale} does not fit {kind}: {error}")
        result = pa.concat_arrays([result, part]).take(pa.array(rows + np.where(own, len(rows), 0)))
    return result
