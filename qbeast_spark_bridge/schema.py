"""Convert schemas between the Delta log, Spark and Polars."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import polars as pl
from pyspark.sql import DataFrame, types
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
from qbeast_core.log.columns.stored import StoredColumn, stored_type
from qbeast_core.log.schema import VARIANT
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
# Unknown to Spark 3.5.
_VARIANT: Final[type[DataType] | None] = getattr(types, "VariantType", None)
# Spark pads columns with this mark when it reads them. Without it, all engines return the stored values.
_PADDING: Final = "__CHAR_VARCHAR_TYPE_STRING"


def spark_schema(schema_json: str) -> StructType:
    """Return the Spark schema of a Delta table.

    Nullability, comments and collations are kept. Columns of ``char(n)`` and ``varchar(n)``, which Delta stores as
    strings with a mark, become strings: Spark would pad them.
    """
    whole = StructType.fromJson(_without_padding(json.loads(schema_json)))
    return StructType([field for field in whole.fields if field.name.lower() != WEIGHT_COLUMN])


def stored_field(column: StoredColumn) -> StructField:
    """Return the field of a column with its name and type in files."""
    field = {**column.field, "name": column.stored_name, "type": stored_type(column.field["type"])}
    return StructField.fromJson(_without_padding(field))


def nullable_schema(schema: StructType) -> StructType:
    """Return the same columns with everything nullable, as Spark reads files."""
    fields = [
        StructField(field.name, _nullable(field.dataType), nullable=True, metadata=field.metadata)
        for field in schema.fields
    ]
    return StructType(fields)


def with_integer(schema: StructType, name: str) -> StructType:
    """Return the schema with one more column of integers."""
    return StructType([*schema.fields, StructField(name, IntegerType(), nullable=True)])


def empty_frame(schema: StructType) -> pl.DataFrame:
    """Return an empty frame with the Polars types of a Spark schema."""
    problems = [
        f"column {field.name!r} has {bad}"
        for field in schema.fields
        for bad in _unsupported_types(field.dataType)
    ]
    if problems:
        msg = (
            f"{len(problems)} column(s) cannot be stored in a Delta table: {'; '.join(problems)}. "
            "Cast or drop them."
        )
        raise SchemaMismatchError(msg, problems=problems)
    # A list of Series, not a schema: a mapping would drop the second of two columns of one name.
    columns = [pl.Series(field.name, [], dtype=_to_polars(field.dataType)) for field in schema.fields]
    duplicates = [name for name, count in sorted(Counter(schema.names).items()) if count > 1]
    if duplicates:
        problems = [f"column {name!r} occurs more than once" for name in duplicates]
        msg = f"the DataFrame has more than one column named {duplicates}. Rename them."
        raise SchemaMismatchError(msg, problems=problems)
    return pl.DataFrame(columns)


def collated_columns(schema: StructType) -> list[str]:
    """Return the top-level columns that are or contain strings with a collation."""
    return [field.name for field in schema.fields if _is_collated(field.dataType)]


def variant_columns(schema: StructType) -> list[str]:
    """Return the top-level columns that are or contain variants."""
    return [field.name for field in schema.fields if any(map(_is_variant, _parts(field.dataType)))]


def quoted(name: str) -> str:
    """Quote a column's name for Spark's SQL.

    >>> quoted("a.b")
    '`a.b`'
    """
    return f"`{name.replace('`', '``')}`"


def _without_padding(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_padding(part) for key, part in value.items() if key != _PADDING}
    return [_without_padding(item) for item in value] if isinstance(value, list) else value


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
    """Yield a type and all types nested in it."""
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


def _unsupported_types(dtype: DataType) -> Iterator[str]:
    for part in _parts(dtype):
        if isinstance(part, StructType) and not part.fields:
            yield "a struct without fields"
        elif isinstance(part, StructType | ArrayType | MapType | DecimalType) or _is_variant(part):
            continue
        elif type(part) not in _POLARS:
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
        case _ if _is_variant(dtype):
            return VARIANT
        case _:
            return _POLARS[type(dtype)]


def _is_variant(dtype: DataType) -> bool:
    return _VARIANT is not None and isinstance(dtype, _VARIANT)


def _is_collated(dtype: DataType) -> bool:
    plain = "UTF8_BINARY"
    return any(getattr(part, "collation", plain) != plain for part in _parts(dtype))  # unknown to Spark 3.5


def numbered(df: DataFrame) -> DataFrame:
    """Return the rows with columns named c0, c1 and so on.

    PySpark's ``mapInArrow`` parses column names as expressions: a dot would select a field, a backtick would quote.
    """
    return df.toDF(*(f"c{number}" for number in range(len(df.columns))))
