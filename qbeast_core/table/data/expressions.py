"""Conditions and values that a change of rows is asked for: Polars expressions or SQL text, understood or refused."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final, NoReturn, TypeAlias

import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.support.plain_text import first_line
from qbeast_core.support.suggestions import did_you_mean, nearest

# A boolean Polars expression, or the text of an SQL condition.
Predicate: TypeAlias = pl.Expr | str

# A Polars expression, SQL text, or a plain Python value that is no text.
Value: TypeAlias = Any

# The clock of `now()` and `current_date` in SQL texts.
UTC_NOW: Final = partial(datetime.now, UTC)

_UNCHANGED: Final = "nothing was changed"
_UNREAD: Final = "nothing was read"
_PROBE_ROWS: Final = 3
_LONGEST_SHOWN: Final = 300
_INTEGERS: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Which rows are meant; a row for which it is null is not."""

    # True, false or null for each row by itself.
    expr: pl.Expr
    text: str
    # What it is for every row alike; None: it depends on the row.
    constant: bool | None = None

    def mask(self, rows: pl.DataFrame) -> pl.Series:
        """Tell of each row whether it is meant, true or false; raises as `evaluating` does."""
        with evaluating(self.text):
            met = rows.select(self.expr.fill_null(value=False).alias("met")).to_series()
        return met if len(met) == rows.height else met.new_from_index(0, rows.height)  # a constant

    @property
    def columns(self) -> list[str]:
        """Names of the columns it looks at, each once."""
        return list(dict.fromkeys(self.expr.meta.root_names()))


def condition_of(
    given: Predicate | None,
    schema: pl.Schema,
    *,
    argument: str = "where",
    outcome: str = _UNCHANGED,
) -> Condition:
    """Understand a condition, or refuse it before anything is read.

    >>> schema = pl.Schema({"a": pl.Int64, "user": pl.String})
    >>> condition_of("a > 1 OR user IS NULL", schema).columns
    ['a', 'user']
    >>> condition_of(None, schema).constant
    True
    """
    if given is None:
        return Condition(pl.lit(value=True), "true", constant=True)
    asked = _Asked(argument, outcome)
    expr = _expression(given, schema, asked)
    dtype = _checked(given, expr, schema, asked)
    if dtype not in (pl.Boolean(), pl.Null()):
        asked.refuse(
            f"{_shown(given)} is of type {dtype}, neither true nor false for a row; compare it with something"
        )
    constant = None
    if not expr.meta.root_names():
        with asked.understanding(given):
            constant = pl.select(expr).to_series().to_list() == [True]
    return Condition(expr.cast(pl.Boolean) if dtype == pl.Null() else expr, str(given), constant)


def filter_of(given: Predicate | None, schema: pl.Schema, *, argument: str = "where") -> pl.Expr | None:
    """Understand the filter of a read: text as `condition_of` does, expressions as Polars does.

    >>> str(filter_of("a < 10", pl.Schema({"a": pl.Int64})))
    '[(col("a")) < (dyn int: 10)]'
    """
    if given is None:
        return None
    if not isinstance(given, pl.Expr):
        return condition_of(given, schema, argument=argument, outcome=_UNREAD).expr
    asked = _Asked(argument, _UNREAD)
    _refuse_unknown(given, given, schema, asked)
    with asked.understanding(given):
        _no_rows(schema).lazy().filter(given).collect()
    return given


def type_by_row(expr: pl.Expr, schema: pl.Schema, *, argument: str, outcome: str = _UNREAD) -> pl.DataType:
    """Return the type of an expression, or refuse it where it does not say one thing of each row by itself.

    >>> type_by_row(pl.col("a") * 2, pl.Schema({"a": pl.Int64}), argument="aggregates")
    Int64
    """
    asked = _Asked(argument, outcome)
    if not expr.meta.root_names():
        asked.refuse(f"{_shown(expr)} names no column: it is the same for every row")
    return _checked(expr, expr, schema, asked)


@contextmanager
def evaluating(
    given: Predicate | None, argument: str = "where", outcome: str = _UNCHANGED
) -> Generator[None]:
    """Say of a condition that it cannot be evaluated for some row, where Polars says so inside."""
    if given is None:
        yield
        return
    with _Asked(argument, outcome).understanding(given):
        yield


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asks, for messages."""

    argument: str
    outcome: str = _UNCHANGED

    def refuse(
        self,
        what: str,
        cause: BaseException | None = None,
        *,
        cure: str = "",
        given: object = None,
        known: Iterable[object] = (),
    ) -> NoReturn:
        message = f"`{self.argument}` {what}; {self.outcome}{'.' if cure else ''}{cure}"
        raise InvalidInputError(message, argument=self.argument, value=given, known=known) from cause

    @contextmanager
    def understanding(self, given: object) -> Generator[None]:
        """Translate what Polars raises about an expression."""
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            if isinstance(error, pl.exceptions.PanicException):  # a fault of Polars, and no `Exception`
                self.refuse(f"{_shown(given)} makes Polars panic: {_cause(error)}", error)
            self.refuse(f"{_shown(given)} cannot be evaluated: {_said(error)}", error)


def value_of(
    given: Value, schema: pl.Schema, dtype: pl.DataType, *, column: str, argument: str = "set"
) -> pl.Expr:
    """Understand a value for a column, in the column's own type, or refuse it before anything is read."""
    asked = _Asked(argument)
    is_text = isinstance(given, str | pl.Expr)
    expr = _expression(given, schema, asked, dtype) if is_text else _literal(given, asked)
    found = _checked(given, expr, schema, asked)
    if not _storable(found, dtype):
        problem = f"column {column!r} is {dtype} and {_shown(given)} is {found}"
        msg = f"{problem}; nothing was changed. Cast it to {dtype} yourself."
        raise SchemaMismatchError(msg, problems=[problem])
    return (expr if found == dtype else expr.cast(dtype)).alias(column)


def _literal(given: object, asked: _Asked) -> pl.Expr:
    try:
        return pl.lit(given)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        asked.refuse(f"cannot hold a {type(given).__name__}: {_cause(error)}", error)


def _expression(given: object, schema: pl.Schema, asked: _Asked, dtype: pl.DataType | None = None) -> pl.Expr:
    if isinstance(given, pl.Expr):
        return given
    if not isinstance(given, str):
        several = " Join conditions by &: (pl.col('a') > 1) & (pl.col('b') < 2)." * isinstance(
            given, list | tuple
        )
        asked.refuse(f"must be a Polars expression or SQL text, not {type(given).__name__}", cure=several)
    # Workers of Spark evaluate what was parsed before, and do without sqlglot.
    from qbeast_core.query.sql.lower import UnknownColumnError, sql_expression  # noqa: PLC0415 -- see above
    from qbeast_core.query.sql.tokens import InvalidSqlError  # noqa: PLC0415 -- as above

    try:
        return sql_expression(given, schema, dtype=dtype, clock=UTC_NOW)
    except InvalidSqlError as error:
        asked.refuse(f"{_shown(given)} cannot be read as SQL: {error}", error)
    except UnknownColumnError as error:
        _refuse_names(given, [error.name], schema, asked)


def _refuse_unknown(given: object, expr: pl.Expr, schema: pl.Schema, asked: _Asked) -> None:
    unknown = [name for name in dict.fromkeys(expr.meta.root_names()) if name not in schema]
    if unknown:
        _refuse_names(given, unknown, schema, asked)


def _refuse_names(given: object, unknown: list[str], schema: pl.Schema, asked: _Asked) -> NoReturn:
    quoted = f" If that is a text, quote it singly: '{unknown[0]}'." if isinstance(given, str) else ""
    asked.refuse(
        f"names no such column(s): {unknown}; there are {list(schema)}",
        cure=did_you_mean(unknown, schema) + quoted,
        given=given,
        known=nearest(unknown[0], schema),
    )


def _checked(given: object, expr: pl.Expr, schema: pl.Schema, asked: _Asked) -> pl.DataType:
    """Return the type of an expression that gives one value per row, from that row alone."""
    _refuse_unknown(given, expr, schema, asked)
    with asked.understanding(given):
        found = _no_rows(schema).lazy().select(expr).collect_schema()
        # Texts hold functions of one row alone: aggregates are refused when SQL is parsed. The probe would refuse some
        # of them, since Polars rewrites comparisons that are the same for every row to a repeated constant.
        by_row = len(found) == 1 and (isinstance(given, str) or _is_by_row(expr, schema))
    if not by_row:
        asked.refuse(
            f"must say one thing of each row from that row alone; {_shown(given)} looks at several columns or rows at "
            "once. Compute what it needs first, and put it in as a value"
        )
    return found.dtypes()[0]


def _no_rows(schema: pl.Schema) -> pl.DataFrame:
    """Return a frame of a table's columns, which is asked once for every expression."""
    return _empty_frame(tuple(schema.items()))


@lru_cache(maxsize=8)
def _empty_frame(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))


def _is_by_row(expr: pl.Expr, schema: pl.Schema) -> bool:
    """Ask the engine: it moves a limit below an expression just where every row stands for itself."""
    if expr.meta.is_column():
        return True
    if not expr.meta.root_names():
        return bool(pl.select(expr).height == 1 and expr.meta.is_row_separable() and _is_value(expr))
    limits: list[int | None] = []

    def source(
        columns: list[str] | None, _filter: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        limits.append(rows)
        yield _no_rows(schema) if columns is None else _no_rows(schema).select(columns)

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


def _said(error: pl.exceptions.PolarsError) -> str:
    """Return what Polars says, with the cure where a time is compared with text."""
    text, _, _ = _cause(error).partition(" (create native python")
    if re.search(r"\b(date|datetime)\b", text, re.IGNORECASE):
        return f"{text}; in SQL write DATE '2026-01-31', TIMESTAMP '2026-01-31 12:00:00', or TIMESTAMPTZ '...' in UTC"
    return text


def _shown(given: object) -> str:
    text = repr(given) if isinstance(given, str) else str(given)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _cause(error: BaseException) -> str:
    return first_line(str(error)) or type(error).__name__
