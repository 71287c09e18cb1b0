"""A model of a table: a list of rows and its changes in plain Python, with nulls and NaN as in SQL."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl
from hypothesis import strategies as st

__all__ = ["KEYS", "Batch", "Condition", "Row", "State", "assignments", "batches", "conditions"]

Row = dict[str, Any]
Answer = bool | None
KEYS: dict[str, pl.DataType] = {"id": pl.Int32(), "a": pl.Int32(), "s": pl.String(), "x": pl.Float64()}
"""The columns of every version."""


@dataclass(frozen=True)
class State:
    """One version.

    Attributes
    ----------
    rows : list of dict
        In no order; `id` differs from row to row.
    schema : mapping of str to Polars type
        Columns in order.
    """

    rows: list[Row]
    schema: Mapping[str, pl.DataType] = field(default_factory=lambda: dict(KEYS))

    @property
    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self.rows, schema=dict(self.schema), orient="row")

    @property
    def ids(self) -> set[int]:
        return {row["id"] for row in self.rows}

    def with_rows(self, rows: list[Row]) -> State:
        return State([dict.fromkeys(self.schema) | row for row in rows], self.schema)

    def plus(self, more: list[Row]) -> State:
        return self.with_rows([*self.rows, *more])

    def kept(self, meets: Callable[[Row], Answer]) -> State:
        return State([row for row in self.rows if meets(row)], self.schema)

    def without(self, meets: Callable[[Row], Answer]) -> State:
        """Return the state after a delete; null is not true."""
        return State([row for row in self.rows if not meets(row)], self.schema)

    def changed(self, meets: Callable[[Row], Answer], change: Callable[[Row], Row]) -> State:
        return State([row | change(row) if meets(row) else row for row in self.rows], self.schema)

    def merged(self, source: list[Row], *, matched: str, new: str, lonely: str) -> State:
        """Return the state after a merge by id."""
        partners, ids = {row["id"]: row for row in source}, self.ids
        kept = [row for row in self.rows if row["id"] not in partners and lonely == "ignore"]
        if matched != "delete":
            there = [row for row in self.rows if row["id"] in partners]
            kept += [partners[row["id"]] for row in there] if matched == "update" else there
        return self.with_rows([*kept, *(row for row in source if row["id"] not in ids and new == "insert")])


@dataclass(frozen=True)
class Condition:
    """A condition as SQL, as a Polars expression and as a Python function."""

    text: str
    expr: pl.Expr = field(repr=False)
    meets: Callable[[Row], Answer] = field(repr=False)


def _compare(column: str, operator: Literal["<", ">=", "="], value: float | str) -> Condition:
    def meets(row: Row) -> Answer:
        row_value = row[column]
        if row_value is None:
            return None
        if isinstance(row_value, float) and math.isnan(row_value):
            return operator == ">="  # NaN is above all numbers
        return {"<": row_value < value, ">=": row_value >= value, "=": row_value == value}[operator]

    side, literal = pl.col(column), f"'{value}'" if isinstance(value, str) else str(value)
    exprs = {"<": side < value, ">=": side >= value, "=": side == value}
    return Condition(f"{column} {operator} {literal}", exprs[operator], meets)


def _is_null(column: str) -> Condition:
    return Condition(f"{column} IS NULL", pl.col(column).is_null(), lambda row: row[column] is None)


def _between(first: int, last: int) -> Condition:
    expr = pl.col("id").is_between(first, last)
    return Condition(f"id BETWEEN {first} AND {last}", expr, lambda row: first <= row["id"] <= last)


def _either(left: Condition, right: Condition) -> Condition:
    def meets(row: Row) -> Answer:
        answers = left.meets(row), right.meets(row)
        return True if True in answers else None if None in answers else False

    return Condition(f"({left.text}) OR ({right.text})", left.expr | right.expr, meets)


def _both(left: Condition, right: Condition) -> Condition:
    def meets(row: Row) -> Answer:
        answers = left.meets(row), right.meets(row)
        return False if False in answers else None if None in answers else True

    return Condition(f"({left.text}) AND ({right.text})", left.expr & right.expr, meets)


_NUMBERS = st.sampled_from([-5, 0, 10, 50, 90, 150, 5000])
_TEXTS = st.integers(0, 14).map("key {}".format)
_OPERATORS = st.sampled_from(["<", ">=", "="])
_IDS = st.integers(0, 400).flatmap(lambda first: st.integers(0, 60).map(lambda n: _between(first, first + n)))
_INTEGERS = st.builds(_compare, st.just("a"), _OPERATORS, _NUMBERS)
_STRINGS = st.builds(_compare, st.just("s"), _OPERATORS, _TEXTS)
_FLOATS = st.builds(_compare, st.just("x"), st.sampled_from(["<", ">="]), _NUMBERS.map(float))
_NULLS = st.sampled_from(["a", "s", "x"]).map(_is_null)
_ATOMS = st.one_of(_IDS, _INTEGERS, _STRINGS, _FLOATS, _NULLS)
conditions = st.one_of(_ATOMS, st.builds(_either, _ATOMS, _ATOMS), st.builds(_both, _ATOMS, _ATOMS))
"""Conditions over the columns of every version."""


@st.composite
def assignments(draw: st.DrawFn) -> tuple[dict[str, pl.Expr], Callable[[Row], Row]]:
    """Draw new values for columns: expressions, and a function that changes a row."""
    number, text = draw(st.none() | _NUMBERS), draw(st.none() | _TEXTS)
    choices: dict[str, tuple[dict[str, pl.Expr], Callable[[Row], Row]]] = {
        "one more": ({"a": pl.col("a") + 1}, lambda row: {"a": None if row["a"] is None else row["a"] + 1}),
        "number": ({"a": pl.lit(number, pl.Int32)}, lambda _: {"a": number}),
        "text": ({"s": pl.lit(text, pl.String)}, lambda _: {"s": text}),
        "other": ({"x": pl.col("a").cast(pl.Float64)}, lambda row: {"x": _real(row["a"])}),
        "two": (
            {"a": pl.lit(7, pl.Int32), "s": pl.col("s") + "!"},
            lambda row: {"a": 7, "s": None if row["s"] is None else row["s"] + "!"},
        ),
    }
    return choices[draw(st.sampled_from(sorted(choices)))]


def _real(number: int | None) -> float | None:
    return None if number is None else float(number)


@dataclass(frozen=True)
class Batch:
    """Rows to write, once the next free id is known; `a` is below `reach`."""

    count: int
    reach: int
    seed: int

    def rows(self, first: int) -> list[Row]:
        rng = random.Random(self.seed)  # noqa: S311 -- not secret
        return [
            {
                "id": number,
                "a": rng.randrange(self.reach) if rng.random() > 0.1 else None,
                "s": f"key {rng.randrange(15)}" if rng.random() > 0.1 else None,
                "x": rng.choice([None, math.nan, -0.0, *[round(rng.lognormvariate(3, 1), 2)] * 7]),
            }
            for number in range(first, first + self.count)
        ]


def batches() -> st.SearchStrategy[Batch]:
    """Draw batches: mostly similar, some with few rows, few values, or values out of range."""
    count, reach = st.sampled_from([60, 60, 60, 25, 3, 1, 0]), st.sampled_from([100, 100, 100, 100, 3, 10**6])
    return st.builds(Batch, count, reach, st.integers(0, 2**16))
