"""Rows of streaming segments, and members of global dictionaries.

The begins of rows are found for a whole blocklet at once (`qbeast_carbondata.pages.texts`), then the fields, one
of all rows after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from qbeast_carbondata.columns import Column
from qbeast_carbondata.damage import damaged, place, unreadable
from qbeast_carbondata.pages.numbers import as_type, scaled_decimals
from qbeast_carbondata.pages.page import NULL_SURROGATE, Dictionaries, plain_values, surrogate_values
from qbeast_carbondata.pages.texts import Slices, chain, with_nulls
from qbeast_carbondata.structs import DataType, Encoding
from qbeast_core.io.thrift import ThriftError, read_varint
from qbeast_core.space.values import BoolArray, I64Array, U8Array

# A chunk is a Thrift struct with one list of texts; its members are found all at once, not one by one.
_VALUES, _END = 0x19, 0x00
_LIST_OF_BINARY: Final = 8
_LONG_LIST: Final = 0xF0
_LENGTH_BYTES: Final = 3  # of a varint: enough for a text of 32,000 characters


def read_dictionary(data: bytes) -> Slices:
    r"""Read a ``.dict``: the members in the order of their surrogates, the first of which is 1.

    >>> slices = read_dictionary(b"\x19\x28\1a\2bc\0" b"\x19\x18\0\0")
    >>> slices.starts, slices.lengths
    (array([ 3,  5, 11]), array([1, 2, 0]))
    """
    buffer = np.frombuffer(data, np.uint8)
    starts: list[I64Array] = [np.empty(0, np.int64)]
    lengths: list[I64Array] = [np.empty(0, np.int64)]
    at = 0
    while at < len(data):
        count, at = _list_head(data, at)
        heads = chain(lambda places: _bodies(buffer, places)[1], at, len(data), count)
        begins, ends = _bodies(buffer, heads[:-1])
        starts.append(begins)
        lengths.append(ends - begins)
        at = int(heads[-1])
        if at >= len(data) or data[at] != _END:
            damaged(f"a chunk of the dictionary does not end at byte {at}")
        at += 1
    return Slices(buffer, np.concatenate(starts), np.concatenate(lengths))


def _list_head(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of members of a chunk, and where the first begins."""
    head = data[at + 1] if at + 1 < len(data) else 0
    if data[at] != _VALUES or head & 0x0F != _LIST_OF_BINARY:
        damaged(f"no chunk of a dictionary begins at byte {at}")
    if head < _LONG_LIST:
        return head >> 4, at + 2
    try:
        count, at = read_varint(data, at + 2)
    except ThriftError as error:
        damaged(str(error))
    if count > len(data) - at:
        damaged(f"{count} members cannot follow byte {at} of {len(data)}")
    return count, at


def _bodies(data: U8Array, heads: I64Array) -> tuple[I64Array, I64Array]:
    """Return the begins and ends of strings whose lengths, as varints, are at some positions."""
    starts, lengths = heads + 1, np.zeros(len(heads), np.int64)
    more = np.ones(len(heads), np.bool_)
    for number in range(_LENGTH_BYTES):
        byte = data[np.minimum(heads + number, len(data) - 1)].astype(np.int64)
        lengths += np.where(more, (byte & 0x7F) << 7 * number, 0)
        starts += more & (number > 0)
        more &= byte > 0x7F
    return starts, np.where(more, len(data) + 1, starts + lengths)


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
