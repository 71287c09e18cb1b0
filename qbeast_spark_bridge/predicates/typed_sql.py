"""Typed parts of Spark's SQL: literals, and casts to a common type. They are independent of settings of the session."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NoReturn

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
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
