"""Rows of streaming segments: bits of null fields, then the fields, most of any length.

The begins of rows are found for a whole blocklet at once (`qbeast_carbondata.pages.chains`), then the fields, one
of all rows after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from qbeast_carbondata.columns import Column
from qbeast_carbondata.damage import damaged, place, unreadable
from qbeast_carbondata.pages.arrays import with_nulls
from qbeast_carbondata.pages.chains import chain
from qbeast_carbondata.pages.decimals import scaled_decimals
from qbeast_carbondata.pages.dimensions import (
    NULL_SURROGATE,
    Dictionaries,
    plain_values,
    surrogate_values,
)
from qbeast_carbondata.pages.numbers import as_type
from qbeast_carbondata.pages.texts import Slices
from qbeast_carbondata.structs.schema import DataType, Encoding
from qbeast_core.space.values import BoolArray, I64Array, U8Array

_SURROGATE_BYTES: Final = 4
_WIDEST: Final = 8
_MEASURES: Final = frozenset({DataType.BOOLEAN, DataType.SHORT, DataType.INT, DataType.LONG, DataType.DOUBLE})


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a row: `fixed_bytes`, or a length of `length_bytes` and the bytes that it counts."""

    column: Column
    fixed_bytes: int
    length_bytes: int


def _field(column: Column) -> _Field:
    kind = column.kind
    if column.is_nested:
        unreadable(f"column {column.schema.name!r} is nested, in a streaming segment")
    if not column.schema.is_dimension:
        if kind == DataType.DECIMAL:
            return _Field(column, 0, 2)
        if kind not in _MEASURES:
            unreadable(f"measure {column.schema.name!r} is a {kind.name}, in a streaming segment")
        return _Field(column, column.byte_width, 0)
    if Encoding.DICTIONARY in column.schema.encoders:
        return _Field(column, _SURROGATE_BYTES, 0)
    return _Field(column, 0, 4 if kind == DataType.VARCHAR else 2)


def decode_rows(
    data: U8Array, rows: int, columns: Sequence[Column], wanted: Sequence[Column], dictionaries: Dictionaries
) -> list[Any]:
    """Return some of the columns of the rows of a blocklet."""
    fields = [_field(column) for column in columns]
    starts = chain(lambda at: _row_ends(data, at, fields), 0, len(data), rows)
    if starts[-1] != len(data):
        damaged(f"{rows} rows end at byte {int(starts[-1])} of {len(data)}")
    numbers = {column.number for column in wanted}
    arrays: dict[int, Any] = {}
    for field, begins, lengths, nulls in _walk(data, starts[:-1], fields):
        column = field.column
        if column.number in numbers:
            with place(f"column {column.schema.name!r}"):
                arrays[column.number] = _values(field, Slices(data, begins, lengths), nulls, dictionaries)
    return [arrays[column.number] for column in wanted]


def _row_ends(data: U8Array, at: I64Array, fields: Sequence[_Field]) -> I64Array:
    """Return the ends of rows that would begin at some positions; beyond the data where no row can begin."""
    ends = np.full(len(at), len(data) + 1, np.int64)
    bit_bytes = _byte(data, at + 1)
    can_be = _byte(data, at) == 0
    full = can_be & (bit_bytes == 0)
    ends[full] = _full_row_ends(data, at[full] + 2, fields)
    partial = can_be & (bit_bytes > 0) & (bit_bytes <= (len(fields) + 7) // 8)
    end = at[partial]
    for _, begins, lengths, _ in _walk(data, end, fields):
        end = begins + lengths
    ends[partial] = end
    return ends


def _full_row_ends(data: U8Array, at: I64Array, fields: Sequence[_Field]) -> I64Array:
    """Return the ends of rows without nulls; of fields with a fixed length only the sum counts."""
    fixed = 0
    for field in fields:
        fixed += field.fixed_bytes
        if field.length_bytes:
            at = at + fixed
            at = at + _number(data, at, field.length_bytes)
            fixed = field.length_bytes
    return at + fixed


def _walk(
    data: U8Array, starts: I64Array, fields: Sequence[_Field]
) -> Iterator[tuple[_Field, I64Array, I64Array, BoolArray]]:
    """Yield each field with the begin and the number of its bytes in each row, and where it is null."""
    bit_bytes = _number(data, starts, 2)
    at = starts + 2 + bit_bytes
    for number, field in enumerate(fields):
        byte, bit = divmod(number, 8)
        nulls = (bit_bytes > byte) & (_byte(data, starts + 2 + byte) >> bit & 1 > 0)
        if field.length_bytes:
            lengths = np.where(nulls, 0, _number(data, at, field.length_bytes))
            begins = at + np.where(nulls, 0, field.length_bytes)
        else:
            lengths, begins = np.where(nulls, 0, field.fixed_bytes), at
        yield field, begins, lengths, nulls
        at = begins + lengths


def _byte(data: U8Array, at: I64Array) -> U8Array:
    """Return the bytes at some positions; beyond the data any byte, since a row there ends beyond the data too."""
    return data[np.minimum(at, len(data) - 1)]


def _number(data: U8Array, at: I64Array, width: int) -> I64Array:
    numbers = np.zeros(len(at), np.int64)
    for byte in range(width):
        numbers = numbers << 8 | _byte(data, at + byte)
    return numbers


def _values(field: _Field, slices: Slices, nulls: BoolArray, dictionaries: Dictionaries) -> Any:
    column = field.column
    kind, missing = column.arrow_type, nulls if nulls.any() else None
    if field.length_bytes:
        if column.schema.is_dimension:
            return with_nulls(plain_values(slices, column), missing)
        return scaled_decimals(slices, kind, missing)
    width = field.fixed_bytes
    numbers = np.where(nulls, 0, _number(slices.data, slices.starts, width))
    if column.schema.is_dimension:
        return surrogate_values(np.where(nulls, NULL_SURROGATE, numbers), column, dictionaries)
    if column.kind == DataType.DOUBLE:
        return as_type(numbers.view(np.float64), kind, missing)
    if width < _WIDEST:
        sign = 1 << (8 * width - 1)
        numbers = (numbers ^ sign) - sign
    return as_type(numbers, kind, missing)
