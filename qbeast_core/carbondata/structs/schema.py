"""Structs of ``schema.thrift``: columns and tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from qbeast_core.carbondata.damage import Unreadable
from qbeast_core.carbondata.fields import I32_MAX, Fields
from qbeast_core.io.thrift import ThriftStruct

_MOST_ENUM: Final = 255


class DataType(IntEnum):
    """Type of a column; not the numbers that encoder meta use."""

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


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """A column, or a node of a complex one."""

    # Its type; a nested one is followed by `num_child` children in the list that holds it.
    data_type: DataType
    # Its name, lower case; what identifies it through renames: a UUID, or the name again for files of the
    # SDK.
    name: str
    column_id: str
    # `DICTIONARY` alone: it has a global dictionary; with `DIRECT_DICTIONARY`: its numbers are computed.
    encoders: tuple[int, ...]
    # Whether its pages are a dimension's; a measure's otherwise.
    is_dimension: bool
    scale: int
    precision: int
    num_child: int
    # What rows have that were written before the column was added, in a form that depends on the type.
    default_value: bytes | None
    properties: dict[str, str]
    invisible: bool
    # Its place in the user's CREATE TABLE, or -1.
    ordinal: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> ColumnSchema:
        """Read one."""
        f = Fields(struct, "ColumnSchema")
        name = f.text(2)
        kind = f.integer(1, most=_MOST_ENUM)
        if kind not in DataType._value2member_map_:
            message = f"column {name!r} has a type of unknown number {kind}"
            raise Unreadable(message)
        if f.integer(7, -1, least=-1) >= 0 and not f.flag(4, default=True):
            message = f"column {name!r} lies in a column group"
            raise Unreadable(message)
        return cls(
            data_type=DataType(kind),
            name=name,
            column_id=f.text(3, name),
            encoders=f.integers(5, most=_MOST_ENUM),
            is_dimension=f.flag(6),
            scale=f.integer(8, 0, least=-I32_MAX, most=I32_MAX),
            precision=f.integer(9, 0, least=-I32_MAX, most=I32_MAX),
            num_child=f.integer(10, 0, most=I32_MAX),
            default_value=f.binary(12) if f.has(12) else None,
            properties=f.texts(13),
            invisible=f.flag(14, default=False),
            ordinal=f.integer(16, -1, least=-1, most=I32_MAX),
        )


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """How a table is partitioned: `kind` is RANGE 0, RANGE_INTERVAL 1, LIST 2, HASH 3 or NATIVE_HIVE 4."""

    columns: tuple[ColumnSchema, ...]
    kind: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> PartitionInfo:
        """Read one."""
        f = Fields(struct, "PartitionInfo")
        return cls(f.structs(1, ColumnSchema.of), f.integer(2, most=_MOST_ENUM))


@dataclass(frozen=True, slots=True)
class BucketingInfo:
    """How rows are hashed into buckets."""

    columns: tuple[ColumnSchema, ...]
    number_of_buckets: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> BucketingInfo:
        """Read one."""
        f = Fields(struct, "BucketingInfo")
        return cls(f.structs(1, ColumnSchema.of), f.integer(2, most=I32_MAX))


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns and properties."""

    table_id: str
    # Flat, depth first, dropped ones too.
    columns: tuple[ColumnSchema, ...]
    properties: dict[str, str]
    # None if there is none.
    partitioning: PartitionInfo | None
    bucketing: BucketingInfo | None

    @classmethod
    def of(cls, struct: ThriftStruct) -> TableSchema:
        """Read one."""
        f = Fields(struct, "TableSchema")
        return cls(
            table_id=f.text(1),
            columns=f.structs(2, ColumnSchema.of),
            properties=f.texts(4),
            partitioning=f.struct(6, PartitionInfo.of) if f.has(6) else None,
            bucketing=f.struct(5, BucketingInfo.of) if f.has(5) else None,
        )


@dataclass(frozen=True, slots=True)
class TableInfo:
    """The file ``Metadata/schema``; `aggregates` counts the aggregate tables of old releases."""

    fact_table: TableSchema
    aggregates: int

    @classmethod
    def of(cls, struct: ThriftStruct) -> TableInfo:
        """Read one."""
        f = Fields(struct, "TableInfo")
        return cls(f.struct(1, TableSchema.of), len(f.structs(2, lambda one: one)))
