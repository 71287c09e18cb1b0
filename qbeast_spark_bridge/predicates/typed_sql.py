"""Parts of Spark's SQL with their Polars types, and casts to a common type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, Final, NoReturn

import polars as pl
from sqlglot import exp

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.sql.values import INTEGERS, MAX_DIGITS, TIMESTAMP, TIMESTAMPTZ, largest, text_literal
from qbeast_spark_bridge.predicates.literals import SQL_TYPES, spark_literal

# Microseconds of a day.
DAY_MICROS: Final = "CAST('86400000000' AS BIGINT)"


@dataclass(frozen=True, slots=True)
class Typed:
    """A part of Spark's SQL, whose value does not depend on settings of the session."""

    # A word, a call, or an expression in parentheses.
    sql: str
    # Its type; Null for a bare NULL.
    dtype: pl.DataType
    # The value of a literal, which adopts the type of the other side; None for other parts.
    value: Any = None
    # The largest magnitude of a computed integer; 0 for any of its type.
    bound: int = 0


def refuse(what: object) -> NoReturn:
    """Raise for a part without an equivalent in Spark."""
    what = what.sql("duckdb") if isinstance(what, exp.Expr) else what
    msg = (
        f"{str(what)[:100]!r} has no equivalent in Spark, which would keep other rows. Filter "
        'the DataFrame by a condition of Spark, or read with spark.read.format("qbeast").option("where", ...).'
    )
    raise InvalidInputError(msg, argument="where")


def typed_literal(value: Any, dtype: pl.DataType) -> Typed:
    """Return a literal of a type."""
    if value is None:
        return Typed(f"CAST(NULL AS {SQL_TYPES[dtype]})" if dtype in SQL_TYPES else "NULL", dtype)
    try:
        literal = spark_literal(pl.Series([value], dtype=dtype), dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):  # it is beyond the type
        literal = None
    if literal is None:
        refuse(value)
    return Typed(literal.text, dtype, value)


def align(parts: Sequence[Typed], what: object) -> tuple[list[Typed], pl.DataType]:
    """Return parts cast to their common type, and the type."""
    dtype = reduce(lambda left, right: _common(left, right, what), parts, Typed("NULL", pl.Null())).dtype
    return [as_type(part, dtype, what) for part in parts], dtype


def bound_of(part: Typed) -> int:
    """Return the largest possible magnitude of an integer."""
    if isinstance(part.value, int):
        return abs(part.value)
    if part.bound:
        return part.bound
    return 10**part.dtype.precision if isinstance(part.dtype, pl.Decimal) else largest(part.dtype) + 1


def as_type(part: Typed, dtype: pl.DataType, what: object) -> Typed:
    """Cast a part to a type that fits all its values."""
    if part.dtype == dtype:
        return part
    if part.dtype == pl.Null():
        return Typed(f"CAST(NULL AS {sql_type(dtype)})" if dtype != pl.Null() else "NULL", dtype)
    if part.value is not None:
        return typed_literal(_convert(part.value, dtype, what), dtype)
    if dtype.is_numeric() and part.dtype.is_numeric() and (dtype.is_float() or not part.dtype.is_float()):
        # Spark compares integers of different sizes itself. Without a cast, it can use the column's statistics.
        sql = part.sql if dtype.is_integer() else f"CAST({part.sql} AS {sql_type(dtype)})"
        return Typed(sql, dtype)
    if part.dtype == pl.Date() and dtype == TIMESTAMP:
        return Typed(f"CAST({part.sql} AS TIMESTAMP_NTZ)", dtype)
    if part.dtype == pl.Date() and dtype == TIMESTAMPTZ:
        return Typed(f"TIMESTAMP_MICROS(UNIX_DATE({part.sql}) * {DAY_MICROS})", dtype)
    refuse(what)


def sql_type(dtype: pl.DataType) -> str:
    """Return the name of a type in Spark."""
    return f"DECIMAL({dtype.precision}, {dtype.scale})" if isinstance(dtype, pl.Decimal) else SQL_TYPES[dtype]


def as_decimal(dtype: pl.DataType, value: Any = None) -> pl.Decimal:
    """Return the decimal type that fits every value of an integer type, or a literal."""
    if isinstance(dtype, pl.Decimal):
        return dtype
    return pl.Decimal(len(str(abs(value) if isinstance(value, int) else largest(dtype))), 0)


def _common(left: Typed, right: Typed, what: object) -> Typed:
    """Return a part of the common type; literals of texts and whole numbers adopt the type of the other side."""
    if left.dtype == right.dtype:
        # A value determines the digits of a decimal, if both are literals; keep the longer one.
        both = left.value is not None and right.value is not None
        longer = isinstance(right.value, int) and len(str(right.value)) > len(str(left.value))
        return Typed("", left.dtype, (right if longer else left).value if both else None)
    if pl.Null() in (left.dtype, right.dtype):
        return right if left.dtype == pl.Null() else left
    literal, other = (left, right) if left.value is not None and right.value is None else (right, left)
    if literal.value is not None and _adopts(literal, other):
        is_larger = isinstance(literal.value, int) and isinstance(other.dtype, INTEGERS)
        is_larger = is_larger and len(str(abs(literal.value))) >= len(str(largest(other.dtype)))
        return Typed("", pl.Int64() if is_larger else other.dtype)
    dtype = _wider(left, right)
    if dtype is None:
        refuse(what)
    return Typed("", dtype)


def _adopts(literal: Typed, other: Typed) -> bool:
    """Return whether a literal adopts the type of the other side."""
    if literal.dtype == pl.String():
        return other.dtype.is_numeric() or other.dtype.is_temporal()
    if other.dtype.is_float():
        return literal.dtype.is_numeric() and literal.dtype != pl.Float64()
    if other.dtype.is_integer():
        return isinstance(literal.value, int) and -(2**63) <= literal.value < 2**63
    return other.dtype == TIMESTAMPTZ and literal.dtype == TIMESTAMP


def _wider(left: Typed, right: Typed) -> pl.DataType | None:
    kinds = left.dtype, right.dtype
    if all(kind.is_integer() for kind in kinds):
        return pl.Int64()
    if all(kind.is_numeric() for kind in kinds):
        if any(kind.is_float() for kind in kinds):
            return pl.Float64()
        first, second = (as_decimal(part.dtype, part.value) for part in (left, right))
        scale = max(first.scale, second.scale)
        digits = max((first.precision or 0) - first.scale, (second.precision or 0) - second.scale) + scale
        return pl.Decimal(digits, scale) if digits <= MAX_DIGITS else None
    if pl.Date() in kinds and (TIMESTAMP in kinds or TIMESTAMPTZ in kinds):
        return kinds[0] if kinds[1] == pl.Date() else kinds[1]
    return None


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
    if not dtype.is_numeric():
        return value
    try:
        number = float(value) if dtype.is_float() else Decimal(value)
        return int(number) if dtype.is_integer() and number == int(number) else number
    except (ValueError, ArithmeticError):  # NaN, an infinity, or beyond a double
        refuse(what)
