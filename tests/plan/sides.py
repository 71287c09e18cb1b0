# ruff: noqa: DTZ001 -- timestamps without a zone are a type to test
"""All the ways to compare a column with one of its values, or with one close by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from tests.plan.tables import EPOCH

_UNITS = ("ms", "us", "ns")
_INTEGERS = (pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Int128())


def sides(name: str, dtype: pl.DataType, value: Any) -> list[tuple[pl.Expr, pl.Expr]]:
    """Pairs of the column, perhaps cast, and a literal."""
    column, same = pl.col(name), pl.lit(value, dtype=dtype)
    plans = [(column, same), (column.alias("other"), same)]
    if dtype.is_integer():
        plans += _integer_plans(column, value)
    if dtype.is_float():
        plans += [(column, pl.lit(value)), (column, pl.lit(3)), (column.cast(pl.Float64), pl.lit(value))]
        plans += [(column, pl.lit(1e300)), (column, pl.lit(0.1)), (column, pl.lit(0.1, dtype=pl.Float32))]
    if isinstance(dtype, pl.Decimal):
        double = pl.Series([value], dtype=dtype).cast(pl.Float64).item()
        plans += [(column, pl.lit(double)), (column.cast(pl.Float64), pl.lit(double))]
        plans += [(column, pl.lit(1)), (column, pl.lit(Decimal("0.555")))]
        plans += [(column.cast(pl.Decimal(38, scale), strict=False), same) for scale in (1, dtype.scale, 20)]
    if isinstance(dtype, pl.Date):
        plans += _date_plans(column, value)
    if isinstance(dtype, pl.Datetime):
        plans += _datetime_plans(column, value, dtype)
    return [*plans, *_function_plans(column, dtype, value)]


def _function_plans(column: pl.Expr, dtype: pl.DataType, value: Any) -> list[tuple[pl.Expr, pl.Expr]]:
    """Functions of the column, beside what they make of the value."""
    made: list[pl.Expr] = []
    if dtype.is_integer() or dtype.is_float():
        made += [
            column + 1,
            column + 100,
            column - 7,
            7 - column,
            column * 3,
            column * -2,
            column / 3,
            -column,
        ]
        made += [column + 0.1, column - 1e9, column * 2.5, 0.3 - column, column / -0.7, -(column * 3 + 1)]
        made += [column * pl.lit(-3, dtype=pl.Int8), column + pl.lit(2**62), column * 1e-300, column / 1e-40]
    if dtype.is_integer():
        wide = column.cast(pl.Int128)
        made += [wide + 1, 7 - wide, wide * -3, wide * pl.lit(2**62, dtype=pl.Int128) + 5, -(wide * wide) + 2]
        made += [column.cast(pl.Int64) * 2 + 1, (wide * pl.lit(2**120, dtype=pl.Int128)) - 1]
    if isinstance(dtype, (pl.Date, pl.Datetime)):
        made += [column.dt.year(), -column.dt.year(), column.dt.year() * 2 - 1, column.dt.month()]
        made += [column.dt.truncate(unit) for unit in ("1mo", "1w", "1d", "3q", "17h", "1y")]
    results = [_of_value(expr, column, dtype, value) for expr in made]
    return [
        (expr, pl.lit(existing)) for expr, existing in zip(made, results, strict=True) if existing is not None
    ]


def _of_value(expr: pl.Expr, column: pl.Expr, dtype: pl.DataType, value: Any) -> pl.Series | None:
    """What the engine makes of one value; None where it refuses it."""
    frame = pl.DataFrame({column.meta.output_name(): pl.Series([value], dtype=dtype)})
    try:
        return frame.select(expr).to_series()
    except pl.exceptions.PolarsError:
        return None


def _integer_plans(column: pl.Expr, value: int) -> list[tuple[pl.Expr, pl.Expr]]:
    literals = [pl.lit(value), pl.lit(float(value)), pl.lit(Decimal(value) / 2), pl.lit(value + 0.5)]
    plans = [(column, literal) for literal in literals]
    plans += [(column.cast(item, strict=False), pl.lit(value, dtype=pl.Int64)) for item in _INTEGERS]
    return [*plans, (column.cast(pl.Float64), pl.lit(float(value)))]


def _date_plans(column: pl.Expr, value: Any) -> list[tuple[pl.Expr, pl.Expr]]:
    noon = datetime(value.year, value.month, value.day, 12)
    plans = [(column, pl.lit(noon)), (column, pl.lit(noon - timedelta(hours=12)))]
    plans += [(column.cast(pl.Datetime(unit), strict=False), pl.lit(noon)) for unit in _UNITS]
    return [*plans, (column.cast(pl.Datetime("us", "UTC")), pl.lit(noon.replace(tzinfo=UTC)))]


def _datetime_plans(column: pl.Expr, value: Any, dtype: pl.Datetime) -> list[tuple[pl.Expr, pl.Expr]]:
    zone = dtype.time_zone
    micros = (value.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)
    literals = [pl.lit(micros // 1000, dtype=pl.Int64).cast(pl.Datetime("ms", zone))]
    literals.append(pl.lit(micros, dtype=pl.Int64).cast(pl.Datetime("us", zone)))
    if abs(micros) < 2**63 // 1001:
        literals.append(pl.lit(micros * 1000 + 1, dtype=pl.Int64).cast(pl.Datetime("ns", zone)))
    plans = [(column, literal) for literal in literals]
    plans += [
        (column.cast(pl.Datetime("ms", zone)), literals[1]),
        (column.dt.cast_time_unit("ms"), literals[0]),
    ]
    plans += [(column.dt.date(), pl.lit(value.date())), (column.cast(pl.Date), pl.lit(value.date()))]
    if zone is None:
        return [*plans, (column, pl.lit(value.date()))]
    paris = pl.lit(micros, dtype=pl.Int64).cast(pl.Datetime("us", "Europe/Paris"))
    plans.append((column.dt.convert_time_zone("Europe/Paris"), paris))
    plans.append((column.cast(pl.Datetime("us", "Europe/Paris")), paris))
    return [*plans, (column.dt.convert_time_zone("Europe/Paris").dt.date(), pl.lit(value.date()))]
