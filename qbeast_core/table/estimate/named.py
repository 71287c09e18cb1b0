"""Collect expressions by name from a mapping, a list, a single expression, or SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias, cast

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.support.plain_text import excerpt

# Expressions or SQL texts: one, several in a list, or several by name.
Expressions: TypeAlias = pl.Expr | str | Sequence[pl.Expr | str] | Mapping[str, pl.Expr | str]


def named_expressions(
    expressions: object, name: str, parse: Callable[[str], Mapping[str, pl.Expr]]
) -> dict[str, pl.Expr]:
    """Return expressions by name, in order.

    Without a mapping, the name of an expression is its output name in Polars; the name of SQL is its text or alias.

    >>> expressions = named_expressions([pl.col("a").sum(), pl.len().alias("n")], "aggregates", lambda text: {})
    >>> {name: str(expr) for name, expr in expressions.items()}
    {'a': 'col("a").sum()', 'n': 'len().alias("n")'}
    """
    result: dict[str, pl.Expr] = {}
    for alias, item in _items(expressions, name):
        if not isinstance(alias, str | None) or not isinstance(item, str | pl.Expr):
            refuse(name, f"takes Polars expressions or SQL texts, by names, not {item!r}")
        parts = (
            parse(item) if isinstance(item, str) else {_name_of(item, name) if alias is None else alias: item}
        )
        if alias is not None and len(parts) != 1:
            refuse(name, f"takes one expression for the name {alias!r}, and {item!r} has several")
        duplicates = [part for part in parts if part in result]
        if duplicates:
            refuse(name, f"has two expressions named {duplicates[0]!r}; use a mapping with different names")
        result |= parts if alias is None else dict.fromkeys([alias], *parts.values())
    return result


def _items(expressions: object, name: str) -> Iterable[tuple[object, object]]:
    if isinstance(expressions, Mapping):
        return cast("Mapping[object, object]", expressions).items()
    if isinstance(expressions, str | pl.Expr):
        return [(None, expressions)]
    if isinstance(expressions, Sequence):
        return [(None, item) for item in cast("Sequence[object]", expressions)]
    what = f"takes Polars expressions or SQL texts: one, a list, or a mapping of names, not {expressions!r}"
    return refuse(name, what)


def _name_of(expr: pl.Expr, name: str) -> str:
    alias = None if expr.meta.has_multiple_outputs() else expr.meta.output_name(raise_if_undetermined=False)
    if alias is None:
        refuse(name, f"takes expressions of one column each, not {excerpt(expr)}; use a list")
    return alias


def refuse(name: str, what: str, cure: str = "") -> NoReturn:
    """Refuse an argument before anything is read."""
    msg = f"`{name}` {what}{cure and '.'}{cure}"
    raise InvalidInputError(msg, argument=name)
