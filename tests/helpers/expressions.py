"""Random filters over the tables of `tests.helpers.strategies`, supported by the planner or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.helpers.strategies import ROW, VALUES

_Sides = tuple[pl.Expr, pl.Expr]


@st.composite
def filters(draw: st.DrawFn, frame: pl.DataFrame, depth: int = 2) -> pl.Expr:
    """Draw a boolean expression over the frame's columns; Polars may raise for its types."""
    kind = draw(st.sampled_from(["atom", "atom", "and", "or", "not", "if"] if depth else ["atom"]))
    inner = filters(frame, depth - 1)
    match kind:
        case "not":
            return ~draw(inner)
        case "and":
            return draw(inner) & draw(inner)
        case "or":
            return draw(inner) | draw(inner)
        case "if":
            return pl.when(draw(inner)).then(draw(inner)).otherwise(draw(inner))
        case _:
            return draw(_atoms(frame))


@st.composite
def _atoms(draw: st.DrawFn, frame: pl.DataFrame) -> pl.Expr:
    name = draw(st.sampled_from(frame.columns))
    column, dtype = pl.col(name), frame.schema[name]
    kinds = [_compare, _compare, _null, _is_in, _missing, _special]
    kinds += [] if dtype.is_nested() else [_between]
    return draw(st.sampled_from(kinds))(draw, frame, column, dtype)


_Draw = Callable[[st.SearchStrategy[Any]], Any]


def _compare(draw: _Draw, frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    left, right = draw(st.sampled_from(_sides(draw, frame, column, dtype)))
    if draw(st.booleans()):
        left, right = right, left
    return getattr(left, draw(st.sampled_from(_ops(dtype))))(right)


def _ops(dtype: pl.DataType) -> tuple[str, ...]:
    """Return the comparisons of a type. Nested values have no order; Polars raises only if there are rows."""
    return ("eq", "ne") if dtype.is_nested() else ("lt", "le", "eq", "ne", "ge", "gt")


def _null(draw: _Draw, _: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    tests = [column.is_null(), column.is_not_null(), column == pl.lit(None, dtype=dtype)]
    return draw(st.sampled_from(tests))


def _between(draw: _Draw, frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    low, high = (_literal(draw, frame, column, dtype) for _ in range(2))
    return column.is_between(low, high, closed=draw(st.sampled_from(["both", "left", "right", "none"])))


def _is_in(draw: _Draw, frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    values = draw(st.lists(st.none() | values_of(frame, column, dtype), max_size=4))
    listed = pl.Series(values, dtype=dtype)
    return column.is_in(listed.implode(), nulls_equal=draw(st.booleans()))


def _missing(draw: _Draw, frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    right = draw(st.sampled_from([pl.lit(None, dtype=dtype), _literal(draw, frame, column, dtype)]))
    return draw(
        st.sampled_from([column.eq_missing(right), column.ne_missing(right), right.eq_missing(column)])
    )


def _special(draw: _Draw, frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Draw a filter of a single type, or a comparison of columns of the same type."""
    alike = [pl.col(name) for name, other in frame.schema.items() if other == dtype]
    tests = [getattr(column, draw(st.sampled_from(_ops(dtype))))(draw(st.sampled_from(alike)))]
    if dtype == pl.String():
        text = draw(values_of(frame, column, dtype))
        prefix = text[: draw(st.integers(0, 3))]
        tests += [column.str.starts_with(prefix), column.str.ends_with(prefix), column.str.len_chars() > 2]
        tests += [~column.str.starts_with(prefix), column.str.to_uppercase() == text.upper()]
    elif dtype.is_float():
        tests += [column.is_nan(), column.is_not_nan(), column.is_infinite(), column.is_finite()]
        tests += [
            column >= pl.lit(float("nan")),
            column < float("inf"),
            column == float("-inf"),
            column.abs() < 2,
        ]
    elif dtype == pl.Boolean():
        tests += [column, ~column, column & pl.lit(None, dtype=pl.Boolean), column ^ pl.lit(value=True)]
    elif dtype.is_integer():
        tests += [column % 3 == 0, column.is_in(range(-3, 4)), column + 1 > 2, column.abs() > 5]
    elif isinstance(dtype, pl.List):
        tests += [column.list.len() > 1, column.list.contains(0), column.list.first() > 0]
    elif isinstance(dtype, pl.Struct):
        tests += [column.struct.field("n") > 0, column.struct.field("t").struct.field("d").is_null()]
    return draw(st.sampled_from(tests))


def kept_rows(frame: pl.DataFrame | pl.LazyFrame, expr: pl.Expr) -> pl.DataFrame | None:
    """Return the rows that Polars keeps; None if it raises for the filter."""
    try:
        kept = frame.filter(expr)
        return kept.collect() if isinstance(kept, pl.LazyFrame) else kept
    except pl.exceptions.PolarsError:
        return None


def values_of(frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> st.SearchStrategy[Any]:
    """Draw values of a column, or others of its type."""
    name = column.meta.output_name()
    if name == ROW:
        return st.integers(-1, frame.height)
    present = frame[name].drop_nulls().head(40).to_list()
    return st.one_of(st.sampled_from(present), VALUES[dtype]) if present else VALUES[dtype]


def _literal(draw: _Draw, frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    return pl.lit(pl.Series([draw(values_of(frame, column, dtype))], dtype=dtype)).first()


def _sides(draw: _Draw, frame: pl.DataFrame, column: pl.Expr, dtype: pl.DataType) -> list[_Sides]:
    """Return comparable sides: a column, perhaps cast, and literals of several types."""
    value = draw(values_of(frame, column, dtype))
    if dtype.is_nested():
        return [(column, pl.lit(pl.Series([value], dtype=dtype)).first())]
    typed = pl.lit(value, dtype=dtype)
    sides = [(column, typed), (column.alias("other"), typed)]
    if dtype.is_integer():
        sides += [(column, pl.lit(value)), (column, pl.lit(value / 2)), (column, pl.lit(Decimal(value) / 2))]
        sides += [(column.cast(pl.Float64), pl.lit(float(value))), (column, pl.lit(1e300))]
        sides += [(column.cast(pl.Int64), pl.lit(value)), (column.cast(pl.String), pl.lit(str(value)))]
        sides += [(column.cast(pl.Decimal(38, 2)), pl.lit(Decimal(value))), (column, pl.lit(2**70))]
        sides += [(column.cast(pl.Int8, strict=False), pl.lit(1, dtype=pl.Int8))]
    elif dtype.is_float():
        sides += [(column, pl.lit(value)), (column, pl.lit(2)), (column.cast(pl.Float64), pl.lit(value))]
        sides += [(column, pl.lit(0.1)), (column, pl.lit(Decimal("0.1"))), (column, pl.lit(float("nan")))]
        sides += [(column.cast(pl.Float32), pl.lit(0.1, dtype=pl.Float32)), (column, pl.lit(2**53 + 1))]
        sides += [(column.cast(pl.Int64, strict=False), pl.lit(3))]
    elif isinstance(dtype, pl.Decimal):
        sides += [(column, pl.lit(float(value))), (column.cast(pl.Float64), pl.lit(float(value)))]
        sides += [(column, pl.lit(1)), (column, pl.lit(Decimal("0.555"))), (column, pl.lit(value * 3))]
        sides += [(column.cast(pl.Decimal(38, 6), strict=False), pl.lit(value))]
    elif dtype == pl.Date():
        noon = datetime.combine(value, time(12))
        sides += [(column, pl.lit(noon)), (column, pl.lit(noon - timedelta(hours=12)))]
        sides += [(column.cast(pl.Datetime("us")), pl.lit(noon)), (column, pl.lit(value))]
        sides += [(column.dt.year(), pl.lit(2024, dtype=pl.Int32)), (column.dt.month_start(), pl.lit(value))]
    elif isinstance(dtype, pl.Datetime):
        sides += [
            (column, pl.lit(value)),
            (column, pl.lit(value.date())),
            (column.dt.date(), pl.lit(value.date())),
        ]
        sides += [(column.cast(pl.Date), pl.lit(value.date())), (column.dt.truncate("1d"), typed)]
        sides += [(column.dt.cast_time_unit("ms"), typed.dt.cast_time_unit("ms"))]
        sides += [(column.cast(pl.Datetime("ms", dtype.time_zone)), typed)]
    return sides
