"""Conditions in SQL as Polars expressions on the columns of a table."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

import polars as pl

from qbeast_core.table.data.expressions import condition_of, evaluating

__all__ = ["evaluated", "parse_where"]

_OPTION: Final = "--where"
_OUTCOME: Final = "nothing was read"


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
        See `qbeast_core.table.data.expressions.condition_of`.

    Examples
    --------
    >>> rows = pl.DataFrame({"a": [1, 2, 3]})
    >>> rows.filter(parse_where("a > 2", rows.schema))["a"].to_list()
    [3]
    """
    return None if text is None else condition_of(text, schema, argument=_OPTION, outcome=_OUTCOME).expr


def evaluated(text: str | None) -> AbstractContextManager[None]:
    """Run a read; where Polars cannot evaluate the condition, say so in a line.

    Raises
    ------
    InvalidInputError
        With the cure for the usual cause.
    """
    return evaluating(text, _OPTION, _OUTCOME)
