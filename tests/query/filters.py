# ruff: noqa: DTZ001 -- timestamps without a zone are a type to test
"""Random filters over random tables: every construct the planner reads, and some it does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.query.tables import EPOCH, TEXTS, VALUES, Example

_UNITS = ("ms", "us", "ns")
_INTEGERS = (pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64())


@st.composite
def filters(draw: st.DrawFn, example: Example, depth: int = 3) -> pl.Expr:
    """A boolean expression over the table's columns."""
    kind = draw(st.sampled_from(["atom", "atom", "and", "or", "not", "ternary"] if depth else ["atom"]))
    if kind == "not":
        return ~draw(filters(example, depth - 1))
    if kind == "and":
        return draw(filters(example, depth - 1)) & draw(filters(example, depth - 1))
    if kind == "or":
        return draw(filters(example, depth - 1)) | draw(filters(example, depth - 1))
    if kind == "ternary":
        condition, truthy, falsy = (draw(filters(example, depth - 1)) for _ in range(3))
        return pl.when(condition).then(truthy).otherwise(falsy)
    return draw(_atoms(example))


@st.composite
def _atoms(draw: st.DrawFn, example: Example) -> pl.Expr:
    name = draw(st.sampled_from(example.frame.columns))
    column = pl.col(name)
    if example.frame.schema[name] == pl.Boolean:
        return draw(
            st.sampled_from([column, column == pl.lit(value=True), column.is_null(), column ^ column])
        )
    plans = [_is_null, _missing, _is_in, _is_in, _special, _between, _compared, _compared]
    return draw(st.sampled_from(plans))(draw, example, name)


def _is_null(draw: st.DrawFn, _: Example, name: str) -> pl.Expr:
    return draw(st.sampled_from([pl.col(name).is_null(), pl.col(name).is_not_null()]))


def _missing(draw: st.DrawFn, example: Example, name: str) -> pl.Expr:
    value = draw(st.none() | _values(example, name))
    right = pl.lit(value, dtype=example.frame.schema[name])
    return draw(st.sampled_from([pl.col(name).eq_missing(right), pl.col(name).ne_missing(right)]))


def _between(draw: st.DrawFn, example: Example, name: str) -> pl.Expr:
    left, right = draw(_sides(example, name))
    closed = draw(st.sampled_from(["both", "left", "right", "none"]))
    return left.is_between(right, draw(_more_like(example, name, right)), closed=closed)


def _compared(draw: st.DrawFn, example: Example, name: str) -> pl.Expr:
    left, right = draw(_sides(example, name))
    if draw(st.booleans()):
        left, right = right, left
    op = draw(st.sampled_from(["lt", "le", "eq", "ne", "ge", "gt"]))
    return getattr(left, op)(right)


def _is_in(draw: st.DrawFn, example: Example, name: str) -> pl.Expr:
    dtype = example.frame.schema[name]
    values = [draw(st.none() | _values(example, name)) for _ in range(draw(st.integers(0, 4)))]
    listed = pl.Series("", values, dtype=dtype).implode()
    return pl.col(name).is_in(listed, nulls_equal=draw(st.booleans()))


def _values(example: Example, name: str) -> st.SearchStrategy[Any]:
    """Values of the column's type, many of them out of the column."""
    present = example.frame.get_column(name).drop_nulls().to_list()
    dtype = example.frame.schema[name]
    return st.one_of(st.sampled_from(present), VALUES[dtype]) if present else VALUES[dtype]


@st.composite
def _more_like(draw: st.DrawFn, example: Example, name: str, like: pl.Expr) -> pl.Expr:
    """Another literal of the type of `like`."""
    dtype = pl.select(like).dtypes[0]
    return pl.lit(pl.Series([draw(_values(example, name))]).cast(dtype, strict=False)[0], dtype=dtype)


@st.composite
def _sides(draw: st.DrawFn, example: Example, name: str) -> tuple[pl.Expr, pl.Expr]:
    """A column, perhaps cast, and something it compares with."""
    dtype = example.frame.schema[name]
    column, value = pl.col(name), draw(_values(example, name))
    same = pl.lit(value, dtype=dtype)
    plans = [(column, same), (column.alias("other"), same)]
    if dtype.is_integer():
        wider = [one for one in _INTEGERS if one.__class__.__name__ >= dtype.__class__.__name__] or [
            pl.Int64()
        ]
        plans += [(column, pl.lit(float(value))), (column.cast(pl.Float64), pl.lit(float(value)))]
        plans += [(column.cast(one), pl.lit(value, dtype=pl.Int64)) for one in wider]
        plans += [
            (column, pl.lit(value)),
            (column, pl.lit(Decimal(value) / 2)),
            (column, pl.lit(value + 0.5)),
        ]
    if dtype.is_float():
        plans += [(column, pl.lit(value)), (column, pl.lit(3)), (column.cast(pl.Float64), pl.lit(value))]
        plans += [(column, pl.lit(1e300)), (column, pl.lit(0.1)), (column, pl.lit(0.1, dtype=pl.Float32))]
    if isinstance(dtype, pl.Decimal):
        plans += [(column, pl.lit(float(value))), (column.cast(pl.Float64), pl.lit(float(value)))]
        plans += [(column, pl.lit(1)), (column, pl.lit(Decimal("0.555")))]
    if isinstance(dtype, pl.Date):
        plans += _date_plans(column, value)
    if isinstance(dtype, pl.Datetime):
        plans += _datetime_plans(column, value, dtype)
    return draw(st.sampled_from(plans))


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


def _special(draw: st.DrawFn, example: Example, name: str) -> pl.Expr:
    column, dtype = pl.col(name), example.frame.schema[name]
    if dtype == pl.String:
        prefix = draw(TEXTS)
        calls = [
            column.str.starts_with(prefix),
            column.str.ends_with(prefix),
            column.str.contains(prefix, literal=True),
        ]
        return draw(st.sampled_from([*calls, column.str.to_uppercase() == prefix]))
    if dtype.is_float():
        calls = [column.is_nan(), column.is_not_nan(), column.is_finite(), column.is_infinite()]
        return draw(st.sampled_from([*calls, column.is_between(float("nan"), float("nan"))]))
    constants = [
        pl.lit(value=True),
        pl.lit(value=False),
        pl.lit(None, dtype=pl.Boolean),
        pl.lit(1) < pl.lit(2),
    ]
    return draw(st.sampled_from([*constants, column == pl.col(name), column == pl.lit(None, dtype=dtype)]))
