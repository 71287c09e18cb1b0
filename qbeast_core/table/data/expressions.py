"""Conditions and values of reads and changes: Polars expressions or SQL text, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import InvalidInputError, SchemaMismatchError, invalid_argument, unknown_columns
from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.values import InvalidSqlError, UnknownColumnError, half_up
from qbeast_core.sql.values import Value as Node
from qbeast_core.support.hints import condition_text, quoted, sql_hint
from qbeast_core.support.text import did_you_mean, excerpt, nearest, reason_of

# A boolean Polars expression, or the text of an SQL condition.
Predicate: TypeAlias = pl.Expr | str


class SparkColumn(Protocol):
    """A ``pyspark.sql.Column``, of a classic session or of Spark Connect."""

    @property
    def eqNullSafe(self) -> Callable[..., Any]:  # noqa: N802 -- the name PySpark gives it
        """The method that compares columns with nulls."""
        ...


# A condition of a table of any engine. A Column is for tables that `qbeast_spark_bridge.open_table` opened.
Where: TypeAlias = Predicate | SparkColumn

# A Polars expression, SQL text, or a plain Python value other than text.
Value: TypeAlias = Any

_PROBE_ROWS: Final = 3
# Column, operator and value: a filter of pyarrow and deltalake.
_TRIPLE: Final = 3

_FIRST_WORD: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_CALLS: Final[Mapping[str, str]] = {
    "ALTER": "Table.add_columns(), Table.rename_column() or Table.drop_column()",
    "CREATE": "qbeast.write_table(rows, path, columns=[...])",
    "DELETE": "Table.delete()",
    "DROP": "qbeast.drop_table(path, confirm=True)",
    "INSERT": 'qbeast.write_table(rows, path, mode="append")',
    "MERGE": "Table.merge()",
    "OPTIMIZE": "Table.optimize()",
    "RESTORE": "Table.restore()",
    "TRUNCATE": "Table.delete(True)",
    "UPDATE": "Table.update()",
    "VACUUM": "Table.vacuum()",
}


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Which rows to change or read; a row for which it is null does not match."""

    # True, false or null for each row by itself.
    expr: pl.Expr
    text: str
    # Its value if that is the same for every row; None: it depends on the row.
    constant: bool | None = None

    def mask(self, rows: pl.DataFrame) -> pl.Series:
        """Return true or false for each row; raises as `evaluating` does."""
        with evaluating(self.text):
            met = rows.select(self.expr.fill_null(value=False).alias("met")).to_series()
        return met if len(met) == rows.height else met.new_from_index(0, rows.height)  # a constant

    @property
    def columns(self) -> list[str]:
        """Names of the columns it looks at, each once."""
        return named_columns(self.expr)


def condition_of(source: Where | None, schema: pl.Schema, *, argument: str = "where") -> Condition:
    """Check and parse a condition before anything is read.

    >>> schema = pl.Schema({"a": pl.Int64, "user": pl.String})
    >>> condition_of("a > 1 OR user IS NULL", schema).columns
    ['a', 'user']
    >>> condition_of(None, schema).constant
    True
    """
    if source is None:
        return Condition(pl.lit(value=True), "true", constant=True)
    return _condition(source, _expression(source, schema, argument), schema, argument)


def text_filter(text: str, schema: pl.Schema) -> Node:
    """Return the filter of a text as `filter_of` does, as a tree for other engines.

    >>> tree = text_filter("a < 10", pl.Schema({"a": pl.Int64}))
    >>> str(tree.expr), tree.function
    ('[(col("a")) < (dyn int: 10)]', '<')
    """
    argument = "where"
    tree = _parsed(text, schema, argument, None)
    return replace(tree, expr=_condition(text, tree.expr, schema, argument).expr)


def _condition(source: Where, expr: pl.Expr, schema: pl.Schema, argument: str) -> Condition:
    dtype = _checked(source, expr, schema, argument)
    if dtype not in (pl.Boolean(), pl.Null()):
        _refuse(
            argument,
            f"{_shown(source)} is {dtype}, neither true nor false for a row; compare it with something",
        )
    constant = None
    if not named_columns(expr):
        with evaluating(source, argument):
            constant = pl.select(expr).to_series().to_list() == [True]
    return Condition(expr.cast(pl.Boolean) if dtype == pl.Null() else expr, str(source), constant)


def filter_of(source: Predicate | None, schema: pl.Schema, *, argument: str = "where") -> pl.Expr | None:
    """Check the filter of a read: text as `condition_of` does, expressions as Polars does.

    >>> str(filter_of("a < 10", pl.Schema({"a": pl.Int64})))
    '[(col("a")) < (dyn int: 10)]'
    """
    if source is None:
        return None
    if not isinstance(source, pl.Expr):
        return condition_of(source, schema, argument=argument).expr
    _refuse_unknown(source, source, schema, argument)
    with evaluating(source, argument):
        _no_rows(schema).lazy().filter(source).collect()
    return source


def type_by_row(expr: pl.Expr, schema: pl.Schema, *, argument: str) -> pl.DataType:
    """Return the type of an expression; refuse one that does not give a value for each row by itself.

    >>> type_by_row(pl.col("a") * 2, pl.Schema({"a": pl.Int64}), argument="aggregates")
    Int64
    """
    if not named_columns(expr):
        _refuse(argument, f"{_shown(expr)} names no column: it is the same for every row")
    return _checked(expr, expr, schema, argument)


def clock_of_text() -> Callable[[], datetime]:
    """Return a clock for `now()` and `current_date` that stands still, as in one statement of SQL."""
    return cache(partial(datetime.now, UTC))


def first_word(text: str) -> str:
    """Return the first word of an SQL text after comments, in capital letters.

    >>> first_word("/* the best */ select 1")
    'SELECT'
    """
    return str((_FIRST_WORD.match(text) or [""] * 2)[1]).upper()


@contextmanager
def reading_sql(text: str, argument: str, schema: pl.Schema) -> Generator[None]:
    """Convert errors of an SQL text to errors of an argument."""
    try:
        yield
    except InvalidSqlError as error:
        _refuse(argument, f"contains {text!r}, which cannot be read as SQL: {error}")
    except UnknownColumnError as error:
        unknown_columns(argument, [error.name], schema)


def refuse_statement(query: object) -> None:
    """Reject statements that change a table: Polars runs some of them as queries, without a change to the table.

    >>> refuse_statement("DELETE FROM self WHERE price < 1")
    Traceback (most recent call last):
    ...
    qbeast_core.errors.InvalidInputError: `query` can only read, and DELETE is a change...
    """
    if not isinstance(query, str):
        invalid_argument("query", 'must be the text of a query, "SELECT ... FROM self"', value=query)
    first = first_word(query)
    if first in _CALLS:
        what = f"`query` can only read, and {first} is a change. Use {_CALLS[first]}."
        raise InvalidInputError(what, argument="query")


@contextmanager
def evaluating(source: object, argument: str = "where") -> Generator[None]:
    """Translate what Polars raises while it evaluates a condition; nothing if there is none."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        if source is None:
            raise
        problem = "cannot be evaluated"
        if isinstance(error, pl.exceptions.PanicException):  # a fault of Polars, and not an `Exception`
            problem = "makes Polars panic"
        _refuse(argument, f"{_shown(source)} {problem}: {_text_of(error, source)}", error)


def _refuse(
    argument: str,
    problem: str,
    cause: BaseException | None = None,
    *,
    cure: str = "",
    value: object = None,
    known: Iterable[object] = (),
) -> NoReturn:
    message = f"`{argument}` {problem}{'.' if cure else ''}{cure}"
    raise InvalidInputError(message, argument=argument, value=value, known=known) from cause


def value_of(
    source: Value, schema: pl.Schema, dtype: pl.DataType, *, column: str, argument: str = "set"
) -> pl.Expr:
    """Check a value for a column before anything is read; return it in the column's own type."""
    if isinstance(source, str | pl.Expr):
        expr = _expression(source, schema, argument, dtype)
    else:
        try:
            expr = pl.lit(source)
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            _refuse(argument, f"cannot hold a {type(source).__name__}: {reason_of(error)}", error)
    value_type = _checked(source, expr, schema, argument)
    if not _storable(value_type, dtype):
        problem = f"column {column!r} is {dtype} and {_shown(source)} is {value_type}"
        msg = f"{problem}. Cast it to {dtype} yourself."
        raise SchemaMismatchError(msg, problems=[problem])
    return (expr if value_type == dtype else half_up(expr, value_type, dtype).cast(dtype)).alias(column)


def _expression(
    source: object, schema: pl.Schema, argument: str, dtype: pl.DataType | None = None
) -> pl.Expr:
    if isinstance(source, pl.Expr):
        return source
    if not isinstance(source, str):
        problem = f"must be a Polars expression or SQL text, not {type(source).__name__}"
        _refuse(argument, problem, cure=_instead_of(source, schema, argument))
    if dtype is None:
        from qbeast_core.sql.plain import plain_condition  # noqa: PLC0415 -- reads without texts do without it

        plain = plain_condition(source, schema)
        if plain is not None:
            return plain
    return _parsed(source, schema, argument, dtype).expr


def _instead_of(source: object, schema: pl.Schema, argument: str) -> str:
    """Return what to write instead of a condition of another type, as a sentence after a space."""
    column = next(iter(schema), "id")
    if type(source).__module__.startswith("pyspark."):
        return " Columns are for tables that qbeast_spark_bridge.open_table(spark, path) opened."
    if isinstance(source, Mapping) and source:
        return f" Write {argument}={quoted(condition_text(source))}."
    if isinstance(source, list | tuple):
        triples = [item for item in source if isinstance(item, tuple) and len(item) == _TRIPLE]
        if triples and len(triples) == len(source):
            return f" Write {argument}={quoted(condition_text(triples))}."
        return " Join conditions by &: (pl.col('a') > 1) & (pl.col('b') < 2)."
    if isinstance(source, int | float):
        return f" Compare a column with it: {argument}='{column} = {source}'."
    return f" Write the condition itself: {argument}='{column} > 5', or pl.col({column!r}) > 5."


def _parsed(source: str, schema: pl.Schema, argument: str, dtype: pl.DataType | None) -> Node:
    # Workers of Spark evaluate what was parsed before, and do without sqlglot.
    from qbeast_core.sql.lower import Lowering, lowered  # noqa: PLC0415 -- see above
    from qbeast_core.sql.parse import parse_condition  # noqa: PLC0415 -- as above

    try:
        return lowered(Lowering(schema, clock_of_text()), parse_condition(source, schema.names()), dtype)
    except InvalidSqlError as error:
        first = first_word(source)
        cure = f"Use {_CALLS[first]}." if first in _CALLS else sql_hint(source)
        _refuse(argument, f"{_shown(source)} cannot be read as SQL: {error}", error, cure=cure and f" {cure}")
    except UnknownColumnError as error:
        _refuse_names(source, [error.name], schema, argument)


def _refuse_unknown(source: object, expr: pl.Expr, schema: pl.Schema, argument: str) -> None:
    unknown = [name for name in named_columns(expr) if name not in schema]
    if unknown:
        _refuse_names(source, unknown, schema, argument)


def _refuse_names(source: object, unknown: list[str], schema: pl.Schema, argument: str) -> NoReturn:
    name, last = unknown[0], unknown[0].rpartition(".")[2]
    cure = f" If that is a text, quote it singly: '{name}'." if isinstance(source, str) else ""
    if name == "None" or last in schema:
        cure = f" {sql_hint(name) or f'Write {last}.'}"
    _refuse(
        argument,
        f"names no such column(s): {unknown}; there are {list(schema)}",
        cure=did_you_mean(unknown, schema) + cure,
        value=source,
        known=nearest(unknown[0], schema),
    )


def _checked(source: object, expr: pl.Expr, schema: pl.Schema, argument: str) -> pl.DataType:
    """Return the type of an expression that gives one value per row, from that row alone."""
    _refuse_unknown(source, expr, schema, argument)
    with evaluating(source, argument):
        types = _no_rows(schema).lazy().select(expr).collect_schema()
        # Texts hold functions of one row alone: aggregates are refused when SQL is parsed. The probe would refuse some
        # of them, since Polars rewrites comparisons that are the same for every row to a repeated constant.
        by_row = len(types) == 1 and (isinstance(source, str) or _is_by_row(expr, schema))
    if not by_row:
        _refuse(
            argument,
            f"must say one thing of each row from that row alone; {_shown(source)} looks at several columns or rows at "
            "once. Compute what it needs first, and put it in as a value",
        )
    return types.dtypes()[0]


def _no_rows(schema: pl.Schema) -> pl.DataFrame:
    """Return an empty frame of a table's columns, which every expression of a call is tried on."""
    return _empty_frame(tuple(schema.items()))


@lru_cache(maxsize=8)
def _empty_frame(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))


def _is_by_row(expr: pl.Expr, schema: pl.Schema) -> bool:
    """Return whether each value depends on one row: only then does Polars move a limit below the expression."""
    if expr.meta.is_column():
        return True
    if not named_columns(expr):
        return bool(pl.select(expr).height == 1 and expr.meta.is_row_separable() and _is_value(expr))
    limits: list[int | None] = []

    def frames(
        columns: list[str] | None, _filter: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        limits.append(rows)
        yield _no_rows(schema) if columns is None else _no_rows(schema).select(columns)

    lazy = register_io_source(frames, schema=schema, is_pure=True)
    # Nothing is simplified: what turns out to be constant would not read the columns at all.
    limits_alone = pl.QueryOptFlags.none().update(slice_pushdown=True)
    lazy.select(expr.alias("value")).head(_PROBE_ROWS).collect(optimizations=limits_alone)
    return limits == [_PROBE_ROWS]


def _is_value(expr: pl.Expr) -> bool:
    """Return whether an expression without columns is the same for two rows and for one: it counts no rows."""
    both = pl.DataFrame({"": [0, 1]}).select(expr.alias("value"))
    return both.height == 1 and both.equals(pl.DataFrame({"": [0]}).select(expr.alias("value")))


def _storable(dtype: pl.DataType, wanted: pl.DataType) -> bool:
    """Return whether values of a type are stored in a column of another as they are, or refused one by one."""
    if dtype in (wanted, pl.Null()):
        return True
    if wanted.is_integer():
        return dtype.is_integer()
    if wanted.is_float() or isinstance(wanted, pl.Decimal):
        return dtype.is_numeric()
    if isinstance(wanted, pl.Datetime) and isinstance(dtype, pl.Datetime):
        return wanted.time_zone == dtype.time_zone
    return isinstance(wanted, pl.String) and isinstance(dtype, pl.Categorical | pl.Enum)


def _text_of(error: BaseException, source: object) -> str:
    """Return the message of Polars, with the cure where a time is compared with text, or with another zone."""
    text, _, _ = reason_of(error).partition(" (create native python")
    if not re.search(r"compar|'is_in'", text) or not re.search(r"\bdate(time)?\b", text, re.IGNORECASE):
        return text
    if isinstance(source, str):
        return f"{text}; in SQL write DATE '2026-01-31', TIMESTAMP '2026-01-31 12:00:00', or TIMESTAMPTZ '...' in UTC"
    if "time_zone" in text or text.count("Datetime(") > 1:
        cure = "give both the same zone: .dt.convert_time_zone('UTC'), or .dt.replace_time_zone('UTC') if it has none"
        return f"{text}; {cure}"
    return f"{text}; compare with a date, a datetime or pl.lit(...).str.to_datetime()"


def _shown(source: object) -> str:
    return repr(excerpt(source)) if isinstance(source, str) else excerpt(source)
