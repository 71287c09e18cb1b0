"""Measures of CarbonData 1.0 and 1.1 (versions 1, 2 and 3): the codec is not named, but follows from the bounds.

Version 3 stores the bounds in bytes (`read_byte_meta`), older versions as a serialised Java object.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np

from qbeast_carbondata.damage import damaged
from qbeast_carbondata.pages.decimals import decimal_width, fixed_decimals, scaled_decimals
from qbeast_carbondata.pages.numbers import as_type
from qbeast_carbondata.pages.texts import length_value
from qbeast_core.space.values import BoolArray, U8Array

_FORMS: Final = {
    "n": struct.Struct(">ddd"),
    "d": struct.Struct(">qqq"),
    "l": struct.Struct(">qqq"),
    "j": struct.Struct(">hhq"),
    "k": struct.Struct(">iiq"),
}
_WIDTHS: Final[dict[int, np.dtype[Any]]] = {width: np.dtype(f"<i{width}") for width in (1, 2, 4, 8)}
_INT64: Final = 2**63
_MAX_DECIMALS: Final = 400
_MAX_PRECISION: Final = 38
_EXACT_POWER: Final = 22  # powers of ten up to here are doubles
_EXACT_DIGITS: Final = 10**15  # decimals of fewer digits are distinct doubles
_BARE: Final = 7  # bytes of the meta of a decimal without bounds


@dataclass(frozen=True, slots=True)
class LegacyMeta:
    """ValueEncoderMeta."""

    # `"d"`, `"j"`, `"k"`: integers; `"l"`: integers as they are; `"n"`: doubles; `"b"`: decimals.
    kind: str
    # 0 for decimals.
    maximum: int | float
    minimum: int | float
    # Digits behind the point, of doubles.
    decimals: int
    # Of decimals that have one width, in builds before 1.2; 0 where they follow their lengths.
    precision: int = 0


def read_byte_meta(data: bytes) -> LegacyMeta:
    """Read the meta of a page of version 3 by CarbonData 1.1."""
    kind = chr(int.from_bytes(data[:2], "big"))
    if kind == "b":  # with bounds, a scale, a precision, decimals and a byte, or without all of these
        precision = int.from_bytes(data[-9:-5], "big") if len(data) > _BARE else 0
        return LegacyMeta(kind, 0, 0, 0, precision)
    form = _FORMS.get(kind)
    if form is None or len(data) < 2 + form.size + 4:
        damaged(f"the meta of a measure of {len(data)} bytes and kind {kind!r} cannot be read")
    maximum, minimum, _ = form.unpack_from(data, 2)
    decimals = int.from_bytes(data[2 + form.size : 6 + form.size], "big", signed=True)
    return LegacyMeta(kind, maximum, minimum, decimals)


def decode_legacy_measure(
    data: U8Array, meta: LegacyMeta, rows: int, kind: Any, nulls: BoolArray | None
) -> Any:
    """Decode a page of a measure."""
    if meta.kind == "b" and 0 < meta.precision <= _MAX_PRECISION:
        return fixed_decimals(data, decimal_width(meta.precision), kind, nulls)
    if meta.kind == "b":
        slices = length_value(data, 4)
        if len(slices) != rows:
            damaged(f"a page of {rows} rows has {len(slices)} decimals")
        return scaled_decimals(slices, kind, nulls)
    if rows == 0:
        return as_type(np.empty(0, np.int64), kind, nulls)
    width = len(data) // rows
    if width * rows != len(data) or width not in _WIDTHS:
        damaged(f"a measure of {rows} rows has {len(data)} bytes")
    values = np.frombuffer(data, _WIDTHS[width])
    decoded = _doubles(data, values, width, meta) if meta.kind == "n" else _integers(values, width, meta)
    return as_type(decoded, kind, nulls)


def has_lost_values(meta: LegacyMeta, size_bytes: int, rows: int) -> bool:
    """Return whether a page has differences of integers that CarbonData 1.0 cut when it wrote them.

    >>> meta = LegacyMeta("d", 2**63 - 1, -(2**63), 0)
    >>> [has_lost_values(meta, width * 10, 10) for width in (1, 8)]
    [True, False]
    """
    if meta.kind != "d" or not rows:
        return False
    return size_bytes // rows < _size(meta.maximum) and meta.maximum - meta.minimum >= _INT64


def _integers(values: Any, width: int, meta: LegacyMeta) -> Any:
    """Return integers: they are differences from the maximum exactly if they are narrower than it."""
    maximum, minimum = int(meta.maximum), int(meta.minimum)
    if meta.kind == "l" or width >= _size(maximum):
        return values
    integers = np.int64(maximum) - values.astype(np.int64)
    if maximum - minimum < _INT64:
        return integers
    # Differences that were cut may be negative; CarbonData's own reader returns the largest integer then.
    return np.where((values < 0) & (integers < maximum), _INT64 - 1, integers)


def _doubles(data: U8Array, values: Any, width: int, meta: LegacyMeta) -> Any:
    maximum, minimum = float(meta.maximum), float(meta.minimum)
    far = maximum if abs(maximum) >= abs(minimum) else minimum
    if not 0 <= meta.decimals <= _MAX_DECIMALS:
        damaged(f"a measure has {meta.decimals} decimals")
    if meta.decimals:
        if width == 8:
            return np.frombuffer(data, "<f8")
        factor = 10.0**meta.decimals if meta.decimals <= 308 else np.inf
        if width >= _size(far * factor):
            return values / factor
        return _exact_difference(maximum, values, meta.decimals, factor)
    if width == 8 and not abs(far) < _INT64:
        return np.frombuffer(data, "<f8")
    if width < _size(far):
        return maximum - values.astype(np.float64)
    return values


def _exact_difference(maximum: float, stored: Any, decimals: int, factor: float) -> Any:
    """Return ``maximum - stored / factor`` by the shortest texts of both, as Java's BigDecimal does."""
    high = Decimal(repr(maximum))
    whole = high.scaleb(decimals)
    if decimals <= _EXACT_POWER and whole == whole.to_integral_value() and abs(whole) < _EXACT_DIGITS:
        numbers = stored.astype(np.int64)
        if len(numbers) and max(int(numbers.max()), -int(numbers.min())) < _EXACT_DIGITS:
            # These digits are the shortest text, and one division of whole numbers is rounded once.
            return (int(whole) - numbers) / factor
    distinct, at = np.unique(stored / factor, return_inverse=True)
    return np.array([float(high - Decimal(repr(value))) for value in distinct.tolist()], np.float64)[at]


def _size(value: float) -> int:
    """Return the bytes that a number takes: 1, 2, 4 or 8."""
    for width in (1, 2, 4):
        if -(1 << (8 * width - 1)) <= value < 1 << (8 * width - 1):
            return width
    return 8
