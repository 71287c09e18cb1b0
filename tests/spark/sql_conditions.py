"""Random conditions in Spark's SQL over random tables: those that are understood, and others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.helpers.strategies import VALUES

_Draw = Callable[[st.SearchStrategy[Any]], Any]
OPS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>")


@st.composite
def conditions(draw: st.DrawFn, frame: pl.DataFrame, depth: int = 2) -> str:
    """A boolean expression; Spark may refuse it for its types."""
    kind = draw(st.sampled_from(["atom", "atom", "AND", "OR", "NOT", "()", "case"] if depth else ["atom"]))
    inner = conditions(frame, depth - 1)
    match kind:
        case "AND" | "OR":
            return f"{draw(inner)} {draw(st.sampled_from([kind, kind.lower()]))} {draw(inner)}"
        case "NOT":
            return f"{draw(st.sampled_from(['NOT ', 'not ', '! ']))}({draw(inner)})"
        case "()":
            return f"( {draw(inner)})"
        case "case":
            return f"CASE WHEN {draw(inner)} THEN {draw(inner)} ELSE {draw(inner)} END"
        case _:
            return draw(_atoms(frame))


@st.composite
def _atoms(draw: st.DrawFn, frame: pl.DataFrame) -> str:
    names = [name for name, dtype in frame.schema.items() if not dtype.is_nested()]
    name = draw(st.sampled_from(names))
    column, dtype = quoted_name(draw, name), frame.schema[name]

    def value() -> str:
        return draw(literals(dtype, frame[name]))

    forms = [
        lambda: f"{column} {draw(st.sampled_from(OPS))} {value()}",
        lambda: f"{column} {draw(st.sampled_from(OPS))} {value()}",
        lambda: f"{value()} {draw(st.sampled_from(OPS))} {column}",
        lambda: f"NOT {column} {draw(st.sampled_from(OPS))} {value()}",
        lambda: f"{column} {draw(_nots)}BETWEEN {value()} AND {value()}",
        lambda: f"{column} {draw(_nots)}IN ({', '.join(value() for _ in range(draw(st.integers(1, 4))))})",
        lambda: f"{column} IS {draw(_nots)}NULL",
        lambda: f"{column} IS {draw(_nots)}DISTINCT FROM {value()}",
        lambda: f"coalesce({column}, {value()}) = {value()}",
        lambda: f"({column} = {value()} AND {column} < {value()}) IS {draw(_nots)}NULL",
        lambda: f"length(cast({column} AS string)) > 3 AND {column} > {value()}",
    ]
    if dtype == pl.String():
        forms += [lambda: f"{column} {draw(_nots)}LIKE {draw(_patterns)}"]
    if dtype == pl.Boolean():
        forms += [lambda: column, lambda: f"NOT {column}", lambda: f"{column} IS {draw(_nots)}TRUE"]
    return draw(st.sampled_from(forms))()


_nots = st.sampled_from(["", "NOT "])
_patterns = st.sampled_from(["'a%'", "'%a'", "'a_'", "'ab'", "'%'", "'long %'", r"'a\\%'", "''", "'é%'"])


def quoted_name(draw: _Draw, name: str) -> str:
    """A name as it may be written: in backquotes, or bare in any case."""
    bare = name.isascii() and name.isidentifier()
    forms = [f"`{name}`", f"`{name.upper()}`", *([name, name.upper(), name.title()] if bare else [])]
    return draw(st.sampled_from(forms))


@st.composite
def literals(draw: st.DrawFn, dtype: pl.DataType, present: pl.Series) -> str:
    """Write a value of the column's type, or nearly so."""
    actual = present.drop_nulls().head(20).to_list()
    value = draw(st.one_of(st.sampled_from(actual), VALUES[dtype]) if actual else VALUES[dtype])
    forms = [*_own(value), *_own(value), *_own(value), *_others(value)]
    return draw(st.sampled_from(forms))


def _own(value: Any) -> list[str]:
    """Write a value in the literals of its own type."""
    match value:
        case bool():
            actual = [str(value), str(value).upper()]
        case int():
            actual = [str(value), f"{value}L"] if -(2**63) <= value < 2**63 else [str(value)]
        case float():
            actual = (
                [f"{value:.3f}", f"{value!r}D", repr(value)] if isfinite(value) else [f"double('{value}')"]
            )
        case Decimal():
            actual = [f"{value:f}", f"{value:f}BD"]
        case str():
            actual = [text(value)]
        case bytes():
            actual = [f"X'{value.hex()}'"]
        case datetime() if value.tzinfo is not None:
            plain = f"{value.year:04}-{value:%m-%d %H:%M:%S.%f}"
            actual = [f"TIMESTAMP'{plain}Z'", f"timestamp '{plain}+02:00'"]
        case datetime():
            actual = [f"TIMESTAMP_NTZ'{value.year:04}-{value:%m-%d %H:%M:%S.%f}'"]
        case _:
            actual = [f"DATE'{value.year:04}-{value:%m-%d}'", f"date '{value.year:04}-{value:%m-%d}'"]
    return actual


ALWAYS = (
    "NULL",
    "'5'",
    "5",
    "2.5",
    "- 1",
    "0.1",
    "1e3",
    "-0.0",
    "-0.0D",
    "0.5F",
    "DATE'2020-01-01'",
    "''",
    "TRUE",
)
NUMBERS = ("2147483648", "9223372036854775808", "0.30000000000000004", "16777217")


def _others(value: Any) -> list[str]:
    """Write what people write instead, and what casts make of it."""
    if isinstance(value, date):  # a datetime too
        day = f"{value.year:04}-{value:%m-%d}"
        quoted = [f"'{day}'", f"'{day} 00:00:00'", f"'{day} 00:00:00.5Z'", "'2020-1-1'"]
        return [
            *ALWAYS,
            *quoted,
            f"DATE'{day}'",
            f"TIMESTAMP'{day} 01:00:00'",
            f"TIMESTAMP'{day}'",
            "current_date()",
        ]
    if isinstance(value, int | float | Decimal):
        return [*ALWAYS, *NUMBERS, f"'{value}'", f"cast('{value}' AS double)"]
    return list(ALWAYS)


def text(value: str) -> str:
    """Write a text; in double quotes and doubled where it holds what needs an escape."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
