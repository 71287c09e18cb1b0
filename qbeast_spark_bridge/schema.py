"""Schemas between the Delta log, Spark and Polars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from qbeast_core.errors import SchemaMismatchError
from qbeast_core.spec.layout import WEIGHT_COLUMN

_POLARS: Final[dict[type[DataType], pl.DataType]] = {
    BinaryType: pl.Binary(),
    BooleanType: pl.Boolean(),
    ByteType: pl.Int8(),
    CharType: pl.String(),
    DateType: pl.Date(),
    DoubleType: pl.Float64(),
    FloatType: pl.Float32(),
    IntegerType: pl.Int32(),
    LongType: pl.Int64(),
    NullType: pl.Null(),
    ShortType: pl.Int16(),
    StringType: pl.String(),
    TimestampNTZType: pl.Datetime("us"),
    TimestampType: pl.Datetime("us", "UTC"),
    VarcharType: pl.String(),
}
# Spark pads columns so marked when it reads them; the rows are what the files hold, in every engine.
_PADDING: Final = "__CHAR_VARCHAR_TYPE_STRING"


def spark_schema(schema_json: str) -> StructType:
    """Return the Spark schema of a Delta table.

    Nullability, comments and collations stay. Columns of ``char(n)`` and ``varchar(n)``, which Delta stores as
    strings with a note, are strings: Spark would pad them.
    """
    whole = StructType.fromJson(_without_padding(json.loads(schema_json)))
    return StructType([field for field in whole.fields if field.name.lower() != WEIGHT_COLUMN])


def nullable_schema(schema: StructType) -> StructType:
    """Return the same columns, every one of them and of their parts nullable: how Spark reads files."""
    return StructType([_nullable_field(field) for field in schema.fields])


def empty_frame(schema: StructType) -> pl.DataFrame:
    """Return no rows of the Polars types that a table has for Spark's."""
    problems = [
        f"column {field.name!r} has {bad}" for field in schema.fields for bad in _misfits(field.dataType)
    ]
    if problems:
        msg = (
            f"{len(problems)} column(s) cannot be stored in a Delta table: {'; '.join(problems)}. "
            "Nothing was written. Cast or drop them."
        )
        raise SchemaMismatchError(msg, problems=problems)
    # Series, not a schema: a mapping would swallow the second of two columns of one name.
    columns = [pl.Series(field.name, [], dtype=_to_polars(field.dataType)) for field in schema.fields]
    _refuse_twins([column.name for column in columns])
    return pl.DataFrame(columns)


def collated_columns(schema: StructType) -> list[str]:
    """Return the top-level columns that are, or hold, strings compared otherwise than by their bytes."""
    return [field.name for field in schema.fields if _is_collated(field.dataType)]


def quoted(name: str) -> str:
    """Return a column's name as Spark takes it for one, whatever it holds.

    >>> quoted("a.b")
    '`a.b`'
    """
    return f"`{name.replace('`', '``')}`"


def _without_padding(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_padding(part) for key, part in value.items() if key != _PADDING}
    return [_without_padding(one) for one in value] if isinstance(value, list) else value


def _nullable_field(field: StructField) -> StructField:
    return StructField(field.name, _nullable(field.dataType), nullable=True, metadata=field.metadata)


def _nullable(dtype: DataType) -> DataType:
    match dtype:
        case StructType():
            return nullable_schema(dtype)
        case ArrayType():
            return ArrayType(_nullable(dtype.elementType), containsNull=True)
        case MapType():
            return MapType(_nullable(dtype.keyType), _nullable(dtype.valueType), valueContainsNull=True)
        case _:
            return dtype


def _parts(dtype: DataType) -> Iterator[DataType]:
    """Yield a type and all that it is made of."""
    yield dtype
    match dtype:
        case StructType():
            inner = [field.dataType for field in dtype.fields]
        case ArrayType():
            inner = [dtype.elementType]
        case MapType():
            inner = [dtype.keyType, dtype.valueType]
        case _:
            inner = []
    for part in inner:
        yield from _parts(part)


def _misfits(dtype: DataType) -> Iterator[str]:
    for part in _parts(dtype):
        if isinstance(part, StructType) and not part.fields:
            yield "a struct without fields"
        elif (
            not isinstance(part, StructType | ArrayType | MapType | DecimalType) and type(part) not in _POLARS
        ):
            yield f"type {part.simpleString()}"


def _to_polars(dtype: DataType) -> pl.DataType:
    match dtype:
        case StructType():
            return pl.Struct([pl.Field(field.name, _to_polars(field.dataType)) for field in dtype.fields])
        case ArrayType():
            return pl.List(_to_polars(dtype.elementType))
        case MapType():
            return pl.Map(_to_polars(dtype.keyType), _to_polars(dtype.valueType))
        case DecimalType():
            return pl.Decimal(dtype.precision, dtype.scale)
        case _:
            return _POLARS[type(dtype)]


def _refuse_twins(names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        msg = f"the DataFrame has more than one column named {twins}; nothing was written. Rename them."
        raise SchemaMismatchError(
            msg, problems=[f"column {name!r} is there more than once" for name in twins]
        )


def _is_collated(dtype: DataType) -> bool:
    plain = "UTF8_BINARY"
    return any(getattr(part, "collation", plain) != plain for part in _parts(dtype))  # unknown to Spark 3.5


def numbered(df: DataFrame) -> DataFrame:
    """Return the rows with columns called c0, c1 and so on.

    PySpark's ``mapInArrow`` takes the name of a column for an expression: a dot in it would be a field of a
    struct, a backtick a quote.
    """
    return df.toDF(*(f"c{number}" for number in range(len(df.columns))))
