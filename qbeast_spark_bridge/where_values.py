"""Values of Polars as literals of Spark's SQL that no setting of a session changes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import polars as pl

__all__ = ["Said", "say_value"]

_NAMES: Final[dict[pl.DataType, str]] = {
    pl.Int8(): "TINYINT",
    pl.Int16(): "SMALLINT",
    pl.Int32(): "INT",
    pl.Int64(): "BIGINT",
    pl.Float32(): "FLOAT",
    pl.Float64(): "DOUBLE",
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:;/+-]*", re.ASCII)
_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class Said:
    """A literal, and what the column has to be cast to before it is compared with it.

    Attributes
    ----------
    text : str
        SQL.
    cast : str
        A type of SQL; empty if the column stays as it is.
    """

    text: str
    cast: str = ""

    def column(self, name: str) -> str:
        """Return the column's side of a comparison."""
        return f"CAST({name} AS {self.cast})" if self.cast else name


def say_value(value: pl.Series, dtype: pl.DataType) -> Said | None:
    """Say a value that is compared with a column.

    Parameters
    ----------
    value : polars.Series
        One value, not null.
    dtype : polars.DataType
        The column's type.

    Returns
    -------
    Said or None
        None where Polars and Spark could compare the two in different ways.

    Examples
    --------
    >>> say_value(pl.Series([0.5]), pl.Int32())
    Said(text="CAST('0.5' AS DOUBLE)", cast='DOUBLE')
    """
    rule = next((rule for kind, rule in _RULES if isinstance(dtype, kind)), None)
    return None if rule is None else rule(value, dtype)


def _say_plain(value: pl.Series, dtype: pl.DataType) -> Said | None:
    if value.dtype != dtype:
        return None
    match value.item():
        case bool() as truth:
            return Said(str(truth).upper())
        case bytes() as data:
            return Said(f"X'{data.hex()}'")
        case str() as text if not _PLAIN.fullmatch(text):  # escapes differ by settings
            return Said(f"CAST(X'{text.encode().hex()}' AS STRING)")
        case item:
            return Said(f"'{item}'")


def _say_to_integer(value: pl.Series, dtype: pl.DataType) -> Said | None:
    if value.dtype == pl.Float64():
        return Said(_say_float(value.item(), "DOUBLE"), cast="DOUBLE")
    if not value.dtype.is_integer() or not -(2**63) <= value.item() < 2**63:
        return None
    fits = value.cast(dtype, strict=False).null_count() == 0
    return Said(f"CAST('{value.item()}' AS {_NAMES[dtype if fits else pl.Int64()]})")


def _say_to_float(value: pl.Series, dtype: pl.DataType) -> Said | None:
    if value.dtype.is_integer():
        number = float(value.item()) if abs(value.item()) <= _EXACT else None
    else:
        number = value.item() if value.dtype.is_float() else None
    if number is None:
        return None
    if dtype == pl.Float32() and math.isfinite(number):
        with np.errstate(over="ignore"):
            if float(np.float32(number)) != number:
                return None  # Polars rounds it to the column's type or not, by where it came from
    return Said(_say_float(number, _NAMES[dtype]))


def _say_float(number: float, name: str) -> str:
    text = (
        repr(number)
        if math.isfinite(number)
        else "NaN"
        if math.isnan(number)
        else f"{'-' * (number < 0)}Infinity"
    )
    return f"CAST('{text}' AS {name})"


def _say_to_decimal(value: pl.Series, dtype: pl.DataType) -> Said | None:
    if not isinstance(dtype, pl.Decimal) or not (value.dtype.is_integer() or value.dtype.is_decimal()):
        return None
    number, scale = Decimal(value.item()), dtype.scale
    digits, exponent = number.as_tuple().digits, int(number.as_tuple().exponent)
    units = int("".join(map(str, digits))) * 10 ** max(exponent + scale, 0)
    over = 10 ** max(-exponent - scale, 0)
    if units % over or units // over >= 10 ** (dtype.precision or 38):
        return None  # between two values of the column's type, or beyond them
    return Said(f"CAST('{number:f}' AS DECIMAL({dtype.precision}, {scale}))")


def _say_date(value: pl.Series, dtype: pl.DataType) -> Said | None:
    return Said(f"DATE_FROM_UNIX_DATE({value.to_physical().item()})") if value.dtype == dtype else None


def _say_time(value: pl.Series, dtype: pl.DataType) -> Said | None:
    given, zoned = value.dtype, dtype != pl.Datetime("us")
    if not isinstance(given, pl.Datetime) or (given.time_zone is not None) is not zoned:
        return None
    micros = value.cast(pl.Datetime("us", given.time_zone))
    if micros.cast(given).to_physical().item() != value.to_physical().item():
        return None  # between two microseconds
    if zoned:
        return Said(f"TIMESTAMP_MICROS(CAST('{micros.to_physical().item()}' AS BIGINT))")
    try:
        return Said(f"CAST('{micros.item()}' AS TIMESTAMP_NTZ)")
    except (ValueError, OverflowError):  # a year that Python does not have
        return None


_RULES: Final[
    tuple[tuple[tuple[type[pl.DataType], ...], Callable[[pl.Series, pl.DataType], Said | None]], ...]
] = (
    ((pl.Int8, pl.Int16, pl.Int32, pl.Int64), _say_to_integer),
    ((pl.Float32, pl.Float64), _say_to_float),
    ((pl.Decimal,), _say_to_decimal),
    ((pl.String, pl.Binary, pl.Boolean), _say_plain),
    ((pl.Date,), _say_date),
    ((pl.Datetime,), _say_time),
)
