"""SQL text as Polars expressions: a grammar of our own admits it, so that Polars' parser sees expressions alone.

That parser knows queries and table functions too: it reads the files and addresses they name while it parses. On
texts that are long it takes quadratic time, or ends the process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import polars as pl

from qbeast_core.query.sql_grammar import Chain, Part, read_expression, written
from qbeast_core.query.sql_tokens import Token, tokenize

__all__ = ["expression_of", "sql_expression"]

_AT_ONCE: Final = 16
"""Conditions that Polars may chain by itself: of more, a balanced tree is made."""


def sql_expression(text: str, columns: Collection[str]) -> pl.Expr:
    """Understand an expression on the columns of a row, as `polars.sql_expr` understands it.

    Nothing is read, neither of the disk nor of a network. A word that is exactly a column's name is that column
    wherever it can be one, also if SQL knows the word: ``user = 42``. Whether columns exist is not judged here.

    Parameters
    ----------
    text : str
        Comparisons, arithmetic, functions of a row, ``CASE``, ``CAST`` and the like, joined by ``AND`` and ``OR``.
    columns : collection of str
        Names of the columns that there are.

    Raises
    ------
    SqlRefused
        It is anything else, such as a query, or too long, or too deep.
    polars.exceptions.PolarsError
        Polars does not take the arguments of a function, or the like.

    Examples
    --------
    >>> str(sql_expression("user = 42 OR price > 10", ["user", "price"]))
    '[([(col("user")) == (dyn int: 42)]) | ([(col("price")) > (dyn int: 10)])]'
    """
    return expression_of(tokenize(text), frozenset(columns))


def expression_of(tokens: Sequence[Token], columns: frozenset[str]) -> pl.Expr:
    """Understand an expression that is cut into tokens already; see `sql_expression`.

    Parameters
    ----------
    tokens : sequence of Token
        All of it.
    columns : frozenset of str
        Names of the columns that there are.
    """
    return _as_expr(read_expression(tokens, columns))


def _as_expr(part: Part) -> pl.Expr:
    if isinstance(part, str) or part.size <= _AT_ONCE:
        return pl.sql_expr(written(part)).meta.undo_aliases()
    middle = len(part.parts) // 2
    left, right = (
        _as_expr(half[0] if len(half) == 1 else Chain(part.word, half))
        for half in (part.parts[:middle], part.parts[middle:])
    )
    return left & right if part.word == "AND" else left | right
