"""CAST and TRY_CAST of SQL on typed values."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Final

import polars as pl
from sqlglot import exp

from qbeast_core.query.sql.tokens import invalid_sql
from qbeast_core.query.sql.values import (
    INTEGERS,
    MAX_DIGITS,
    TIMESTAMP,
    TIMESTAMPTZ,
    Value,
    as_datetime,
    in_utc,
    of_type,
    scale_of,
    shown,
    text,
    text_literal,
)

_TYPES: Final[dict[exp.DType, pl.DataType]] = {
    exp.DType.BOOLEAN: pl.Boolean(),
    exp.DType.TINYINT: pl.Int8(),
    exp.DType.SMALLINT: pl.Int16(),
    exp.DType.INT: pl.Int32(),
    exp.DType.BIGINT: pl.Int64(),
    exp.DType.INT128: pl.Int128(),
    exp.DType.FLOAT: pl.Float32(),
    exp.DType.DOUBLE: pl.Float64(),
    exp.DType.DATE: pl.Date(),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), pl.String()),
    **dict.fromkeys((exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ), TIMESTAMP),
    exp.DType.TIMESTAMPTZ: TIMESTAMPTZ,
}
# Larger numbers round to infinity in single precision.
_ABOVE_SINGLE: Final = (2 - 2**-24) * 2.0**127
_DEFAULT_DECIMAL: Final = (18, 3)


def type_of(node: exp.DataType) -> pl.DataType:
    """Return the target type of a CAST."""
    kind = node.this
    if kind == exp.DType.DECIMAL:
        return _decimal_type([int(size.this.this) for size in node.expressions])
    dtype = _TYPES.get(kind)
    if dtype is None or node.expressions:
        invalid_sql(f"a cast to {node.sql('duckdb')[:60]} is not supported")
    return dtype


def _decimal_type(sizes: list[int]) -> pl.DataType:
    precision, scale = (*sizes, 0)[:2] if sizes else _DEFAULT_DECIMAL
    name = f"DECIMAL({str(precision)[:20]}, {str(scale)[:20]})"
    if not 1 <= precision <= MAX_DIGITS:
        invalid_sql(f"{name} is invalid; a decimal has at most {MAX_DIGITS} digits")
    if scale > precision:
        invalid_sql(f"{name} has more digits after the point than digits")
    return pl.Decimal(precision, scale)


def cast(value: Value, dtype: pl.DataType, *, strict: bool) -> Value:
    """Lower a cast; values that do not fit the type fail at evaluation if `strict`, else they become null."""
    if value.is_null:
        return of_type(pl.lit(None, dtype=dtype), dtype)
    if value.is_text_const and not isinstance(dtype, pl.String):
        return _literal(value.const, dtype, strict=strict)
    if value.dtype == dtype and not value.is_number_const:
        return value
    expr = _converted(value, dtype, strict=strict)
    if expr is None:
        invalid_sql(f"a cast of {shown(value.dtype)} to {shown(dtype)} is not supported")
    return of_type(expr, dtype)


def _literal(string: str, dtype: pl.DataType, *, strict: bool) -> Value:
    literal = text_literal(string, dtype)
    if literal is not None and literal.dtype != dtype:
        return cast(literal, dtype, strict=strict)
    if literal is None and strict:
        invalid_sql(f"{string[:60]!r} is not a value of type {shown(dtype)}")
    return of_type(pl.lit(None, dtype=dtype), dtype) if literal is None else literal


def _converted(value: Value, dtype: pl.DataType, *, strict: bool) -> pl.Expr | None:
    if value.dtype.is_numeric() or isinstance(value.dtype, pl.Boolean):
        return _of_number(value, dtype, strict=strict)
    if isinstance(value.dtype, pl.String):
        number = dtype.is_numeric() and not isinstance(dtype, pl.Decimal)
        if isinstance(dtype, pl.Date):
            return value.expr.str.to_date("%Y-%m-%d", strict=strict)
        return value.expr.cast(dtype, strict=strict) if number or isinstance(dtype, pl.String) else None
    if isinstance(value.dtype, (pl.Date, pl.Datetime)):
        return _of_time(value, dtype)
    return None


def _of_number(value: Value, dtype: pl.DataType, *, strict: bool) -> pl.Expr | None:
    expr, source = value.expr, value.dtype
    if isinstance(dtype, pl.Boolean):
        return expr != 0
    if isinstance(dtype, pl.String):
        return None if source.is_float() else expr.cast(pl.String)
    if isinstance(dtype, INTEGERS):
        if source.is_float():
            expr = expr.round(0, mode="half_to_even")
        elif isinstance(source, pl.Decimal):
            expr = expr.round(0, mode="half_away_from_zero")
        return expr.cast(dtype, strict=strict)
    if isinstance(dtype, pl.Decimal):
        return _as_decimal(value, dtype, strict=strict)
    if isinstance(dtype, pl.Float32) and isinstance(source, pl.Float64):
        # Polars returns infinity for a large number.
        large = pl.when(expr.is_finite() & (expr.abs() >= _ABOVE_SINGLE)).then(expr)
        expr = pl.coalesce(large.cast(pl.Int64), expr) if strict else pl.when(large.is_null()).then(expr)
    return expr.cast(dtype, strict=strict) if dtype.is_float() else None


def _as_decimal(value: Value, dtype: pl.Decimal, *, strict: bool) -> pl.Expr | None:
    if value.is_number_const:
        with localcontext(prec=2 * MAX_DIGITS):
            rounded = Decimal(value.const).quantize(Decimal(1).scaleb(-scale_of(dtype)), ROUND_HALF_UP)
        fits = len(rounded.as_tuple().digits) <= (dtype.precision or MAX_DIGITS)
        if strict and not fits:
            invalid_sql(f"{str(value.const)[:60]} does not fit {dtype}")
        return pl.lit(rounded if fits else None, dtype=dtype)
    if value.dtype.is_float():
        return None
    expr = value.expr.cast(pl.Int8) if isinstance(value.dtype, pl.Boolean) else value.expr
    return half_up(expr, value.dtype, dtype).cast(dtype, strict=strict)


def _of_time(value: Value, dtype: pl.DataType) -> pl.Expr | None:
    if isinstance(dtype, pl.Datetime):
        return as_datetime(value, dtype)
    if isinstance(dtype, pl.Date):
        return in_utc(value).cast(pl.Date)
    is_text_of_day = isinstance(dtype, pl.String) and isinstance(value.dtype, pl.Date)
    return value.expr.cast(pl.String) if is_text_of_day else None


def as_text(value: Value) -> pl.Expr:
    """Return a value as text, for ``||`` and CONCAT."""
    if value.is_null:
        return pl.lit(None, dtype=pl.String)
    return cast(value if not value.is_number_const else text(str(value.const)), pl.String(), strict=True).expr


def half_up(expr: pl.Expr, dtype: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Return a number with the digits of a type. Halves are rounded away from zero; a cast of Polars rounds to even.

    >>> value = pl.lit("1.005").cast(pl.Decimal(10, 3))
    >>> pl.select(half_up(value, pl.Decimal(10, 3), pl.Decimal(5, 2)).cast(pl.Decimal(5, 2))).item()
    Decimal('1.01')
    """
    if not isinstance(wanted, pl.Decimal):
        return expr
    loses_digits = dtype.is_float() or (isinstance(dtype, pl.Decimal) and dtype.scale > wanted.scale)
    return expr.round(wanted.scale, mode="half_away_from_zero") if loses_digits else expr
