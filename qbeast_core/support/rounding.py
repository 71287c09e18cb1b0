"""Round numbers to the digits of decimals as SQL does."""

from __future__ import annotations

import polars as pl


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
