"""Names of the stored column types, and which of them are ordered (format 3)."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

# Types whose values have an order that a range can follow: all but strings.
OrderedDataType: TypeAlias = Literal[
    "DoubleDataType",
    "IntegerDataType",
    "LongDataType",
    "FloatDataType",
    "DecimalDataType",
    "TimestampDataType",
    "DateDataType",
]

# Every type a column can be indexed as.
DataType: TypeAlias = OrderedDataType | Literal["StringDataType"]

# Types whose bounds are JSON integers; timestamps and dates count milliseconds since 1970 UTC.
INTEGER_DATA_TYPES: Final[frozenset[DataType]] = frozenset(
    {"IntegerDataType", "LongDataType", "TimestampDataType", "DateDataType"}
)
