"""Join row groups that were encoded one by one to one Parquet file.

pyarrow cuts all pages of a file after the same number of rows, so row groups with other pages are files of their own.
Here their data moves behind that of the row groups before, and their page indexes behind all data, where readers fetch
them at once. So all positions change: in the column chunks and in the OffsetIndexes.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from qbeast_core.io.parquet.footer import MAGIC, shift_page_locations
from qbeast_core.io.parquet.thrift import (
    STRUCT,
    ThriftStruct,
    read_struct,
    replace_fields,
    write_list,
    write_zigzag,
)

# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_START, _GROUP_NUMBER = 1, 5, 7
_META, _OFFSET_INDEX, _COLUMN_INDEX = 3, 4, 6  # the length of an index is the next field
_PAGE_STARTS = (9, 10, 11)


class JoinedFile(NamedTuple):
    """A Parquet file in pieces."""

    # All before the footer.
    body: list[bytes | memoryview]
    # The footer, its length and the magic bytes.
    tail: bytes


class _Part(NamedTuple):
    """A row group that is encoded as a file."""

    file: memoryview
    footer: bytes
    meta: ThriftStruct
    group: ThriftStruct
    columns: list[ThriftStruct]
    # Where its data ends and its page indexes begin.
    data_end: int


def footer_at(file: memoryview) -> int:
    """Return where the footer of a file begins."""
    return len(file) - 8 - int.from_bytes(file[-8:-4], "little")


def join_row_groups(files: list[memoryview]) -> JoinedFile:
    """Join files of one row group each, with the same columns, all with an OffsetIndex."""
    if len(files) == 1:
        at = footer_at(files[0])
        return JoinedFile([files[0][:at]], bytes(files[0][at:]))
    parts = list(map(_part, files))
    body: list[bytes | memoryview] = [MAGIC, *(part.file[len(MAGIC) : part.data_end] for part in parts)]
    starts = list(accumulate(map(len, body)))
    at = starts[-1]
    places = [[dict[int, int]() for _ in part.columns] for part in parts]
    for kind in (_COLUMN_INDEX, _OFFSET_INDEX):
        for part, start, fields in zip(parts, starts, places, strict=False):
            for column, values in zip(part.columns, fields, strict=True):
                if kind in column.fields:
                    index = _index(part, column, kind, start - len(MAGIC))
                    body.append(index)
                    values |= {kind: at, kind + 1: len(index)}
                    at += len(index)
    groups = list(map(_moved, range(len(parts)), parts, starts, places))
    rows = sum(part.meta.fields[_NUM_ROWS] for part in parts)
    merged = {_ROW_GROUPS: write_list(STRUCT, groups), **_encoded({_NUM_ROWS: rows})}
    footer = replace_fields(parts[0].footer, parts[0].meta, merged)
    return JoinedFile(body, footer + len(footer).to_bytes(4, "little") + MAGIC)


def _part(file: memoryview) -> _Part:
    footer = bytes(file[footer_at(file) : -8])
    meta = read_struct(footer)
    (group,) = meta.fields[_ROW_GROUPS]
    columns: list[ThriftStruct] = group.fields[_COLUMNS]
    places = (column.fields.get(place) for column in columns for place in (_OFFSET_INDEX, _COLUMN_INDEX))
    return _Part(file, footer, meta, group, columns, min(place for place in places if place is not None))


def _index(part: _Part, column: ThriftStruct, kind: int, shift: int) -> bytes:
    """Return a page index of a column chunk."""
    start, size = column.fields[kind], column.fields[kind + 1]
    index = bytes(part.file[start : start + size])
    return index if kind == _COLUMN_INDEX else shift_page_locations(index, shift)


def _moved(number: int, part: _Part, start: int, places: list[dict[int, int]]) -> bytes:
    """Return the row group with its number in the file at another position, with page indexes at new places."""
    shift, columns = start - len(MAGIC), list[bytes]()
    for column, numbers in zip(part.columns, places, strict=True):
        meta: ThriftStruct = column.fields[_META]
        starts = {field: meta.fields[field] + shift for field in _PAGE_STARTS if meta.fields.get(field)}
        fields = {_META: replace_fields(part.footer, meta, _encoded(starts)), **_encoded(numbers)}
        columns.append(replace_fields(part.footer, column, fields))
    group = {_COLUMNS: write_list(STRUCT, columns), **_encoded({_GROUP_START: start, _GROUP_NUMBER: number})}
    return replace_fields(part.footer, part.group, group)


def _encoded(numbers: dict[int, int]) -> dict[int, bytes]:
    return {field: write_zigzag(number) for field, number in numbers.items()}
