"""Names that columns may have: one rule for everything that adds columns to a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import polars as pl

from qbeast_core.errors import InvalidInputError, invalid_argument
from qbeast_core.spec.block import BlocksDialect
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
        msg = f"columns cannot be called so: {'; '.join(problems)}. Rename them."
        raise InvalidInputError(msg, argument=argument)


def listed_names(value: object, argument: str) -> tuple[str, ...]:
    """Return an argument that names columns, in a list or one alone. Raise if it is of another type.

    >>> listed_names("year", "partition_by"), listed_names(["a", "b"], "")
    (('year',), ('a', 'b'))
    """
    if isinstance(value, str):
        return (value,)
    is_list = isinstance(value, Iterable) and not isinstance(value, Mapping | set | frozenset)
    names = list(cast("Iterable[object]", value)) if is_list else [value]
    texts = tuple(name for name in names if isinstance(name, str))
    if not is_list or len(texts) < len(names):
        invalid_argument(argument, "must be a list of names of columns", value=value)
    return texts


def check_sample_column(
    name: object, columns: Iterable[str], dialect: BlocksDialect, *, argument: str = "sample_column"
) -> str:
    """Return the name of a new sample column; raise if a table of these columns and this dialect cannot have it."""
    if not isinstance(name, str):
        invalid_argument(argument, "must be the name of a new column", value=name)
    taken = [column for column in columns if column.lower() == name.lower()]
    problems = [f"there is a column {column!r}" for column in taken] + name_problems({name: None})
    if problems:
        cure = "Choose another name, or drop the column from the rows."
        msg = f"{name!r} cannot be the name of a sample column: {'; '.join(problems)}. {cure}"
        raise InvalidInputError(msg, argument=argument, value=name)
    if dialect == "qbeast-spark":
        msg = (
            "tables of the dialect 'qbeast-spark' cannot have a sample column: appends of the JVM would leave nulls "
            "in it. Use the dialect 'documented' (Table.switch_dialect)."
        )
        raise InvalidInputError(msg, argument=argument, value=name)
    return name


def refuse_sample_column(name: str | None, names: Iterable[str], *, argument: str) -> None:
    """Raise if an argument names the sample column, whose values are computed."""
    if name is not None and name in names:
        msg = (
            f"`{argument}` names the sample column {name!r}, which is computed from the indexed columns. "
            "Leave it out; to change samples, index other columns: Table.reindex."
        )
        raise InvalidInputError(msg, argument=argument, value=name)


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
