"""Several expressions with names, however they are given: a mapping, a list, one alone, or SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn, TypeAlias, cast

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.hints import Message, argument

__all__ = ["Expressions", "named_expressions"]

Expressions: TypeAlias = pl.Expr | str | Sequence[pl.Expr | str] | Mapping[str, pl.Expr | str]
"""Expressions or SQL texts: one, several in a list, or several by name."""


def named_expressions(
    given: object, name: str, understand: Callable[[pl.Expr | str], pl.Expr]
) -> dict[str, pl.Expr]:
    """Return expressions by the names of what they give, in their order.

    An expression in a list is called as Polars calls its column, a text as it stands.

    Parameters
    ----------
    given : object
        As the caller has it.
    name : str
        Of the argument.
    understand : callable
        Returns what a text or an expression is, or refuses it.

    Raises
    ------
    InvalidInputError
        It is something else, two have one name, or one has none.

    Examples
    --------
    >>> found = named_expressions([pl.col("a").sum(), pl.len().alias("n")], "aggregates", lambda one: one)
    >>> {name: str(one) for name, one in found.items()}
    {'a': 'col("a").sum()', 'n': 'len().alias("n")'}
    """
    found: dict[str, pl.Expr] = {}
    for called, one in _items(given, name):
        if not isinstance(called, str) or not isinstance(one, str | pl.Expr):
            _refuse(name, f"takes Polars expressions or SQL texts, by names that are texts, not {one!r}")
        if called in found:
            _refuse(name, f"has two of the name {called!r}; give a mapping of different names")
        found[called] = understand(one)
    return found


def _items(given: object, name: str) -> Iterator[tuple[object, object]]:
    if isinstance(given, Mapping):
        yield from cast("Mapping[object, object]", given).items()
    elif isinstance(given, str | pl.Expr):
        yield _name_of(given, name), given
    elif isinstance(given, Sequence):
        for one in cast("Sequence[object]", given):
            yield _name_of(one, name), one
    else:
        _refuse(
            name, f"takes Polars expressions or SQL texts: one, a list, or a mapping of names, not {given!r}"
        )


def _name_of(one: object, name: str) -> object:
    if not isinstance(one, pl.Expr):
        return one
    called = None if one.meta.has_multiple_outputs() else one.meta.output_name(raise_if_undetermined=False)
    if called is None:
        _refuse(name, f"takes expressions of one column each, and {one} is not one; give them in a list")
    return called


def _refuse(name: str, what: str) -> NoReturn:
    raise InvalidInputError(Message(argument(**{name: None}), f" {what}; nothing was read"), argument=name)
