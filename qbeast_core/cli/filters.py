"""Conditions in SQL as Polars expressions on the columns of a table."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

import polars as pl

from qbeast_core.cli.wording import first_line
from qbeast_core.errors import InvalidInputError

__all__ = ["evaluated", "parse_where"]


def parse_where(text: str | None, schema: pl.Schema) -> pl.Expr | None:
    """Return the condition, checked against the columns; None stays None.

    Parameters
    ----------
    text : str or None
        What stands after WHERE in SQL, as Polars understands it: ``"price" < 10 AND day >= DATE '2026-01-31'``.
    schema : polars.Schema
        Of the table.

    Raises
    ------
    InvalidInputError
        It cannot be read, names columns that are not there, compares what cannot be compared, or is neither
        true nor false.

    Examples
    --------
    >>> rows = pl.DataFrame({"a": [1, 2, 3]})
    >>> rows.filter(parse_where("a > 2", rows.schema))["a"].to_list()
    [3]
    """
    if text is None:
        return None
    try:
        condition = pl.sql_expr(text)
    except pl.exceptions.PolarsError as error:
        msg = f"--where {text!r} cannot be read as SQL: {first_line(str(error))}"
        raise InvalidInputError(msg, argument="where") from error
    unknown = sorted({name for name in condition.meta.root_names() if name not in schema})
    if unknown:
        msg = f"--where names no such column(s): {unknown}; the table has {list(schema)}"
        raise InvalidInputError(msg, argument="where")
    nothing = pl.DataFrame(schema=schema).lazy()
    with evaluated(text):  # on no row: types alone
        found = nothing.select(condition.alias("where")).collect().schema["where"]
    if found != pl.Boolean:
        msg = f"--where {text!r} is of type {found}, neither true nor false; compare it with something"
        raise InvalidInputError(msg, argument="where")
    with evaluated(text):
        nothing.filter(condition).collect()
    return condition


@contextmanager
def evaluated(text: str | None) -> Generator[None]:
    """Run a read; where Polars cannot evaluate the condition, say so in a line.

    Raises
    ------
    InvalidInputError
        With the cure for the usual cause.
    """
    try:
        yield
    except pl.exceptions.PolarsError as error:
        if text is None:
            raise
        msg = f"--where {text!r} cannot be evaluated: {_said(error)}"
        raise InvalidInputError(msg, argument="where") from error


def _said(error: pl.exceptions.PolarsError) -> str:
    """Return what Polars says, with the cure where a time is compared with text."""
    text, _, _ = first_line(str(error)).partition(" (create native python")
    if re.search(r"\b(date|datetime)\b", text, re.IGNORECASE):
        return (
            f"{text}; write DATE '2026-01-31', TIMESTAMP '2026-01-31 12:00:00', or TIMESTAMPTZ '...' in UTC"
        )
    return text
