"""Spark's types: schemas of the log, of Polars and of files in Spark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F  # noqa: N812 -- the usual name
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
from qbeast_core.log.columns import StoredColumn, StoredColumns, stored_type
from qbeast_core.log.schema import VARIANT
from qbeast_core.spec.blocks import WEIGHT_COLUMN, FilePath
from qbeast_core.table.read.planner import Planner

if TYPE_CHECKING:
    from pyspark.sql import Column


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
_SPARK: Final = {dtype: kind for kind, dtype in _POLARS.items() if kind not in {CharType, VarcharType}}
# Unknown to Spark 3.5.
_VARIANT: Final[type[DataType] | None] = getattr(types, "VariantType", None)
# Spark pads columns with this mark when it reads them. Without it, all engines return the stored values.
_PADDING: Final = "__CHAR_VARCHAR_TYPE_STRING"

# A name that all versions of Spark return as it is.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")

# Columns of the join with partition values; no column of a table can have a name of this form.
_FILE: Final = "qbeast file\u2028"


def spark_schema(schema_json: str) -> StructType:
    """Return the Spark schema of a Delta table.

    Nullability, comments and collations are kept. Columns of ``char(n)`` and ``varchar(n)``, which Delta stores as
    strings with a mark, become strings: Spark would pad them.
    """
    whole = StructType.fromJson(_without_padding(json.loads(schema_json)))
    return StructType([field for field in whole.fields if field.name.lower() != WEIGHT_COLUMN])


def _stored_field(column: StoredColumn) -> StructField:
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


def schema_of_frame(schema: pl.Schema) -> StructType:
    """Return the Spark schema of a frame that `to_frame` made; columns of nulls only are void.

    >>> schema_of_frame(pl.Schema({"a": pl.List(pl.Null), "b": pl.Decimal(9, 2)})).simpleString()
    'struct<a:array<void>,b:decimal(9,2)>'
    """
    return StructType([StructField(name, _to_spark(dtype), nullable=True) for name, dtype in schema.items()])


def collated_columns(schema: StructType) -> list[str]:
    """Return the top-level columns that are or contain strings with a collation."""
    return [field.name for field in schema.fields if _is_collated(field.dataType)]


def comparable_columns(schema: StructType, columns: pl.Schema) -> pl.Schema:
    """Return the columns without strings with a collation: only Spark compares them correctly."""
    collated = collated_columns(schema)
    return pl.Schema({name: dtype for name, dtype in columns.items() if name not in collated})


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


def _to_spark(dtype: Any) -> DataType:
    match dtype:
        case pl.Struct():
            return schema_of_frame(pl.Schema(dtype))
        case pl.List() | pl.Array():
            return ArrayType(_to_spark(dtype.inner))
        case pl.Map():
            return MapType(_to_spark(dtype.key), _to_spark(dtype.value))
        case pl.Decimal():
            return DecimalType(dtype.precision, dtype.scale)
        case _:
            return _SPARK[dtype]()


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


def stored_schema(schema: StructType, columns: StoredColumns) -> StructType:
    """Return the columns to read from files, by their names and with their types there."""
    if columns.is_plain:
        return schema
    names = columns.read_from_files(schema.names)
    if columns.mode == "none":
        return StructType([schema[name] for name in names])
    return nullable_schema(StructType([_stored_field(columns.columns[name]) for name in names]))


def can_find_columns(planner: Planner, number: int) -> bool:
    """Return whether Spark's reader finds the columns and the partition of a file by names."""
    columns = planner.snapshot.columns
    if columns.mode == "id" and planner.snapshot.file_facts[number][1]:
        return False  # its columns are found by id
    return not columns.partitions or _has_own_name(planner, number)


def by_table_names(
    files: DataFrame, schema: StructType, planner: Planner, numbers: Sequence[int], *, hidden: bool
) -> DataFrame:
    """Return the rows of files with the columns of the table, and the hidden column if there is one."""
    columns = planner.snapshot.columns
    if columns.is_plain:
        return files
    rows = _with_partitions(files, planner, numbers) if columns.partitions else files
    shown = [(_partition if field.name in columns.partitions else _named)(field, columns) for field in schema]
    return rows.select(*shown, *([WEIGHT_COLUMN] if hidden else []))


def _named(field: StructField, columns: StoredColumns) -> Column:
    stored = columns.columns[field.name]
    column = F.col(quoted(stored.stored_name))
    # A cast renames fields of structs by their position.
    return (column if stored.stored_type == stored.dtype else column.cast(field.dataType)).alias(field.name)


def _partition(field: StructField, columns: StoredColumns) -> Column:
    number = columns.partitions.index(field.name)
    return F.col(f"`{_FILE}{number}`").cast(field.dataType).alias(field.name)


def _with_partitions(files: DataFrame, planner: Planner, numbers: Sequence[int]) -> DataFrame:
    """Return rows of files with the texts of their partition values."""
    texts = planner.snapshot.partition_texts
    names = [f"{_FILE}{number}" for number in range(len(planner.snapshot.columns.partitions))]
    if len({texts[number] for number in numbers}) == 1:
        values = zip(names, texts[numbers[0]], strict=True)
        return files.withColumns({name: F.lit(text).cast("string") for name, text in values})
    rows = [(FilePath(planner.paths[number]).name, *texts[number]) for number in numbers]
    schema = ", ".join(f"`{name}` string" for name in (_FILE, *names))
    of_files = F.broadcast(files.sparkSession.createDataFrame(rows, schema))
    # A name is shorter than a path, and each version of Spark has its own encoding of paths.
    named = files.withColumn(_FILE, F.col("_metadata.file_name"))
    return named.join(of_files, _FILE)


def _has_own_name(planner: Planner, number: int) -> bool:
    name = FilePath(planner.paths[number]).name
    return _PLAIN_NAME.fullmatch(name) is not None and planner.snapshot.file_names[name] == 1
