"""Bounds of blocklets and pages as values, and where they cannot be trusted.

Nulls count as 0 (measures) or as the null token (texts): bounds may be wider than the values, never narrower.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.pages.dimensions import DATE_CUTOFF
from qbeast_core.carbondata.structs.schema import DataType, Encoding

# Minimum and maximum, as Python values of the column's type.
Bounds = tuple[Any, Any]

_WHOLE: Final = {
    DataType.SHORT: (2, -(2**15)),
    DataType.INT: (4, -(2**31)),
    DataType.LONG: (8, -(2**63)),
    DataType.TIMESTAMP: (8, -(2**63)),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_MS: Final = 253_402_300_799_999  # of the year 9999


def decode_bounds(column: Column, stored: tuple[bytes, bytes] | None) -> Bounds | None:
    """Return the bounds of a column, None where they are unknown."""
    if stored is None or column.is_nested or column.has_global_dictionary:
        return None
    decode = _dimension if column.schema.is_dimension else _measure
    least, most = (decode(column.kind, data) for data in stored)
    return None if least is None or most is None else (least, most)


def old_bounds(column: Column, stored: tuple[bytes, bytes] | None) -> tuple[bytes, bytes] | None:
    """Return bounds that CarbonData up to 1.1 stored, None where they cannot be trusted.

    It stored the first and the last value of a page of a dimension, which are its bounds only where an inverted index
    sorts the page; and it stored types other than text and date in other forms than later releases.
    """
    if not column.schema.is_dimension:
        return stored
    is_sorted = Encoding.INVERTED_INDEX in column.schema.encoders
    return stored if is_sorted and column.kind in (DataType.STRING, DataType.DATE) else None


def _dimension(kind: DataType, data: bytes) -> Any:
    if kind == DataType.STRING:
        return _text(data)
    if kind == DataType.DATE:
        days = int.from_bytes(data, "big") - DATE_CUTOFF if len(data) == 4 else None
        return None if days is None else _guarded(lambda: date(1970, 1, 1) + timedelta(days=days))
    width, least = _WHOLE.get(kind, (0, 0))
    if not width or len(data) != width:
        return None
    value = int.from_bytes(data, "big") + least
    return _timestamp(value) if kind == DataType.TIMESTAMP else value


def _measure(kind: DataType, data: bytes) -> Any:
    if kind in (DataType.BYTE, DataType.BOOLEAN):
        value = int.from_bytes(data, "big", signed=True) if len(data) == 1 else None
        return None if value is None else bool(value) if kind == DataType.BOOLEAN else value
    if kind in _WHOLE:
        value = int.from_bytes(data, "big", signed=True) if len(data) == 8 else None
        return value if value is None or kind != DataType.TIMESTAMP else _timestamp(value)
    if kind == DataType.DOUBLE:
        return float(np.frombuffer(data, ">f8")[0]) if len(data) == 8 else None
    if kind == DataType.DECIMAL and 2 <= len(data) <= 18:
        return Decimal(f"{int.from_bytes(data[1:], 'big', signed=True)}E-{data[0]}")  # exact, unlike scaleb
    return None


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _timestamp(ms: int) -> datetime | None:
    return _guarded(lambda: _EPOCH + timedelta(milliseconds=ms)) if abs(ms) <= _MAX_MS else None


def _guarded(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except OverflowError:
        return None
