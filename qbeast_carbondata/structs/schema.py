"""Structs of ``schema.thrift``: columns and tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Final

from qbeast_carbondata.damage import unreadable
from qbeast_carbondata.structs.fields import (
    ENUM,
    I32,
    Struct,
    binary,
    flag,
    integer,
    list_of,
    text,
    texts,
)

_SIGNED: Final = integer(-(2**31) + 1, 2**31 - 1)
_OR_NONE: Final = integer(-1, 2**31 - 1)


class DataType(IntEnum):
    """Type of a column; encoder meta number types in another way."""

    STRING = 0
    SHORT = 1
    INT = 2
    LONG = 3
    DOUBLE = 4
    DECIMAL = 5
    TIMESTAMP = 6
    DATE = 7
    BOOLEAN = 8
    ARRAY = 20
    STRUCT = 21
    VARCHAR = 22
    MAP = 23
    FLOAT = 24
    BYTE = 25
    BINARY = 26
    UNKNOWN = -1

    @classmethod
    def _missing_(cls, value: object) -> DataType:  # noqa: ARG003 - the name that enum gives it
        return cls.UNKNOWN


class Encoding(IntEnum):
    """How a column, or a page of it, is encoded."""

    DICTIONARY = 0
    DELTA = 1
    RLE = 2
    INVERTED_INDEX = 3
    BIT_PACKED = 4
    DIRECT_DICTIONARY = 5
    DIRECT_COMPRESS = 6
    ADAPTIVE_INTEGRAL = 7
    ADAPTIVE_DELTA_INTEGRAL = 8
    RLE_INTEGRAL = 9
    DIRECT_STRING = 10
    ADAPTIVE_FLOATING = 11
    BOOL_BYTE = 12
    ADAPTIVE_DELTA_FLOATING = 13
    DIRECT_COMPRESS_VARCHAR = 14
    INT_LENGTH_COMPLEX_CHILD_BYTE_ARRAY = 15


def _data_type(value: object) -> DataType:
    return DataType(ENUM(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema(Struct):
    """A column, or a node of a complex one."""

    # A nested column is followed by `num_child` children in its list.
    data_type: Annotated[DataType, 1, _data_type]
    # Lower case.
    name: Annotated[str, 2, text]
    # Identifies the column through renames: a UUID, or the name in files of the SDK.
    column_id: Annotated[str, 3, text] = ""
    # `DICTIONARY` alone: it has a global dictionary; with `DIRECT_DICTIONARY`: its numbers are computed.
    encoders: Annotated[tuple[int, ...], 5, list_of(ENUM)] = ()
    # Whether its pages are a dimension's; a measure's otherwise.
    is_dimension: Annotated[bool, 6, flag]
    scale: Annotated[int, 8, _SIGNED] = 0
    precision: Annotated[int, 9, _SIGNED] = 0
    num_child: Annotated[int, 10, I32] = 0
    # The value of rows that were written before the column was added; its form depends on the type.
    default_value: Annotated[bytes | None, 12, binary] = None
    properties: Annotated[dict[str, str], 13, texts] = field(default_factory=dict[str, str])
    invisible: Annotated[bool, 14, flag] = False
    # Its place in the user's CREATE TABLE, or -1.
    ordinal: Annotated[int, 16, _OR_NONE] = -1
    is_columnar: Annotated[bool, 4, flag] = True
    column_group: Annotated[int, 7, _OR_NONE] = -1

    def __post_init__(self) -> None:
        if self.data_type == DataType.UNKNOWN:
            unreadable(f"column {self.name!r} has a type that is not supported")
        if self.column_group >= 0 and not self.is_columnar:
            unreadable(f"column {self.name!r} lies in a column group")
        if not self.column_id:
            object.__setattr__(self, "column_id", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnList(Struct):
    """The columns that partition a table, or that hash its rows into buckets."""

    columns: Annotated[tuple[ColumnSchema, ...], 1, list_of(ColumnSchema.of)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema(Struct):
    """A table's columns and properties."""

    # Flat, depth first, dropped ones too.
    columns: Annotated[tuple[ColumnSchema, ...], 2, list_of(ColumnSchema.of)] = ()
    properties: Annotated[dict[str, str], 4, texts] = field(default_factory=dict[str, str])
    partitioning: Annotated[ColumnList, 6, ColumnList.of] = ColumnList()
    bucketing: Annotated[ColumnList, 5, ColumnList.of] = ColumnList()
