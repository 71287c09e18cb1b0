"""Read plain conditions without sqlglot, which takes longer to import than a small table takes to read.

A plain condition joins comparisons of columns with constants, all by AND or all by OR. Other texts, and all errors, are
left to `qbeast_core.sql.parse` and `qbeast_core.sql.lower`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import polars as pl

from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.operators import Comparison, balanced, between, compare, is_in, negated
from qbeast_core.sql.values import (
    TIMESTAMP,
    InvalidSqlError,
    Value,
    boolean,
    cast,
    number,
    of_type,
    text,
)
from qbeast_core.support.sizing import sizing

# Only usual spellings: no escapes, comments or exponents, and bare names in ASCII.
_TOKEN: Final = re.compile(
    r"[ \n]*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>-?[0-9]{1,18}(?:\.[0-9]{1,9})?)(?![\w.])"
    r"|'(?P<text>[^'\\\x00-\x1f\ud800-\udfff]*)'(?!')"
    r"|\"(?P<name>[^\"\\\x00-\x1f\ud800-\udfff]+)\"(?!\")"
    r"|(?P<sign><=|>=|<>|!=|[=<>(),]))",
    re.ASCII,
)
_SIGNS: Final[Mapping[str, Comparison]] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_JOINS: Final[Mapping[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "AND": operator.and_,
    "OR": operator.or_,
}
_TYPES: Final[Mapping[str, pl.DataType]] = {"DATE": pl.Date(), "TIMESTAMP": TIMESTAMP}
# The parser has rules for tables with columns of these names.
_JOINING: Final = frozenset({"AND", "BETWEEN", "IN", "IS", "LIKE", "ILIKE", "NOT", "OR", "XOR"})
_OTHERS: Final = frozenset({"CASE", "ELSE", "THEN", "WHEN", "FALSE", "NULL", "TRUE", "INTERVAL", "DISTINCT"})
_RESERVED: Final = _JOINING | _OTHERS | {"BY", "FROM", "HAVING", "SELECT", "WHERE"}


class _NotPlainError(Exception):
    """A text has another form."""


def plain_condition(source: str, schema: pl.Schema) -> pl.Expr | None:
    """Return the expression of a plain condition, equal to that of the parser; None: it is not plain.

    >>> schema = pl.Schema({"a": pl.Int64, "day": pl.Date})
    >>> print(plain_condition("a = 5 AND day < DATE '2026-11-05'", schema))
    [([(col("a")) == (dyn int: 5)]) & ([(col("day")) < (2026-11-05)])]
    >>> plain_condition("lower(a) = 'x'", schema) is None
    True
    """
    if not _RESERVED.isdisjoint(map(str.upper, schema)):
        return None
    try:
        return _Reader(_tokens(source), schema).condition()
    except (_NotPlainError, InvalidSqlError):
        return None


def _tokens(source: str) -> list[tuple[str, str]]:
    """Return the kind and the value of each token, then an end."""
    tokens, place, end = list[tuple[str, str]](), 0, len(source.rstrip(" \n"))
    if end > sizing().max_plain_characters:
        raise _NotPlainError
    while place < end:
        match = _TOKEN.match(source, place)
        if match is None:
            raise _NotPlainError
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
        place = match.end()
    return [*tokens, ("end", "")]


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: Sequence[tuple[str, str]], schema: pl.Schema) -> None:
        self._tokens = iter(tokens)
        self._schema = schema
        self._kind, self._text = next(self._tokens)

    def condition(self) -> pl.Expr:
        """Read comparisons up to the end."""
        parts, joins = [self._comparison()], list[str]()
        while self._kind != "end":
            joins.append(self._word(*_JOINS))
            parts.append(self._comparison())
        if len(set(joins)) > 1:
            raise _NotPlainError
        expressions = [part.expr for part in parts]
        # The parser computes conditions without a column, such as comparisons with numbers that a type cannot hold.
        if not all(named_columns(expr) for expr in expressions):
            raise _NotPlainError
        return balanced(expressions, _JOINS[joins[0]]) if joins else expressions[0]

    def _comparison(self) -> Value:
        column = self._column()
        if self._kind == "sign":
            sign = self._take("sign")
            if sign not in _SIGNS:
                raise _NotPlainError
            return compare(_SIGNS[sign], column, self._constant())
        word = self._word("BETWEEN", "IN", "IS", "NOT")
        if word == "BETWEEN":
            low = self._constant()
            self._word("AND")
            return between(column, low, self._constant())
        if word == "IS":
            is_negated = self._word("NOT", "NULL") == "NOT" and bool(self._word("NULL"))
            condition = boolean(column.expr.is_null(), "null", column)
        else:
            is_negated = word == "NOT" and bool(self._word("IN"))
            condition = is_in(column, self._list())
        return boolean(~condition.expr, "not", condition) if is_negated else condition

    def _column(self) -> Value:
        name = self._take("name" if self._kind == "name" else "word")
        if name not in self._schema:
            raise _NotPlainError
        return of_type(pl.col(name), self._schema[name], "column", name)

    def _list(self) -> list[Value]:
        self._sign("(")
        values = [self._constant()]
        while self._sign(",", ")") == ",":
            values.append(self._constant())
        return values

    def _constant(self) -> Value:
        if self._kind == "number":
            digits = self._take("number")
            unsigned = digits.removeprefix("-")
            value = number(int(unsigned) if unsigned.isdigit() else Decimal(unsigned))
            return negated(value) if digits != unsigned else value
        dtype = _TYPES[self._word(*_TYPES)] if self._kind == "word" else None
        value = text(self._take("text"))
        return value if dtype is None else cast(value, dtype, strict=True)

    def _word(self, *words: str) -> str:
        return self._one_of("word", words, self._text.upper())

    def _sign(self, *signs: str) -> str:
        return self._one_of("sign", signs, self._text)

    def _one_of(self, kind: str, values: Sequence[str], value: str) -> str:
        if value not in values:
            raise _NotPlainError
        self._take(kind)
        return value

    def _take(self, kind: str) -> Any:
        """Return the token, which has to be of a kind, and go to the next one."""
        if self._kind != kind:
            raise _NotPlainError
        value = self._text
        self._kind, self._text = next(self._tokens)
        return value
