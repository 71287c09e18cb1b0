"""Random filters over random tables: every construct the planner reads, and some it does not."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import reject
from hypothesis import strategies as st

from tests.plan.sides import sides
from tests.plan.tables import TEXTS, VALUES, Example


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
    plans = [_is_null, _missing, _is_in, _one_of, _special, _between, _compared, _compared]
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


def _one_of(draw: st.DrawFn, example: Example, name: str) -> pl.Expr:
    """A function of the column in a list."""
    left, right = draw(_sides(example, name))
    values = [
        right,
        *(draw(_more_like(example, name, right)) for _ in range(draw(st.sampled_from([0, 1, 60])))),
    ]
    listed = pl.concat(pl.select(value.alias("")).to_series() for value in values).implode()
    return left.is_in(listed)


def _values(example: Example, name: str) -> st.SearchStrategy[Any]:
    """Values of the column's type, many of them out of the column."""
    present = example.frame.get_column(name).drop_nulls().to_list()
    dtype = example.frame.schema[name]
    return st.one_of(st.sampled_from(present), VALUES[dtype]) if present else VALUES[dtype]


@st.composite
def _more_like(draw: st.DrawFn, example: Example, name: str, like: pl.Expr) -> pl.Expr:
    """Another literal of the type of `like`."""
    dtype = pl.select(like).dtypes[0]
    values = pl.Series([draw(_values(example, name))]).cast(dtype, strict=False)
    try:
        return pl.lit(values[0], dtype=dtype)
    except OverflowError:  # a time at the end of Python's own that is beyond it in another zone
        reject()


def _sides(example: Example, name: str) -> st.SearchStrategy[tuple[pl.Expr, pl.Expr]]:
    """A column, perhaps cast, and something it compares with."""
    dtype = example.frame.schema[name]
    return _values(example, name).flatmap(lambda value: st.sampled_from(sides(name, dtype, value)))


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
