"""Conditions and values that a change of rows is asked for: Polars expressions or SQL text, understood or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import InvalidInputError, SchemaMismatchError

__all__ = ["Condition", "Predicate", "Value", "condition_of", "value_of"]

Predicate: TypeAlias = pl.Expr | str
"""A boolean Polars expression, or the text of an SQL condition."""

Value: TypeAlias = Any
"""A Polars expression, SQL text, or a plain Python value that is no text."""

_PROBE_ROWS: Final = 3
_INTEGERS: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Which rows are meant; a row for which it is null is not.

    Attributes
    ----------
    expr : polars.Expr
        True, false or null for each row by itself.
    text : str
        For the history.
    constant : bool or None
        What it is for every row alike; None: it depends on the row.
    """

    expr: pl.Expr
    text: str
    constant: bool | None = None

    def mask(self, rows: pl.DataFrame) -> pl.Series:
        """Tell of each row whether it is meant, true or false."""
        met = rows.select(self.expr.fill_null(value=False).alias("met")).to_series()
        return met if len(met) == rows.height else met.new_from_index(0, rows.height)  # a constant

    @property
    def columns(self) -> list[str]:
        """Names of the columns it looks at, each once."""
        return list(dict.fromkeys(self.expr.meta.root_names()))


def condition_of(given: Predicate | None, schema: pl.Schema, *, argument: str = "predicate") -> Condition:
    """Understand a condition, or refuse it before anything is read.

    Parameters
    ----------
    given : polars.Expr, str or None
        None: every row.
    schema : polars.Schema
        Columns it may name.
    argument : str
        How the caller calls it, for messages.

    Raises
    ------
    InvalidInputError
        It is no condition on single rows of these columns: no SQL, another type than Boolean, a column that is
        not there, several columns at once, or a value that depends on other rows.

    Examples
    --------
    >>> schema = pl.Schema({"a": pl.Int64})
    >>> condition_of("a > 1 OR a IS NULL", schema).columns
    ['a']
    >>> condition_of(None, schema).constant
    True
    """
    if given is None:
        return Condition(pl.lit(value=True), "true", constant=True)
    expr = _expression(given, argument)
    dtype = _checked(expr, schema, argument)
    if dtype not in (pl.Boolean(), pl.Null()):
        msg = f"{argument} must be true or false for a row, {_shown(given)} is {dtype}; nothing was changed"
        raise InvalidInputError(msg, argument=argument)
    constant = None
    if not expr.meta.root_names():
        constant = pl.select(expr).to_series().to_list() == [True]
    return Condition(expr.cast(pl.Boolean) if dtype == pl.Null() else expr, _shown(given), constant)


def value_of(
    given: Value, schema: pl.Schema, dtype: pl.DataType, *, column: str, argument: str = "assignments"
) -> pl.Expr:
    """Understand a value for a column, in the column's own type, or refuse it before anything is read.

    Parameters
    ----------
    given : polars.Expr, str or a plain value
        Text is SQL.
    schema : polars.Schema
        Columns it may name.
    dtype : polars.DataType
        Of the column.
    column : str
        Its name.
    argument : str
        How the caller calls it, for messages.

    Returns
    -------
    polars.Expr
        Named as the column. Evaluation raises where a number is too large for the type.

    Raises
    ------
    InvalidInputError
        See `condition_of`.
    SchemaMismatchError
        A value of that type cannot be put into the column without a cast that may lose something.
    """
    expr = _expression(given, argument) if isinstance(given, str | pl.Expr) else _literal(given, argument)
    found = _checked(expr, schema, argument)
    if not _storable(found, dtype):
        problem = f"column {column!r} is {dtype} and {_shown(given)} is {found}"
        msg = f"{problem}; nothing was changed. Cast it to {dtype} yourself."
        raise SchemaMismatchError(msg, problems=[problem])
    return (expr if found == dtype else expr.cast(dtype)).alias(column)


def _literal(given: object, argument: str) -> pl.Expr:
    try:
        return pl.lit(given)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        msg = f"{argument} cannot hold a {type(given).__name__}: {_first_line(error)}; nothing was changed"
        raise InvalidInputError(msg, argument=argument) from error


def _expression(given: object, argument: str) -> pl.Expr:
    if isinstance(given, pl.Expr):
        return given
    if not isinstance(given, str):
        kind = type(given).__name__
        msg = f"{argument} must be a Polars expression or SQL text, not {kind}; nothing was changed"
        raise InvalidInputError(msg, argument=argument)
    try:
        return pl.sql_expr(given).meta.undo_aliases()
    except pl.exceptions.PolarsError as error:
        msg = f"{argument} {given!r} is no SQL that Polars understands: {_first_line(error)}; nothing was changed"
        raise InvalidInputError(msg, argument=argument) from error


def _checked(expr: pl.Expr, schema: pl.Schema, argument: str) -> pl.DataType:
    """Return the type of an expression that gives one value per row, from that row alone."""
    unknown = [name for name in dict.fromkeys(expr.meta.root_names()) if name not in schema]
    if unknown:
        msg = f"{argument} names column(s) {unknown} that are not there; there are {list(schema)}. Nothing was changed."
        raise InvalidInputError(msg, argument=argument)
    try:
        found = pl.LazyFrame(schema=schema).select(expr).collect_schema()
        by_row = len(found) == 1 and _is_by_row(expr, schema)
    except pl.exceptions.PolarsError as error:
        msg = (
            f"{argument} {_shown(expr)} does not go with the columns: {_first_line(error)}; nothing was "
            "changed. In SQL, days and times are written DATE '2024-05-01' and TIMESTAMP '2024-05-01 12:00:00'."
        )
        raise InvalidInputError(msg, argument=argument) from error
    if not by_row:
        msg = (
            f"{argument} must say one thing of each row from that row alone; {_shown(expr)} looks at several columns "
            "or rows at once. Nothing was changed. Compute what it needs first, and put it in as a value."
        )
        raise InvalidInputError(msg, argument=argument)
    return found.dtypes()[0]


def _is_by_row(expr: pl.Expr, schema: pl.Schema) -> bool:
    """Ask the engine: it moves a limit below an expression just where every row stands for itself."""
    if not expr.meta.root_names():
        return bool(pl.select(expr).height == 1 and expr.meta.is_row_separable() and _is_value(expr))
    limits: list[int | None] = []

    def source(
        columns: list[str] | None, _filter: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        limits.append(rows)
        yield pl.DataFrame(schema={name: schema[name] for name in (schema if columns is None else columns)})

    lazy = register_io_source(source, schema=schema, is_pure=True)
    # Nothing is simplified: what turns out to be constant would not read the columns at all.
    limits_alone = pl.QueryOptFlags.none().update(slice_pushdown=True)
    lazy.select(expr.alias("value")).head(_PROBE_ROWS).collect(optimizations=limits_alone)
    return limits == [_PROBE_ROWS]


def _is_value(expr: pl.Expr) -> bool:
    """Tell whether an expression without columns is the same for two rows and for one: no count of rows."""
    both = pl.DataFrame({"": [0, 1]}).select(expr.alias("value"))
    return both.height == 1 and both.equals(pl.DataFrame({"": [0]}).select(expr.alias("value")))


def _storable(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Tell whether values of a type are stored in a column of another as they are, or refused one by one."""
    if found in (wanted, pl.Null()):
        return True
    if isinstance(wanted, _INTEGERS):
        return found.is_integer()
    if wanted.is_float() or isinstance(wanted, pl.Decimal):
        return found.is_numeric()
    if isinstance(wanted, pl.Datetime) and isinstance(found, pl.Datetime):
        return wanted.time_zone == found.time_zone
    return isinstance(wanted, pl.String) and isinstance(found, pl.Categorical | pl.Enum)


def _shown(given: object) -> str:
    return given if isinstance(given, str) else str(given)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
