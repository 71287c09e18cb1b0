"""Names of the stored column types: which are ordered, and which Delta types they stand for (format 3)."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from qbeast_core.errors import InvalidColumnsError

__all__ = [
    "DATA_TYPES",
    "INTEGER_DATA_TYPES",
    "ORDERED_DATA_TYPES",
    "DataType",
    "OrderedDataType",
    "data_type_of",
]

OrderedDataType: TypeAlias = Literal[
    "DoubleDataType",
    "IntegerDataType",
    "LongDataType",
    "FloatDataType",
    "DecimalDataType",
    "TimestampDataType",
    "DateDataType",
]
DataType: TypeAlias = OrderedDataType | Literal["StringDataType"]

ORDERED_DATA_TYPES: Final[tuple[OrderedDataType, ...]] = get_args(OrderedDataType)
"""Types whose values have an order that a range can follow: all but strings."""

DATA_TYPES: Final[tuple[DataType, ...]] = (*ORDERED_DATA_TYPES, "StringDataType")
"""Every type a column can be indexed as."""

INTEGER_DATA_TYPES: Final[frozenset[DataType]] = frozenset(
    {"IntegerDataType", "LongDataType", "TimestampDataType", "DateDataType"}
)
"""Types whose bounds are JSON integers; timestamps and dates count milliseconds since 1970 UTC."""

_OF_DELTA: Final[dict[str, DataType]] = {
    "byte": "IntegerDataType",
    "short": "IntegerDataType",
    "integer": "IntegerDataType",
    "long": "LongDataType",
    "float": "FloatDataType",
    "double": "DoubleDataType",
    "date": "DateDataType",
    "timestamp": "TimestampDataType",
    "timestamp_ntz": "TimestampDataType",
    "string": "StringDataType",
}


def data_type_of(delta_type: str, *, column: str) -> DataType:
    """Return the stored type of a column of a Delta table.

    Parameters
    ----------
    delta_type : str
        The type as a Delta schema names it: ``"long"``, ``"decimal(10,2)"``.
    column : str
        Name of the column, for the message of the error.

    Returns
    -------
    DataType
        Bytes and shorts are integers, timestamps without zone are timestamps.

    Raises
    ------
    InvalidColumnsError
        If a column of this type cannot be indexed.

    Examples
    --------
    >>> data_type_of("short", column="age"), data_type_of("decimal(10,2)", column="price")
    ('IntegerDataType', 'DecimalDataType')
    """
    if delta_type == "decimal" or delta_type.startswith("decimal("):
        return "DecimalDataType"
    found = _OF_DELTA.get(delta_type)
    if found is None:
        message = (
            f"column {column!r} cannot be indexed: its type is {delta_type}. Nothing was written. "
            f"Index columns of these types: {', '.join([*_OF_DELTA, 'decimal'])}."
        )
        raise InvalidColumnsError(message, columns=[column])
    return found
