"""The filters that the JVM was asked, from their SQL text to Polars: comparisons, IN, IS NULL, AND, OR."""

from __future__ import annotations

import operator
import re
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl

__all__ = ["to_polars"]

_TOKEN = re.compile(
    r"\s*(?:`(?P<column>[^`]+)`|(?P<typed>DATE|TIMESTAMP)'(?P<moment>[^']+)'|'(?P<text>(?:[^'\\]|\\.)*)'"
    r"|(?P<number>-?\d[\d.]*(?:E[+-]?\d+)?)(?P<kind>BD|D|L)?|(?P<sign>>=|<=|[=<>(),])|(?P<word>\w+))"
)
_COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def to_polars(sql: str) -> pl.Expr:
    """Return the filter; text of another shape is an error, never a guess."""
    tokens = _Tokens(sql)
    actual = _any_of(tokens)
    assert tokens.done, f"{sql!r} goes on after a filter"
    return actual


class _Tokens:
    def __init__(self, sql: str) -> None:
        matches = list(_TOKEN.finditer(sql))
        assert "".join(m.group() for m in matches) == sql.rstrip(), f"{sql!r} cannot be read"
        self._matches = matches
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._matches)

    def take(self) -> re.Match[str]:
        self._at += 1
        return self._matches[self._at - 1]

    def took(self, *words: str) -> bool:
        """Take these words if they come next."""
        ahead = [m.group().strip() for m in self._matches[self._at : self._at + len(words)]]
        actual = ahead == list(words)
        self._at += len(words) if actual else 0
        return actual


def _any_of(tokens: _Tokens) -> pl.Expr:
    actual = _all_of(tokens)
    while tokens.took("OR"):
        actual = actual | _all_of(tokens)
    return actual


def _all_of(tokens: _Tokens) -> pl.Expr:
    actual = _atom(tokens)
    while tokens.took("AND"):
        actual = actual & _atom(tokens)
    return actual


def _atom(tokens: _Tokens) -> pl.Expr:
    if tokens.took("("):
        actual = _any_of(tokens)
        assert tokens.took(")"), "a bracket is not closed"
        return actual
    name = tokens.take()
    column = pl.col(name["column"] or name["word"])
    if tokens.took("IS", "NULL"):
        return column.is_null()
    if tokens.took("IN", "("):
        values = [_value(tokens)]
        while tokens.took(","):
            values.append(_value(tokens))
        assert tokens.took(")"), "a list is not closed"
        return column.is_in(values)
    compare = _COMPARE[tokens.take()["sign"]]
    value = _value(tokens)
    # As Spark does: a double literal takes a float column to double.
    literal = pl.lit(value, dtype=pl.Float64) if isinstance(value, float) else pl.lit(value)
    return compare(column, literal)


def _value(tokens: _Tokens) -> object:
    actual = tokens.take()
    if actual["typed"] == "DATE":
        return date.fromisoformat(actual["moment"])
    if actual["typed"] == "TIMESTAMP":
        return datetime.fromisoformat(actual["moment"]).replace(tzinfo=UTC)
    if actual["text"] is not None:
        assert "\\" not in actual["text"], "escapes are not read"
        return actual["text"]
    number, kind = actual["number"], actual["kind"]
    if kind == "BD":
        return Decimal(number)
    return float(number) if kind == "D" else int(number)
