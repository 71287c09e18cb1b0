"""Pages with an encoder meta: numbers as they are, narrowed, as differences from the maximum, or scaled."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.pages.arrays import array_of, null_mask, three_bytes, whole, with_nulls
from qbeast_carbondata.pages.decimals import (
    decimal_width,
    fixed_decimals,
    scaled_decimals,
    small_decimals,
)
from qbeast_carbondata.pages.encoder_meta import EncoderMeta, StoreType
from qbeast_carbondata.pages.texts import length_value
from qbeast_carbondata.structs.schema import Encoding
from qbeast_core.space.values import BoolArray, I64Array, U8Array

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
        return small_decimals(values.astype(np.int64), kind, nulls)
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
