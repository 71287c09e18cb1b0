"""Pages of numbers and decimals: plain, narrowed, as differences, or scaled."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.pages.codecs import EncoderMeta, StoreType
from qbeast_carbondata.pages.texts import (
    Slices,
    array_of,
    length_value,
    null_mask,
    three_bytes,
    whole,
    with_nulls,
)
from qbeast_carbondata.structs import Encoding
from qbeast_core.space.values import BoolArray, I64Array, U8Array

_BYTES: Final = 16
_SHORT: Final = 8


def _small_decimals(unscaled: I64Array, kind: Any, nulls: BoolArray | None = None) -> Any:
    """Return decimals of unscaled numbers that fit 64 bits.

    >>> _small_decimals(np.array([150, -1]), pa.decimal128(10, 2)).to_pylist()
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


# The first encoding of a page with an encoder meta is one of these.
NUMBER_ENCODINGS: Final = frozenset(
    {
        Encoding.DIRECT_COMPRESS,
        Encoding.ADAPTIVE_INTEGRAL,
        Encoding.ADAPTIVE_DELTA_INTEGRAL,
        Encoding.RLE_INTEGRAL,
        Encoding.ADAPTIVE_FLOATING,
        Encoding.BOOL_BYTE,
        Encoding.ADAPTIVE_DELTA_FLOATING,
    }
)

_STORED: Final[dict[StoreType, Any]] = {
    StoreType.BOOLEAN: np.dtype(np.int8),
    StoreType.BYTE: np.dtype(np.int8),
    StoreType.SHORT: np.dtype("<i2"),
    StoreType.INT: np.dtype("<i4"),
    StoreType.LONG: np.dtype("<i8"),
    StoreType.TIMESTAMP: np.dtype("<i8"),
    StoreType.LEGACY_LONG: np.dtype("<i8"),
    StoreType.FLOAT: np.dtype("<f4"),
    StoreType.DOUBLE: np.dtype("<f8"),
}
_MAX_DECIMALS: Final = 308
_US_OF_MS: Final = 1000
_SMALL_PRECISION: Final = 18


def decode_numbers(
    data: U8Array,
    encoding: int,
    meta: EncoderMeta,
    kind: Any,
    null_bits: U8Array,
    *,
    order: I64Array | None = None,
) -> Any:
    """Decode a page of numbers."""
    if meta.store_type == StoreType.DECIMAL:
        if order is not None or encoding != Encoding.DIRECT_COMPRESS:
            unreadable("decimals of several bytes are sorted or narrowed")
        decimals = _wide_decimals(data, meta, kind)
        return with_nulls(decimals, null_mask(null_bits, len(decimals)))
    values = _stored(data, encoding, meta.store_type)
    if order is not None:
        if len(order) != len(values):
            damaged(f"{len(values)} values are ordered by {len(order)} row ids")
        values = values[order]
    return as_type(_value(values, encoding, meta), kind, null_mask(null_bits, len(values)))


def as_type(values: Any, kind: Any, nulls: BoolArray | None) -> Any:
    """Return NumPy values as an Arrow array: integers of ms for timestamps, of unscaled numbers for decimals."""
    if pa.types.is_boolean(kind):
        return pc.cast(array_of(values.astype(np.int8), pa.int8(), nulls), pa.bool_())
    if pa.types.is_timestamp(kind):
        return array_of(_microseconds(values.astype(np.int64), nulls), kind, nulls)
    if pa.types.is_decimal(kind):
        return _small_decimals(values.astype(np.int64), kind, nulls)
    return array_of(values.astype(kind.to_pandas_dtype()), kind, nulls)


def _microseconds(ms: I64Array, nulls: BoolArray | None) -> I64Array:
    ms = ms if nulls is None else np.where(nulls, 0, ms)
    if len(ms) and (ms.max() > 2**63 // _US_OF_MS or ms.min() < -(2**63 // _US_OF_MS)):
        damaged("a timestamp lies beyond the year 294000")
    return ms * _US_OF_MS


def _stored(data: U8Array, encoding: int, store: StoreType) -> Any:
    if encoding == Encoding.RLE_INTEGRAL:
        unreadable("a page is encoded by RLE_INTEGRAL, which no released writer uses")
    if store == StoreType.SHORT_INT:
        return three_bytes(data, signed=True)
    form = _STORED.get(store)
    if form is None:
        unreadable(f"a page of numbers is stored as {store.name}")
    whole(data, form.itemsize)
    return np.frombuffer(data, form)


def _value(values: Any, encoding: int, meta: EncoderMeta) -> Any:
    """Return the values before they were encoded."""
    if encoding in (Encoding.DIRECT_COMPRESS, Encoding.ADAPTIVE_INTEGRAL, Encoding.BOOL_BYTE):
        return values
    if encoding == Encoding.ADAPTIVE_DELTA_INTEGRAL:
        return np.int64(_scaled_max(meta, 1)) - values.astype(np.int64)  # wraps as Java does
    if values.dtype.kind == "f":
        return values
    if not 0 <= meta.decimals <= _MAX_DECIMALS:
        damaged(f"a page of floats has {meta.decimals} decimals")
    factor = 10.0**meta.decimals
    if encoding == Encoding.ADAPTIVE_FLOATING:
        return values / factor
    return (float(_scaled_max(meta, factor)) - values) / factor


def _scaled_max(meta: EncoderMeta, factor: float) -> int:
    if meta.maximum is None or not -(2**63) <= meta.maximum * factor < 2**63:
        damaged("a page of differences has no maximum")
    return int(meta.maximum * factor)


def _wide_decimals(data: U8Array, meta: EncoderMeta, kind: Any) -> Any:
    if meta.precision < 0:
        return scaled_decimals(length_value(data, 4), kind)
    if meta.precision <= _SMALL_PRECISION or meta.precision > 38:
        unreadable(f"decimals of precision {meta.precision} are stored in several bytes")
    return fixed_decimals(data, decimal_width(meta.precision), kind)
