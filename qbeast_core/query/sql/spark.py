"""Lower expressions of Spark SQL: give the nodes of Spark the meaning of DuckDB, then lower them as all others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import polars as pl
from sqlglot import exp

from qbeast_core.query.sql.lower import Clock, Lowering, lowered
from qbeast_core.query.sql.parse import checked_part, parse_spark, sql_of
from qbeast_core.query.sql.values import invalid_sql

# Units of trunc and date_trunc, by their names in Spark.
_SPARK_UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "YEAR"),
    **dict.fromkeys(("MONTH", "MM", "MON"), "MONTH"),
    **dict.fromkeys(("DAY", "DD"), "DAY"),
    **{unit: unit for unit in ("QUARTER", "WEEK", "HOUR", "MINUTE", "SECOND")},
}
# Parts of EXTRACT with the same numbers in Spark and DuckDB.
_PARTS: Final = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "DOY"})
_STRICT: Final = re.compile(r"(%[mdHMS])strict")
_Rewrite = Callable[[Any], exp.Expr]


def spark_expression(
    text: str, schema: pl.Schema, *, dtype: pl.DataType | None = None, clock: Clock | None = None
) -> pl.Expr:
    """Return the Polars expression of a text of Spark SQL over the columns of a row.

    Names of columns match without case. Times are read in UTC, and errors are raised as in the ANSI mode of Spark.

    >>> schema = pl.Schema({"Day": pl.Date, "price": pl.Float64})
    >>> pl.select(spark_expression("CAST(2.7 AS INT)", schema)).item()
    2
    >>> str(spark_expression("month(day)", schema))
    'col("Day").dt.month()'
    """
    names = {*schema, *map(str.lower, schema)}
    tree = checked_part(_rewritten(parse_spark(text, names)), aggregates=False)
    return lowered(Lowering(schema, clock, as_spark=True), tree, dtype)


def _rewritten(tree: exp.Expr) -> exp.Expr:
    """Return a tree whose nodes have the meaning of DuckDB."""
    for node in reversed(list(tree.dfs())):  # operands first
        parent, key, index = node.parent, node.arg_key, node.index
        rule = _RULES.get(type(node))
        if rule is not None and (new := rule(node)) is not node:
            if parent is None or key is None:
                tree = new
            else:
                parent.set(key, new, index)
    return tree


def _as(node: exp.Expr, kind: exp.DType) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType(this=kind))


def _cast(node: exp.Expr) -> exp.Expr:
    """Return a cast that raises, as in the ANSI mode of Spark."""
    return node if node.args.get("safe") else exp.Cast(this=node.this, to=node.args["to"])


def _day(node: exp.Expr) -> exp.Expr:
    if node.args.get("format"):
        invalid_sql(f"{sql_of(node)}: a format of dates is not supported; use CAST(... AS DATE)")
    return _as(node.this, exp.DType.DATE)


def _format(node: exp.Expr) -> exp.Expr:
    letters = node.args["format"]
    if not letters.is_string or re.search(r"%[mdHMS](?!strict)", letters.this):
        invalid_sql("date_format takes a pattern of yyyy, MM, dd, HH, mm and ss")
    value = node.this.this if isinstance(node.this, exp.TimeStrToTime) else node.this
    return exp.TimeToStr(this=value, format=exp.Literal.string(_STRICT.sub(r"\1", letters.this)))


def _truncated(node: exp.Expr) -> exp.Expr:
    unit = _SPARK_UNITS.get(str(node.args["unit"].this).upper())
    if unit is None:
        invalid_sql(
            f"{sql_of(node)}: the unit is not supported; use year, quarter, month, week, day, hour or less"
        )
    value = _as(node.this, exp.DType.DATE) if isinstance(node, exp.DateTrunc) else node.this
    return exp.TimestampTrunc(this=value, unit=exp.Var(this=unit))


def _divided(node: exp.Expr) -> exp.Expr:
    """Return a division that is null where the divisor is zero."""
    zero = exp.Literal.number(0)
    return exp.Div(this=node.this, expression=exp.Nullif(this=node.expression, expression=zero))


def _shifted_days(node: exp.Expr) -> exp.Expr:
    unit = node.args.get("unit")
    if unit is not None and str(unit.this).upper() != "DAY":
        invalid_sql(f"{sql_of(node)} is not supported; add days or an INTERVAL")
    return exp.Add(this=_as(node.this, exp.DType.DATE), expression=node.expression)


def _days_between(node: exp.Expr) -> exp.Expr:
    if node.args.get("unit"):
        invalid_sql(f"{sql_of(node)} is not supported; only days are")
    return exp.Sub(this=_as(node.this, exp.DType.DATE), expression=_as(node.expression, exp.DType.DATE))


def _joined(node: exp.Expr) -> exp.Expr:
    """Return a concatenation that is null if an operand is null."""
    first, *others = node.expressions
    joined: exp.Expr = first
    for part in others:
        joined = exp.DPipe(this=joined, expression=part)
    return joined


def _substring(node: exp.Expr) -> exp.Expr:
    start = node.args.get("start")
    if isinstance(start, exp.Literal) and start.this == "0":  # the first letter, like 1
        node.set("start", exp.Literal.number(1))
    return node


def _part(node: exp.Expr) -> exp.Expr:
    if str(node.this.this).upper() not in _PARTS:
        invalid_sql(f"{sql_of(node)}: only {', '.join(sorted(_PARTS)).lower()} are supported")
    return node


def _pattern(node: exp.Expr) -> exp.Expr:
    if isinstance(node.expression, exp.Literal) and "\\" in node.expression.this:
        invalid_sql(f"{sql_of(node)}: a backslash in a pattern is not supported; use ESCAPE")
    return node


def _element(node: exp.Expr) -> exp.Expr:
    if node.args.get("offset"):
        invalid_sql(f"{sql_of(node)} is not supported; write column[0] for the first element")
    return node


def _shifted(kind: type[exp.Expr], by: int) -> Callable[[exp.Expr], exp.Expr]:
    """Return a rule for a function that counts from another number."""

    def rule(node: exp.Expr) -> exp.Expr:
        value = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        number = exp.Literal.number(abs(by))
        part = kind(this=value)
        return exp.Add(this=part, expression=number) if by > 0 else exp.Sub(this=part, expression=number)

    return rule


def _named(node: exp.Expr) -> exp.Expr:
    """Rewrite a function for which sqlglot has no node."""
    rule = _NAMED.get(str(node.this).lower())
    if rule is None:
        invalid_sql(f"the function {str(node.this)[:60]!r} is not supported")
    function, count = rule
    if len(node.expressions) != count:
        invalid_sql(f"{str(node.this).lower()!r} takes {count} argument(s)")
    return function(node)


def _is_null(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Is(this=node.expressions[0], expression=exp.Null()))


_NAMED: Final[Mapping[str, tuple[Callable[[exp.Expr], exp.Expr], int]]] = {
    "isnull": (_is_null, 1),
    "isnotnull": (lambda node: exp.Not(this=_is_null(node)), 1),
    "now": (lambda _: exp.CurrentTimestamp(), 0),
    "weekday": (_shifted(exp.DayOfWeekIso, -1), 1),
}
_RULES: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], exp.Expr]]] = {
    exp.Anonymous: _named,
    exp.Bracket: _element,
    exp.Ceil: lambda node: _as(exp.Ceil(this=node.this), exp.DType.BIGINT),
    exp.Concat: _joined,
    exp.DateDiff: _days_between,
    exp.DateTrunc: _truncated,
    exp.DayOfMonth: lambda node: exp.Day(this=node.this),
    exp.DayOfWeek: _shifted(exp.DayOfWeek, 1),
    exp.Div: _divided,
    exp.Extract: _part,
    exp.Floor: lambda node: _as(exp.Floor(this=node.this), exp.DType.BIGINT),
    exp.ILike: _pattern,
    exp.Like: _pattern,
    exp.Substring: _substring,
    exp.TimeToStr: _format,
    exp.TimestampTrunc: _truncated,
    exp.TryCast: _cast,
    exp.TsOrDsAdd: _shifted_days,
    exp.TsOrDsToDate: _day,
    exp.WeekOfYear: lambda node: exp.Week(this=node.this),
}
