"""Spark's types: schemas of the log, of Polars and of files in Spark, and typed parts of its SQL."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
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

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.log.columns import StoredColumn, StoredColumns, stored_type
from qbeast_core.log.schema import VARIANT
from qbeast_core.spec.blocks import WEIGHT_COLUMN, FilePath
from qbeast_core.sql.values import (
    MAX_DIGITS,
    TIMESTAMP,
    TIMESTAMPTZ,
    InvalidSqlError,
    Typed,
    common_type,
    largest,
    text_literal,
)
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


NAN: Final = "CAST('NaN' AS DOUBLE)"

# Names of types in Spark, except decimals.
SQL_TYPES: Final[dict[pl.DataType, str]] = {
    pl.Int8(): "TINYINT",
    pl.Int16(): "SMALLINT",
    pl.Int32(): "INT",
    pl.Int64(): "BIGINT",
    pl.Float32(): "FLOAT",
    pl.Float64(): "DOUBLE",
    pl.Boolean(): "BOOLEAN",
    pl.String(): "STRING",
    pl.Binary(): "BINARY",
    pl.Date(): "DATE",
    pl.Datetime("us"): "TIMESTAMP_NTZ",
    pl.Datetime("us", "UTC"): "TIMESTAMP",
}

_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:;/+-]*", re.ASCII)

_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class SparkLiteral:
    """A literal, and the type to cast the column to for a comparison with it."""

    text: str
    # A type of SQL; empty for no cast.
    cast: str = ""

    def column(self, name: str) -> str:
        """Return the column's side of a comparison."""
        return f"CAST({name} AS {self.cast})" if self.cast else name


def spark_literal(value: pl.Series, dtype: pl.DataType) -> SparkLiteral | None:
    """Return a literal to compare with a column; None for null, or if Polars and Spark could compare differently.

    >>> spark_literal(pl.Series([0.5]), pl.Int32())
    SparkLiteral(text="CAST('0.5' AS DOUBLE)", cast='DOUBLE')
    """
    rule = _RULES.get(type(dtype))
    return None if rule is None else rule(value, dtype)


def _plain_literal(value: pl.Series, dtype: pl.DataType) -> SparkLiteral | None:
    if value.dtype != dtype:
        return None
    match value.item():
        case bool() as truth:
            return SparkLiteral(str(truth).upper())
        case bytes() as data:
            return SparkLiteral(f"X'{data.hex()}'")
        case str() as text if not _PLAIN.fullmatch(text):  # escapes depend on settings
            return SparkLiteral(f"CAST(X'{text.encode().hex()}' AS STRING)")
        case item:
            return SparkLiteral(f"'{item}'")


def _integer_literal(value: pl.Series, dtype: pl.DataType) -> SparkLiteral | None:
    if value.dtype == pl.Float64():
        return SparkLiteral(_float_text(value.item(), "DOUBLE"), cast="DOUBLE")
    if not value.dtype.is_integer() or not -(2**63) <= value.item() < 2**63:
        return None
    fits = value.cast(dtype, strict=False).null_count() == 0
    return SparkLiteral(f"CAST('{value.item()}' AS {SQL_TYPES[dtype if fits else pl.Int64()]})")


def _float_literal(value: pl.Series, dtype: pl.DataType) -> SparkLiteral | None:
    if value.item() is None:
        return None
    is_exact = value.dtype.is_integer() and abs(value.item()) <= _EXACT
    if not is_exact and not value.dtype.is_float():
        return None
    number = float(value.item())
    if dtype == pl.Float32() and math.isfinite(number):
        with np.errstate(over="ignore"):
            if float(np.float32(number)) != number:
                return None  # whether Polars rounds it to the column's type depends on its origin
    return SparkLiteral(_float_text(number, SQL_TYPES[dtype]))


def _float_text(number: float, name: str) -> str:
    text = repr(number).replace("nan", "NaN").replace("inf", "Infinity")
    return f"CAST('{text}' AS {name})"


def _decimal_literal(value: pl.Series, dtype: pl.DataType) -> SparkLiteral | None:
    if not isinstance(dtype, pl.Decimal) or not (value.dtype.is_integer() or value.dtype.is_decimal()):
        return None
    number = Decimal(value.item())
    if value.cast(dtype, strict=False).item() != number:
        return None  # not a value of the column's type
    return SparkLiteral(f"CAST('{number:f}' AS DECIMAL({dtype.precision}, {dtype.scale}))")


def _date_literal(value: pl.Series, dtype: pl.DataType) -> SparkLiteral | None:
    days = value.to_physical().item()
    return SparkLiteral(f"DATE_FROM_UNIX_DATE({days})") if value.dtype == dtype else None


def _time_literal(value: pl.Series, dtype: pl.DataType) -> SparkLiteral | None:
    source, zoned = value.dtype, dtype != pl.Datetime("us")
    if not isinstance(source, pl.Datetime) or (source.time_zone is not None) is not zoned:
        return None
    micros = value.cast(pl.Datetime("us", source.time_zone))
    if micros.cast(source).to_physical().item() != value.to_physical().item():
        return None  # between two microseconds
    if zoned:
        return SparkLiteral(f"TIMESTAMP_MICROS(CAST('{micros.to_physical().item()}' AS BIGINT))")
    try:
        return SparkLiteral(f"CAST('{micros.item()}' AS TIMESTAMP_NTZ)")
    except (ValueError, OverflowError):  # a year outside of Python's range
        return None


_RULES: Final[dict[type[pl.DataType], Callable[[pl.Series, pl.DataType], SparkLiteral | None]]] = {
    **dict.fromkeys((pl.Int8, pl.Int16, pl.Int32, pl.Int64), _integer_literal),
    **dict.fromkeys((pl.Float32, pl.Float64), _float_literal),
    **dict.fromkeys((pl.String, pl.Binary, pl.Boolean), _plain_literal),
    pl.Decimal: _decimal_literal,
    pl.Date: _date_literal,
    pl.Datetime: _time_literal,
}


# Microseconds of a day.
DAY_MICROS: Final = "CAST('86400000000' AS BIGINT)"


class SqlPart(Typed[str]):
    """A part of Spark's SQL, whose value does not depend on settings of the session.

    It is a word, a call, or an expression in parentheses. `const` is a date or time, too.
    """

    __slots__ = ()


def refuse(what: object) -> NoReturn:
    """Raise for a part without an equivalent in Spark."""
    to_sql = getattr(what, "sql", None)  # a Python value has none
    text = str(what) if to_sql is None else to_sql("duckdb")
    msg = (
        f"{text[:100]!r} has no equivalent in Spark, which would keep other rows. Filter "
        'the DataFrame by a condition of Spark, or read with spark.read.format("qbeast").option("where", ...).'
    )
    raise InvalidInputError(msg, argument="where")


def typed_literal(value: Any, dtype: pl.DataType) -> SqlPart:
    """Return a literal of a type."""
    if value is None:
        return SqlPart(f"CAST(NULL AS {SQL_TYPES[dtype]})" if dtype in SQL_TYPES else "NULL", dtype)
    try:
        literal = spark_literal(pl.Series([value], dtype=dtype), dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):  # it is beyond the type
        literal = None
    if literal is None:
        refuse(value)
    return SqlPart(literal.text, dtype, value)


def align(parts: Sequence[SqlPart], what: object) -> tuple[list[SqlPart], pl.DataType]:
    """Return parts cast to their common type, and the type; a decimal gets no more digits than it needs."""
    try:
        dtype = common_type(parts, "")
    except InvalidSqlError:  # items of a list may have types that are compared with its value only
        refuse(what)
    if isinstance(dtype, pl.Decimal):
        kinds = [as_decimal(part) for part in parts if part.dtype.is_numeric()]
        digits = max(kind.precision - kind.scale for kind in kinds) + dtype.scale
        if digits > MAX_DIGITS:
            refuse(what)
        dtype = pl.Decimal(digits, dtype.scale)
    return [as_type(part, dtype, what) for part in parts], dtype


def bound_of(part: SqlPart) -> int:
    """Return the largest possible magnitude of an integer."""
    if isinstance(part.const, int):
        return abs(part.const)
    if part.bound:
        return part.bound
    return 10**part.dtype.precision if isinstance(part.dtype, pl.Decimal) else largest(part.dtype) + 1


def as_type(part: SqlPart, dtype: pl.DataType, what: object) -> SqlPart:
    """Cast a part to a type that fits all its values."""
    if part.dtype == dtype:
        return part
    if dtype.is_nested():
        refuse(what)
    if part.dtype == pl.Null():
        return SqlPart(f"CAST(NULL AS {sql_type(dtype)})" if dtype != pl.Null() else "NULL", dtype)
    if part.is_const:
        return typed_literal(_convert(part.const, dtype, what), dtype)
    if dtype.is_numeric() and part.dtype.is_numeric() and (dtype.is_float() or not part.dtype.is_float()):
        # Spark compares integers of different sizes itself. Without a cast, it can use the column's statistics.
        sql = part.expr if dtype.is_integer() else f"CAST({part.expr} AS {sql_type(dtype)})"
        return SqlPart(sql, dtype)
    if part.dtype == pl.Date() and dtype == TIMESTAMP:
        return SqlPart(f"CAST({part.expr} AS TIMESTAMP_NTZ)", dtype)
    if part.dtype == pl.Date() and dtype == TIMESTAMPTZ:
        return SqlPart(f"TIMESTAMP_MICROS(UNIX_DATE({part.expr}) * {DAY_MICROS})", dtype)
    refuse(what)


def sql_type(dtype: pl.DataType) -> str:
    """Return the name of a type in Spark."""
    return f"DECIMAL({dtype.precision}, {dtype.scale})" if isinstance(dtype, pl.Decimal) else SQL_TYPES[dtype]


def as_decimal(part: SqlPart) -> pl.Decimal:
    """Return the decimal type that fits every value of an integer, or the type of a decimal."""
    return part.dtype if isinstance(part.dtype, pl.Decimal) else pl.Decimal(len(str(bound_of(part))), 0)


def _convert(value: Any, dtype: pl.DataType, what: object) -> Any:
    """Return a literal's value in another type."""
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, datetime.min.time())
        utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return utc if dtype == TIMESTAMPTZ else utc.replace(tzinfo=None)
    if isinstance(value, str):
        constant = text_literal(value, dtype)
        if constant is None:
            refuse(what)
        value = constant.const if constant.is_number_const else pl.select(constant.expr).item()
    if isinstance(dtype, pl.Decimal) and isinstance(value, Decimal):
        if (Fraction(value) * 10**dtype.scale).denominator > 1:  # it would be rounded
            refuse(what)
        return value
    if not dtype.is_numeric():
        return value
    try:
        number = float(value) if dtype.is_float() else Decimal(value)
        return int(number) if dtype.is_integer() and number == int(number) else number
    except (ValueError, ArithmeticError):  # NaN, an infinity, or beyond a double
        refuse(what)
