"""SQL text as a Polars aggregate: calls such as ``avg(dep_delay)``, and arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import polars as pl

from qbeast_core.query.sql_cursor import Cursor
from qbeast_core.query.sql_expressions import expression_of
from qbeast_core.query.sql_tokens import SqlRefused, Token, tokenize

__all__ = ["sql_aggregate"]

_Aggregate = Callable[[pl.Expr], pl.Expr]

_AGGREGATES: Final[dict[str, _Aggregate]] = {
    "AVG": lambda values: values.mean(),
    "COUNT": lambda values: values.count(),
    "COUNT_IF": lambda values: values.count(),
    "MEAN": lambda values: values.mean(),
    "MEDIAN": lambda values: values.median(),
    "STDDEV": lambda values: values.std(),
    "STDDEV_POP": lambda values: values.std(ddof=0),
    "STDDEV_SAMP": lambda values: values.std(),
    "SUM": lambda values: values.sum(),
    "VARIANCE": lambda values: values.var(),
    "VAR_POP": lambda values: values.var(ddof=0),
    "VAR_SAMP": lambda values: values.var(),
    # What has no bound is understood too, so that it is refused by name.
    "FIRST": lambda values: values.first(),
    "LAST": lambda values: values.last(),
    "MAX": lambda values: values.max(),
    "MIN": lambda values: values.min(),
}
_QUANTILES: Final = {"PERCENTILE": "linear", "QUANTILE_CONT": "linear", "QUANTILE_DISC": "equiprobable"}
_KNOWN: Final = (*_AGGREGATES, *_QUANTILES)


def sql_aggregate(text: str, columns: Collection[str]) -> pl.Expr:
    """Understand an aggregate of rows, or arithmetic on aggregates.

    Parameters
    ----------
    text : str
        Calls of ``count``, ``sum``, ``avg``, ``stddev``, ``variance``, ``median``, ``quantile_cont(x, 0.9)`` and
        their like, each perhaps with ``FILTER (WHERE ...)``, joined by ``+ - * /``; ``sqrt`` of these; numbers.
    columns : collection of str
        Names of the columns that there are.

    Raises
    ------
    SqlRefused
        It is anything else.
    polars.exceptions.PolarsError
        Polars does not take the arguments of a function, or the like.

    Examples
    --------
    >>> str(sql_aggregate("sum(price * 2) / count(*)", ["price"]))
    '[(col("price").sql_mul([dyn int: 2]).sum()) / (len())]'
    >>> str(sql_aggregate("avg(delay) FILTER (WHERE delay > 0)", ["delay"]))
    'col("delay").filter([(col("delay")) > (dyn int: 0)]).mean()'
    """
    reader = _Reader(tokenize(text), frozenset(columns))
    expr = reader.terms()
    if reader.token is not None:
        reader.refuse_rest()
    return expr


class _Reader(Cursor):
    """Walks along aggregates."""

    def terms(self) -> pl.Expr:
        """Read aggregates with ``+`` and ``-`` between them."""
        self.descend()
        expr = self.factors()
        while self.sees("+", "-"):
            plus, right = self.take("+", "-") == "+", self.factors()
            expr = expr + right if plus else expr - right
        self.depth -= 1
        return expr

    def factors(self) -> pl.Expr:
        """Read aggregates with ``*`` and ``/`` between them."""
        expr = self.factor()
        while self.sees("*", "/"):
            times, right = self.take("*", "/") == "*", self.factor()
            expr = expr * right if times else expr / right
        return expr

    def factor(self) -> pl.Expr:
        """Read a number, an aggregate, or what is in parentheses."""
        if self.takes("-"):
            return -self.factor()
        if self.takes("("):
            expr = self.terms()
            self.take(")")
            return expr
        token = self.token
        if token is None:
            self.refuse(", where an aggregate is due")
        if token.kind == "number":
            self.at += 1
            return pl.lit(float(token.text))
        if token.kind == "word" and self.sees("(", further=1):
            return self.call(token)
        self.refuse_rest()
        raise AssertionError

    def call(self, token: Token) -> pl.Expr:
        """Read a call."""
        name = token.upper
        if name == "SQRT":
            self.at += 2
            expr = self.terms()
            self.take(")")
            return expr.sqrt()
        if name not in _KNOWN:
            msg = f"{token.shown} is no aggregate that is known here; there are {', '.join(sorted(_KNOWN)).lower()}"
            raise SqlRefused(msg)
        close = self.closings.get(self.at + 1)
        if close is None:
            self.at = len(self.tokens)
            self.refuse(", where ) is due")
        held = self.tokens[self.at + 2 : close]
        self.at = close + 1
        where = self.filter()
        return self.aggregate(name, held, where)

    def filter(self) -> pl.Expr | None:
        """Read ``FILTER (WHERE condition)``, if it comes."""
        if not self.takes("FILTER"):
            return None
        close = self.closings.get(self.at)
        self.take("(")
        self.take("WHERE")
        if close is None:
            self.at = len(self.tokens)
            self.refuse(", where ) is due")
        held = self.tokens[self.at : close]
        self.at = close + 1
        return expression_of(held, self.columns)

    def aggregate(self, name: str, held: Sequence[Token], where: pl.Expr | None) -> pl.Expr:
        """Return an aggregate of what a call holds."""
        counts = name == "COUNT"
        if counts and len(held) == 1 and (held[0].kind == "number" or held[0].text == "*"):
            return pl.len() if where is None else where.filter(where).count()
        level = None
        if name in _QUANTILES:
            level, held = self.level(held)
        distinct = counts and bool(held) and held[0].upper == "DISTINCT"
        values = expression_of(held[1:] if distinct else held, self.columns)
        if name == "COUNT_IF":  # of what is no condition, no sum is to come
            where = values if where is None else where & values
        values = values if where is None else values.filter(where)
        if level is not None:
            return values.quantile(level, _QUANTILES[name])  # type: ignore[arg-type] # one of Polars' words
        if distinct:
            return values.n_unique()
        return _AGGREGATES[name](values)

    @staticmethod
    def level(held: Sequence[Token]) -> tuple[float, Sequence[Token]]:
        """Take the level off the arguments of a quantile."""
        if len(held) < 3 or held[-1].kind != "number" or held[-2].text != ",":
            msg = "a quantile needs what it is of and a level, as in quantile_cont(price, 0.9)"
            raise SqlRefused(msg)
        return float(held[-1].text), held[:-2]

    def refuse_rest(self) -> None:
        """Say of what is no aggregate what is due."""
        token = self.token
        if token is not None and token.kind in ("word", "name") and not self.sees("(", further=1):
            msg = f"{token.shown} stands in no aggregate; write avg(column), sum(column) or the like"
            raise SqlRefused(msg)
        self.refuse()
