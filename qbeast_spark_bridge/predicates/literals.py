"""Values as literals of Spark's SQL, independent of settings of the session."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import polars as pl

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
