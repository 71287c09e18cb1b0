"""Convert literals to the numbers of coordinates, rounded outwards if inexact (format 4)."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.space.arrays import F64Array

_MS_PER_DAY = 86_400_000.0
UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
# Relative; some hundred times the error of a conversion from decimal to float64.
_DECIMAL_SLACK = 1e-12

_LOCAL_MIDNIGHT_MS = 36 * 3_600_000.0
_JULIAN_MS = 14 * _MS_PER_DAY
# 1583-01-01: calendars of JVM writers agree from this day on.
_GREGORIAN_MS = -12_212_553_600_000.0


def number_bounds(values: pl.Series, column: pl.DataType) -> tuple[F64Array, F64Array] | None:
    """Enclose literals in the numbers of the format; None if the types do not compare.

    >>> from datetime import date
    >>> [bound.tolist() for bound in number_bounds(pl.Series([date(1970, 1, 2)]), pl.Date())]
    [[86400000.0], [86400000.0]]
    """
    dtype = values.dtype
    if isinstance(column, (pl.Date, pl.Datetime)):
        return _instants(values, column) if isinstance(dtype, (pl.Date, pl.Datetime)) else None
    if not (column.is_numeric() and dtype.is_numeric()):
        return None
    numbers = values.cast(pl.Float64).to_numpy()
    if isinstance(column, pl.Decimal) or isinstance(dtype, pl.Decimal):
        slack = np.abs(numbers) * _DECIMAL_SLACK
        if not isinstance(column, pl.Decimal):
            slack = slack + 1.0  # the engine may round the literal to the column's type
        return numbers - slack, numbers + slack
    return numbers, numbers


def _instants(values: pl.Series, column: pl.DataType) -> tuple[F64Array, F64Array]:
    dtype = values.dtype
    physical = values.to_physical()
    if isinstance(dtype, pl.Datetime):
        floored = (physical // UNITS_PER_MS[dtype.time_unit]).cast(pl.Float64).to_numpy()
        return floored, floored
    midnights = physical.cast(pl.Float64).to_numpy() * _MS_PER_DAY
    # All timestamps of a day, cast to a date, equal the date.
    return midnights, midnights + _MS_PER_DAY if isinstance(column, pl.Datetime) else midnights


def clock_slack(lower: F64Array, upper: F64Array, column: pl.DataType) -> tuple[F64Array, F64Array]:
    """Widen bounds for files whose writer had another time zone or calendar (format 4)."""
    if not isinstance(column, (pl.Date, pl.Datetime)):
        return lower, upper
    zone = _LOCAL_MIDNIGHT_MS if isinstance(column, pl.Date) else 0.0
    wide_lower = lower - zone - np.where(lower - zone < _GREGORIAN_MS, _JULIAN_MS, 0.0)
    wide_upper = upper + zone + np.where(upper < _GREGORIAN_MS, _JULIAN_MS, 0.0)
    return wide_lower, wide_upper
