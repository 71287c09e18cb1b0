"""Bounds of blocklets and pages as values, and where they cannot be trusted.

Nulls count as 0 (measures) or as the null token (texts): bounds may be wider than the values, never narrower.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from qbeast_carbondata.columns import Column
from qbeast_carbondata.pages.dimensions import DATE_CUTOFF
from qbeast_carbondata.structs.schema import DataType, Encoding

# Minimum and maximum, as Python values of the column's type.
Bounds = tuple[Any, Any]

_WHOLE: Final = frozenset({DataType.SHORT, DataType.INT, DataType.LONG, DataType.TIMESTAMP})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode_bounds(column: Column, stored: tuple[bytes, bytes] | None) -> Bounds | None:
    """Return the bounds of a column, None where they are unknown."""
    if stored is None or column.is_nested or column.has_global_dictionary:
        return None
    decode = _dimension_bound if column.schema.is_dimension else _measure
    try:
        least, most = (decode(column, data) for data in stored)
    except (ValueError, OverflowError):  # not UTF-8, or a time outside of Python's years
        return None
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


def _dimension_bound(column: Column, data: bytes) -> Any:
    if column.kind == DataType.STRING:
        return data.decode()
    if column.kind == DataType.DATE:
        days = int.from_bytes(data, "big") - DATE_CUTOFF
        return date.fromordinal(_EPOCH.toordinal() + days) if len(data) == 4 else None
    if column.kind not in _WHOLE or len(data) != column.byte_width:
        return None
    value = int.from_bytes(data, "big") - (1 << 8 * len(data) - 1)
    return _EPOCH + timedelta(milliseconds=value) if column.kind == DataType.TIMESTAMP else value


def _measure(column: Column, data: bytes) -> Any:
    kind = column.kind
    if kind == DataType.DECIMAL and 2 <= len(data) <= 18:
        return Decimal(f"{int.from_bytes(data[1:], 'big', signed=True)}E-{data[0]}")  # exact, unlike scaleb
    if len(data) != (1 if kind in (DataType.BYTE, DataType.BOOLEAN) else 8):
        return None
    if kind == DataType.DOUBLE:
        return float(np.frombuffer(data, ">f8")[0])
    value = int.from_bytes(data, "big", signed=True)
    if kind == DataType.TIMESTAMP:
        return _EPOCH + timedelta(milliseconds=value)
    if kind == DataType.BOOLEAN:
        return bool(value)
    return value if kind in _WHOLE or kind == DataType.BYTE else None
