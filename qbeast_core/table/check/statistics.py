"""Statistics in the log against the values of a file: bounds that enclose them, nulls that are as many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from qbeast_core.log.files.stats import Leaf, leaf_column, leaves_of
from qbeast_core.query.plan.statistics import clock_slack, text_above
from qbeast_core.support.far_times import time_texts
from qbeast_core.table.check.faults import Fault

_EXACT_DIGITS: Final = 15
_SLACK: Final = 1e-12
_NOTHING: Final = pl.Struct([])


def summaries_of(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Return the aggregates of a file: ``<i>.nulls`` of each leaf, and min, max and NaN of those with an order.

    Every column has one, so every page of the file is decoded.
    """
    summaries: list[pl.Expr] = [pl.len().cast(pl.Int64).alias("rows")]
    for i, (leaf, dtype) in enumerate(leaves_of(schema)):
        column = leaf_column(leaf)
        summaries.append(column.null_count().cast(pl.Int64).alias(f"{i}.nulls"))
        if dtype.is_numeric() or dtype.is_temporal() or dtype == pl.String:
            values = column.fill_nan(None) if dtype.is_float() else column
            summaries += [values.min().alias(f"{i}.min"), values.max().alias(f"{i}.max")]
        if dtype.is_float():
            summaries.append(column.is_nan().any().alias(f"{i}.nan"))
    return summaries


def compare_statistics(
    values: pl.DataFrame, file: pl.DataFrame, schema: Mapping[str, pl.DataType], *, ours: bool
) -> Iterator[Fault]:
    """Compare the values with the statistics in the log."""
    hidden_rows = bool(file["has_deletion_vector"][0])  # their statistics need not be exact
    names = frozenset(values.columns)
    null_counts, lows, highs = (_fields(file.get_column(side)) for side in ("null_count", "min", "max"))
    for i, (leaf, _) in enumerate(leaves_of(schema)):
        shown = ".".join(leaf)
        logged, nulls = null_counts.get(leaf), values[f"{i}.nulls"][0]
        if not hidden_rows and logged is not None and logged[0] not in (None, nulls):
            yield Fault("stats-nulls", f"{shown!r} has {nulls:,} nulls, its statistics count {logged[0]:,}")
        if f"{i}.min" not in names:
            continue
        low, high = lows.get(leaf), highs.get(leaf)
        above_nan = ours and f"{i}.nan" in names and values[f"{i}.nan"][0] is True
        if above_nan and high is not None and high.is_not_nan().fill_null(value=False)[0]:
            message = f"{shown!r} holds NaN, which is above {high[0]}, its largest value by the statistics"
            yield Fault("stats-bounds", message)
        for bound, side in ((low, "min"), (high, "max")):
            if bound is not None and not _encloses(bound, values[f"{i}.{side}"], side, ours=ours):
                value = _shown(values[f"{i}.{side}"])
                where = "below" if side == "min" else "above"
                message = f"{shown!r} holds {value}, {where} the {side} of its statistics"
                yield Fault("stats-bounds", message)


def _shown(value: pl.Series) -> object:
    return (time_texts(value) if value.dtype.is_temporal() else value.cast(pl.String))[0]


def _fields(column: pl.Series, leaf: Leaf = ()) -> dict[Leaf, pl.Series]:
    """Return the leaves of a struct of statistics, taken out at once: a query for each takes long."""
    if not isinstance(column.dtype, pl.Struct):
        return {leaf: column}
    if column.dtype == _NOTHING:
        return {}
    leaves: dict[Leaf, pl.Series] = {}
    for field in column.struct.unnest().get_columns():
        leaves |= _fields(field, (*leaf, field.name))
    return leaves


def _encloses(bound: pl.Series, value: pl.Series, side: str, *, ours: bool) -> bool:
    """Return whether a bound encloses a value; an unknown bound encloses every value."""
    # Most bounds are of these types, and a query takes longer than to compare two values.
    if bound.dtype == value.dtype and (value.dtype.is_integer() or (ours and value.dtype == pl.Date)):
        ends = bound.to_physical()[0], value.to_physical()[0]  # Python has no date of the year 10000
        least, most = ends if side == "min" else ends[::-1]
        return least is None or most is None or bool(least <= most)
    frame = pl.DataFrame({"bound": bound, "value": value})
    logged, stored = pl.col("bound"), pl.col("value")
    dtype = value.dtype
    if isinstance(dtype, pl.Decimal):
        if (dtype.precision or 38) > _EXACT_DIGITS:  # went through float64
            slack = stored.abs() * (_SLACK if side == "min" else -_SLACK)
            frame = frame.cast(pl.Float64).with_columns(stored + slack)
        return _in_order(frame, side)
    if isinstance(dtype, (pl.Date, pl.Datetime)) and type(bound.dtype) is type(dtype):
        wide = clock_slack(bound.dtype, logged, logged, foreign=pl.lit(not ours))
        frame = frame.with_columns(wide[side == "max"].alias("bound"))
    if isinstance(dtype, pl.Datetime) and isinstance(bound.dtype, pl.Datetime):
        # Others cut the fraction of a millisecond off, above as well.
        frame = frame.select(
            logged.dt.cast_time_unit("us").to_physical() + (999 if side == "max" and not ours else 0),
            stored.dt.cast_time_unit("us").to_physical(),
        )
    elif dtype == pl.String and bound.dtype == pl.String and side == "max":
        frame = frame.with_columns(text_above(logged, foreign=pl.lit(not ours)))
    elif dtype.is_float() and bound.dtype.is_float():
        frame = frame.with_columns(logged.fill_nan(None))
    return _in_order(frame, side)


def _in_order(frame: pl.DataFrame, side: str) -> bool:
    types = frame.dtypes
    if type(types[0]) is not type(types[1]) and not all(dtype.is_numeric() for dtype in types):
        return True  # of another kind: no bound of these values
    rule = pl.col("bound") <= pl.col("value") if side == "min" else pl.col("bound") >= pl.col("value")
    return bool(frame.select(rule.fill_null(value=True)).item())
