"""Expressions by name, from a mapping, a list, a single expression, or SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn, TypeAlias, cast

import polars as pl

from qbeast_core.errors import InvalidInputError

# Expressions or SQL texts: one, several in a list, or several by name.
Expressions: TypeAlias = pl.Expr | str | Sequence[pl.Expr | str] | Mapping[str, pl.Expr | str]


def named_expressions(
    given: object, name: str, read: Callable[[str], Mapping[str, pl.Expr]]
) -> dict[str, pl.Expr]:
    """Return expressions by their names, in their order.

    Without a mapping, an expression has the name that Polars gives its column, and SQL its text or alias.

    >>> found = named_expressions([pl.col("a").sum(), pl.len().alias("n")], "aggregates", lambda text: {})
    >>> {name: str(one) for name, one in found.items()}
    {'a': 'col("a").sum()', 'n': 'len().alias("n")'}
    """
    found: dict[str, pl.Expr] = {}
    for called, one in _items(given, name):
        if not isinstance(called, str | None) or not isinstance(one, str | pl.Expr):
            _refuse(name, f"takes Polars expressions or SQL texts, by names that are texts, not {one!r}")
        parts = (
            read(one) if isinstance(one, str) else {_name_of(one, name) if called is None else called: one}
        )
        if called is not None and len(parts) != 1:
            _refuse(name, f"takes one expression for the name {called!r}, and {one!r} is several")
        twice = [part for part in parts if part in found]
        if twice:
            _refuse(name, f"has two of the name {twice[0]!r}; give a mapping of different names")
        found |= parts if called is None else dict.fromkeys([called], *parts.values())
    return found


def _items(given: object, name: str) -> Iterator[tuple[object, object]]:
    if isinstance(given, Mapping):
        yield from cast("Mapping[object, object]", given).items()
    elif isinstance(given, str | pl.Expr):
        yield None, given
    elif isinstance(given, Sequence):
        for one in cast("Sequence[object]", given):
            yield None, one
    else:
        _refuse(
            name, f"takes Polars expressions or SQL texts: one, a list, or a mapping of names, not {given!r}"
        )


def _name_of(one: pl.Expr, name: str) -> str:
    called = None if one.meta.has_multiple_outputs() else one.meta.output_name(raise_if_undetermined=False)
    if called is None:
        _refuse(name, f"takes expressions of one column each, and {one} is not one; give them in a list")
    return called


def _refuse(name: str, what: str) -> NoReturn:
    msg = f"`{name}` {what}; nothing was read"
    raise InvalidInputError(msg, argument=name)
