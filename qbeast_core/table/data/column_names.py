"""Names that columns may have: one rule for everything that adds columns to a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.spec.layout import WEIGHT_COLUMN


def name_problems(fields: Mapping[str, Any]) -> list[str]:
    """Return why columns of a Delta table cannot have these names; empty if they can.

    >>> name_problems(pl.Schema({"a": pl.Int64, "A": pl.Int64, "b": pl.Int64}))
    ["'a' and 'A' differ in case alone, which Delta cannot tell apart"]
    """
    problems: list[str] = []
    for name in fields:
        if not name:
            problems.append("one has no name")
        if name.lower() == WEIGHT_COLUMN:
            problems.append(f"{name!r} is the name of a column of qbeast's own")
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            problems.append(f"{name!r} is a pattern to Polars")
    return [*problems, *_inner_problems(fields)]


def refuse_names(fields: Mapping[str, Any], *, argument: str) -> None:
    """Raise if a column cannot have its name."""
    problems = name_problems(fields)
    if problems:
        msg = f"columns cannot be called so: {'; '.join(problems)}. Nothing was written. Rename them."
        raise InvalidInputError(msg, argument=argument)


def _inner_problems(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of columns and of fields inside of them: no Delta reader would open the table."""
    seen: dict[str, str] = {}
    for name, dtype in fields.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            yield f"{other!r} and {name!r} differ in case alone, which Delta cannot tell apart"
        if "\0" in name:
            yield f"{name!r} holds the character NUL"
        match dtype:
            case pl.Struct():
                inner: Mapping[str, Any] = dtype.to_schema()
            case pl.List() | pl.Array():
                inner = {"element": dtype.inner}
            case pl.Map():
                inner = {"key": dtype.key, "value": dtype.value}
            case _:
                continue
        yield from (f"in {name!r}: {problem}" for problem in _inner_problems(inner))
