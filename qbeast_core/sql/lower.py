"""Lower checked trees to Polars expressions, also those of Spark SQL."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import polars as pl
from sqlglot import exp

from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.functions import call, function_arguments, part_of_time, truncated_time
from qbeast_core.sql.operators import (
    Arithmetic,
    Comparison,
    arithmetic,
    balanced,
    between,
    compare,
    is_in,
    like,
    matches,
    negated,
    same,
)
from qbeast_core.sql.parse import case_parts, checked_part, operands, parse_spark, sql_of, without_parentheses
from qbeast_core.sql.values import (
    FRACTIONS,
    INTEGERS,
    MAX_DIGITS,
    MAX_LENGTH,
    MISSING,
    NULL,
    TIMESTAMP,
    TIMESTAMPTZ,
    Period,
    UnknownColumnError,
    Value,
    adapted,
    as_datetime,
    as_text,
    boolean,
    cast,
    date_literal,
    inner_type,
    invalid_sql,
    number,
    of_type,
    shown,
    text,
    time_literal,
    truth,
    unified,
)
from qbeast_core.support.text import did_you_mean, reason_of

COMPARISON_SIGNS: Final[Mapping[type[exp.Expr], Comparison]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
ARITHMETIC: Final[Mapping[type[exp.Expr], Arithmetic]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
    exp.Pow: "^",
}
_UNITS: Final[Mapping[str, timedelta]] = {
    "WEEK": timedelta(weeks=1),
    "DAY": timedelta(days=1),
    "HOUR": timedelta(hours=1),
    "MINUTE": timedelta(minutes=1),
    "SECOND": timedelta(seconds=1),
    "MILLISECOND": timedelta(milliseconds=1),
    "MICROSECOND": timedelta(microseconds=1),
}
_MONTHS: Final[Mapping[str, int]] = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
# No two times are further apart.
_MAX_DURATION: Final = timedelta(days=106_000_000)
_MAX_MONTHS: Final = 3_480_000

TYPES: Final[dict[exp.DType, pl.DataType]] = {
    exp.DType.BOOLEAN: pl.Boolean(),
    exp.DType.TINYINT: pl.Int8(),
    exp.DType.SMALLINT: pl.Int16(),
    exp.DType.INT: pl.Int32(),
    exp.DType.BIGINT: pl.Int64(),
    exp.DType.INT128: pl.Int128(),
    exp.DType.FLOAT: pl.Float32(),
    exp.DType.DOUBLE: pl.Float64(),
    exp.DType.DATE: pl.Date(),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), pl.String()),
    **dict.fromkeys((exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ), TIMESTAMP),
    exp.DType.TIMESTAMPTZ: TIMESTAMPTZ,
}
_DEFAULT_DECIMAL: Final = (18, 3)

# Returns the current time in UTC.
Clock = Callable[[], datetime]


def lowered(lowering: Lowering, tree: exp.Expr, dtype: pl.DataType | None) -> Value:
    """Return the value of a checked tree; literal texts take the type `dtype`."""
    value = lowering.value(tree)
    if isinstance(value.const, Period):
        invalid_sql("it is an interval, which a column cannot hold")
    if dtype is None:
        return value
    value = adapted(value, dtype)
    if isinstance(dtype, pl.Datetime) and isinstance(value.dtype, (pl.Date, pl.Datetime)):
        return as_datetime(value, dtype)
    return value


@dataclass(frozen=True, slots=True)
class Lowering:
    """Lowers trees over the columns of one schema."""

    schema: pl.Schema
    clock: Clock | None = None
    # Whether names match without case, and a cast to integers drops the fraction, as in Spark. By default it rounds.
    as_spark: bool = False
    # Whether the sum of no values is null, as in SQL. Sums that are estimated are 0 then.
    null_sums: bool = False

    def value(self, node: exp.Expr) -> Value:
        """Lower any expression; expressions without a column are computed immediately."""
        node = without_parentheses(node)
        value = self._value(node)
        if value.is_const:
            return value
        if value.function == "column" or value.dtype.is_nested() or named_columns(value.expr):
            value.source = node if value.source is None else value.source
            return value
        try:  # Polars returns one row for some expressions without a column
            series = pl.select(value.expr).to_series()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            invalid_sql(f"{sql_of(node)} has no value: {reason_of(error)}", error)
        literal = pl.lit(series.item(), dtype=series.dtype)
        const = None if series.item() is None else value.const
        return Value(literal, value.dtype, const, value.bound)

    def _value(self, node: exp.Expr) -> Value:
        rule = _BY_TYPE.get(type(node))
        if rule is not None:
            return rule(self, node)
        if type(node) in COMPARISON_SIGNS:
            return compare(COMPARISON_SIGNS[type(node)], self.value(node.this), self.value(node.expression))
        if type(node) in ARITHMETIC:
            return arithmetic(ARITHMETIC[type(node)], self.value(node.this), self.value(node.expression))
        return call(node, [self.value(argument) for argument in function_arguments(node)])

    def condition(self, node: exp.Expr) -> pl.Expr:
        """Return the expression of a condition."""
        return self.truth(node).expr

    def truth(self, node: exp.Expr) -> Value:
        """Lower an operand of AND, OR, NOT or WHEN."""
        value = self.value(node)
        if value.is_null:
            return truth(None)
        if not isinstance(value.dtype, pl.Boolean):
            invalid_sql(f"{sql_of(node)} is of type {shown(value.dtype)}, not a condition; compare it")
        return value

    def joined(self, node: exp.Expr) -> Value:
        """Lower a chain of AND or OR to a balanced tree."""
        parts = [self.truth(operand) for operand in operands(node)]
        join = operator.and_ if isinstance(node, exp.And) else operator.or_
        return boolean(balanced([part.expr for part in parts], join), node.key, *parts)

    def column(self, node: exp.Expr) -> Value:
        """Lower a column name, a struct field, or a column of a source such as ``source.price``."""
        if isinstance(node, exp.Dot):
            return self._field(self.value(node.this), _names_of(node.expression))
        name, *fields = _names_of(node)
        column = self._match(name, self.schema)
        if column is None:
            whole = ".".join((name, *fields))
            if fields and self._match(whole, self.schema):
                invalid_sql(f"column {name!r} does not exist; for the column {whole!r}, quote the whole name")
            raise UnknownColumnError(whole)
        return self._field(of_type(pl.col(column), self.schema[column], "column", column), fields)

    def _field(self, value: Value, names: Sequence[str]) -> Value:
        for name in names:
            fields: dict[str, Any] = dict(value.dtype) if isinstance(value.dtype, pl.Struct) else {}
            field = self._match(name, fields)
            if field is None:
                there = (
                    f"has the fields {list(fields)}" if fields else f"has the type {shown(value.dtype)[:200]}"
                )
                guess = did_you_mean([name], fields)
                invalid_sql(
                    f"field {name[:60]!r} does not exist: the value {there[:300]}.{guess}".rstrip(".")
                )
            path = (*value.arguments, field) if value.function == "column" else ()
            expr = value.expr.struct.field(field)
            value = of_type(expr, fields[field], "column" if path else "", *path)
        return value

    def _match(self, name: str, names: Collection[str]) -> str | None:
        """Return the column or field that a name of the text means."""
        if name in names or not self.as_spark:
            return name if name in names else None
        return next((other for other in names if other.lower() == name.lower()), None)

    def element(self, node: exp.Expr) -> Value:
        """Lower ``tags[1]``; elements count from 1, which sqlglot has subtracted."""
        value, index = self.value(node.this), node.expressions[0] if len(node.expressions) == 1 else None
        if isinstance(index, exp.Null):
            return NULL
        if isinstance(index, exp.Literal) and index.is_string:
            return self._field(value, [index.this])
        if not isinstance(value.dtype, pl.List) or not isinstance(index, exp.Literal):
            invalid_sql(f"{sql_of(node)}: only an element of a list by a positive number is supported")
        position = min(int(index.this), MAX_LENGTH)
        return of_type(value.expr.list.get(position, null_on_oob=True), inner_type(value.dtype))

    def literal(self, node: exp.Expr) -> Value:
        """Lower a number or a text; a number with a point is a decimal, one with an exponent a DOUBLE."""
        if node.args.get("is_string"):
            return text(node.this)
        try:
            if "e" in node.this.lower():
                return number(float(node.this))
            return number(int(node.this) if node.this.isdigit() else Decimal(node.this))
        except (ValueError, ArithmeticError) as error:
            invalid_sql(f"{sql_of(node)} is not a number", error)

    def tested(self, node: exp.Expr) -> Value:
        """Lower ``IS NULL``, ``IS TRUE`` and ``IS FALSE``, which are never null."""
        value, right = self.value(node.this), without_parentheses(node.expression)
        if isinstance(right, exp.Null):
            return boolean(value.expr.is_null(), "null", value)
        if not isinstance(right, exp.Boolean):
            invalid_sql(f"{sql_of(node)}: IS takes NULL, TRUE, FALSE or DISTINCT FROM")
        value, literal = self.truth(node.this), truth(bool(right.this))
        return boolean(value.expr.eq_missing(pl.lit(literal.const)), "<=>", value, literal)

    def member(self, node: exp.Expr) -> Value:
        """Lower IN with a list."""
        if not node.expressions:
            invalid_sql("IN takes a list of values in parentheses")
        return is_in(self.value(node.this), [self.value(item) for item in node.expressions])

    def ranged(self, node: exp.Expr) -> Value:
        """Lower BETWEEN."""
        return between(*map(self.value, (node.this, node.args["low"], node.args["high"])))

    def liked(self, node: exp.Expr, escape: str = "") -> Value:
        """Lower LIKE and ILIKE, with NOT."""
        value, pattern = self.value(node.this), self.value(node.expression)
        result = like(value, pattern, escape=escape, fold=isinstance(node, exp.ILike))
        return _opposite(result) if node.args.get("negate") else result

    def escaped(self, node: exp.Expr) -> Value:
        """Lower ``LIKE ... ESCAPE '!'``."""
        inner, letter = without_parentheses(node.this), node.expression
        if not isinstance(inner, (exp.Like, exp.ILike)) or not letter.is_string or len(letter.this) != 1:
            invalid_sql("ESCAPE takes one character")
        return self.liked(inner, letter.this)

    def distinct(self, node: exp.Expr) -> Value:
        """Lower ``IS [NOT] DISTINCT FROM``."""
        result = same(self.value(node.this), self.value(node.expression))
        return result if isinstance(node, exp.NullSafeEQ) else _opposite(result)

    def cases(self, node: exp.Expr) -> Value:
        """Lower CASE and IF."""
        conditions, results = case_parts(node)
        tests = [self.truth(condition) for condition in conditions]
        values, dtype, bound = unified([self.value(result) for result in results], "CASE")
        if isinstance(dtype, pl.Null):
            return NULL
        *others, last = values
        expr = last.expr
        for test, value in zip(reversed(tests), reversed(others), strict=True):
            if named_columns(test.expr):
                expr = pl.when(test.expr).then(value.expr).otherwise(expr)
            elif pl.select(test.expr).item():  # Polars returns one row if a test is constant
                expr = value.expr
        return Value(expr, dtype, MISSING, bound, "case", (*tests, *values))

    def casted(self, node: exp.Expr) -> Value:
        """Lower CAST, TRY_CAST and typed literals."""
        value, dtype = self.value(node.this), _type_of(node.args["to"])
        if self.as_spark and isinstance(dtype, INTEGERS) and isinstance(value.dtype, FRACTIONS):
            value = of_type(value.expr.truncate(), value.dtype)
        return cast(value, dtype, strict=not isinstance(node, exp.TryCast))

    def concatenated(self, node: exp.Expr) -> Value:
        """Lower ``||``, which is null if an operand is null."""
        parts = [as_text(self.value(part)) for part in operands(node)]
        expr = pl.concat_str([part.expr for part in parts], ignore_nulls=False)
        return Value(expr, pl.String(), function="||", arguments=tuple(parts))

    def interval(self, node: exp.Expr) -> Value:
        """Lower INTERVAL."""
        unit = str(node.args.get("unit") or "").upper().removesuffix("S")
        if isinstance(without_parentheses(node.this), exp.Null):
            return NULL
        try:
            count = int(str(without_parentheses(node.this).this))
            months = _MONTHS[unit] * count if unit in _MONTHS else 0
            duration = timedelta() if unit in _MONTHS else _UNITS[unit] * count
        except (KeyError, ValueError, OverflowError, AttributeError) as error:
            invalid_sql(f"{sql_of(node)} is not an interval of a whole number, as in INTERVAL 3 DAY", error)
        if abs(months) > _MAX_MONTHS or abs(duration) > _MAX_DURATION:
            invalid_sql(f"{sql_of(node)} is longer than the time between any two times")
        return Value(pl.lit(duration), pl.Duration("us"), Period(months, duration))

    def truncated(self, node: exp.Expr) -> Value:
        """Lower date_trunc."""
        unit = node.args["unit"]
        return (
            NULL if isinstance(unit, exp.Null) else truncated_time(unit.name.upper(), self.value(node.this))
        )

    def now(self, node: exp.Expr) -> Value:
        """Lower now() and current_date."""
        if self.clock is None:
            invalid_sql("the current time is not available here; write the date as a literal")
        moment = self.clock()
        return date_literal(moment.date()) if isinstance(node, exp.CurrentDate) else time_literal(moment)

    def named(self, node: exp.Expr) -> Value:
        """Lower a function for which sqlglot has no node."""
        if str(node.this).lower() == "now" and not node.expressions:
            return self.now(node)
        return call(node, [self.value(argument) for argument in node.expressions])


def _opposite(condition: Value) -> Value:
    return boolean(~condition.expr, "not", condition)


def _type_of(node: exp.DataType) -> pl.DataType:
    """Return the target type of a CAST."""
    kind = node.this
    if kind == exp.DType.DECIMAL:
        return _decimal_type([int(size.this.this) for size in node.expressions])
    dtype = TYPES.get(kind)
    if dtype is None or node.expressions:
        invalid_sql(f"a cast to {node.sql('duckdb')[:60]} is not supported")
    return dtype


def _decimal_type(sizes: list[int]) -> pl.DataType:
    precision, scale = (*sizes, 0)[:2] if sizes else _DEFAULT_DECIMAL
    name = f"DECIMAL({str(precision)[:20]}, {str(scale)[:20]})"
    if not 1 <= precision <= MAX_DIGITS:
        invalid_sql(f"{name} is invalid; a decimal has at most {MAX_DIGITS} digits")
    if scale > precision:
        invalid_sql(f"{name} has more digits after the point than digits")
    return pl.Decimal(precision, scale)


def _names_of(node: exp.Expr) -> list[str]:
    """Return the parts of a name, in order."""
    node = without_parentheses(node)
    if isinstance(node, exp.Dot):
        return [*_names_of(node.this), *_names_of(node.expression)]
    keys = ("catalog", "db", "table", "this") if isinstance(node, exp.Column) else ()
    parts = [part for key in keys if (part := node.args.get(key)) is not None] or [node]
    if not all(isinstance(part, exp.Identifier) and isinstance(part.this, str) for part in parts):
        invalid_sql(f"{sql_of(node)} is not a name")
    return [part.this for part in parts]


_BY_TYPE: Final[Mapping[type[exp.Expr], Callable[[Lowering, Any], Value]]] = {
    exp.And: Lowering.joined,
    exp.Or: Lowering.joined,
    exp.Not: lambda self, node: _opposite(self.truth(node.this)),
    exp.Column: Lowering.column,
    exp.Dot: Lowering.column,
    exp.Bracket: Lowering.element,
    exp.Literal: Lowering.literal,
    exp.Boolean: lambda _, node: truth(bool(node.this)),
    exp.Null: lambda _, __: NULL,
    exp.Is: Lowering.tested,
    exp.In: Lowering.member,
    exp.Between: Lowering.ranged,
    exp.Like: Lowering.liked,
    exp.ILike: Lowering.liked,
    exp.Escape: Lowering.escaped,
    exp.RegexpLike: lambda self, node: matches(self.value(node.this), self.value(node.expression)),
    exp.NullSafeEQ: Lowering.distinct,
    exp.NullSafeNEQ: Lowering.distinct,
    exp.Case: Lowering.cases,
    exp.If: Lowering.cases,
    exp.Cast: Lowering.casted,
    exp.TryCast: Lowering.casted,
    exp.DPipe: Lowering.concatenated,
    exp.Neg: lambda self, node: negated(self.value(node.this)),
    exp.Interval: Lowering.interval,
    exp.CurrentDate: Lowering.now,
    exp.CurrentTimestamp: Lowering.now,
    exp.Extract: lambda self, node: part_of_time(str(node.this).upper(), self.value(node.expression)),
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc), Lowering.truncated),
    exp.Anonymous: Lowering.named,
}


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
    return lowered(Lowering(schema, clock, as_spark=True), tree, dtype).expr


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
