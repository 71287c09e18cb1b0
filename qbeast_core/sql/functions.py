"""Lower functions of one row on typed values, with the meaning they have in DuckDB."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import polars as pl
from sqlglot import exp

from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.operators import arithmetic, balanced, compare
from qbeast_core.sql.parse import MAX_ITEMS, PARTS
from qbeast_core.sql.values import (
    INTEGERS,
    MAX_LENGTH,
    MISSING,
    NULL,
    TIMESTAMP,
    Value,
    adapted,
    as_datetime,
    as_text,
    as_type,
    boolean,
    cast,
    common_type,
    in_utc,
    inner_type,
    invalid_sql,
    of_type,
    shown,
    text,
    unified,
)

# Arguments of GREATEST and LEAST.
MAX_COMPARED: Final = 30

_TRUNCATED: Final = {
    "YEAR": "1y",
    "QUARTER": "1q",
    "MONTH": "1mo",
    "WEEK": "1w",
    "DAY": "1d",
    "HOUR": "1h",
    "MINUTE": "1m",
    "SECOND": "1s",
}
_Part = Callable[[pl.Expr], pl.Expr]
_DATE_PARTS: Final[dict[str, _Part]] = {
    "YEAR": lambda time: time.dt.year(),
    "QUARTER": lambda time: time.dt.quarter(),
    "MONTH": lambda time: time.dt.month(),
    "WEEK": lambda time: time.dt.week(),
    "DAY": lambda time: time.dt.day(),
    "DOW": lambda time: time.dt.weekday() % 7,
    "DAYOFWEEK": lambda time: time.dt.weekday() % 7,
    "ISODOW": lambda time: time.dt.weekday(),
    "DOY": lambda time: time.dt.ordinal_day(),
    "DAYOFYEAR": lambda time: time.dt.ordinal_day(),
}
_TIME_PARTS: Final[dict[str, _Part]] = {
    "HOUR": lambda time: time.dt.hour(),
    "MINUTE": lambda time: time.dt.minute(),
    "SECOND": lambda time: time.dt.second(),
    "EPOCH": lambda time: time.dt.timestamp("us").cast(pl.Float64) / 1_000_000,
}
_DAY_OF_YEAR: Final = dict.fromkeys(("DOY", "DAYOFYEAR"), pl.Int16())
_PART_TYPES: Final[dict[str, pl.DataType]] = {"YEAR": pl.Int32(), "EPOCH": pl.Float64(), **_DAY_OF_YEAR}
_DOUBLE: Final = pl.Float64()
Function = Callable[..., Value]


def call(node: exp.Expr, arguments: Sequence[Value]) -> Value:
    """Lower a function."""
    rule = (
        NAMED.get(str(node.this).lower()) if isinstance(node, exp.Anonymous) else _FUNCTIONS.get(type(node))
    )
    if rule is None:
        invalid_sql(f"the function {str(node.this)[:60]!r} is not supported")
    function, min_count, max_count = rule
    if not min_count <= len(arguments) <= max_count:
        count = f"{min_count}" if min_count == max_count else f"{min_count} to {max_count}"
        invalid_sql(f"{_name(node)!r} takes {count} argument(s)")
    if type(node) not in _NULLABLE and any(argument.const is None for argument in arguments):
        return NULL
    result = function(node, *arguments)
    if result.function or any(argument.dtype.is_nested() for argument in arguments):
        return result
    return replace(result, function=node.key, arguments=tuple(arguments))


def function_arguments(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments that are expressions, in the order of the text."""
    return [part for part in node.iter_expressions() if not isinstance(part, exp.Var)]


def part_of_time(unit: str, value: Value) -> Value:
    """Lower EXTRACT and similar functions; times with a zone are read in UTC."""
    if value.const is None:
        return NULL
    value = adapted(value, TIMESTAMP)
    if not isinstance(value.dtype, (pl.Date, pl.Datetime)):
        invalid_sql(f"{unit} is not defined for {shown(value.dtype)}")
    dtype = _PART_TYPES.get(unit, pl.Int8())
    if unit in _DATE_PARTS:
        return Value(_DATE_PARTS[unit](in_utc(value)), dtype, MISSING, 1 << 20, "part", (unit, value))
    if unit not in _TIME_PARTS:
        names = ", ".join((*_DATE_PARTS, *_TIME_PARTS)).lower()
        invalid_sql(f"{unit.lower()!r} is not a supported part of a time; use one of {names}")
    time = as_datetime(value, TIMESTAMP)
    value = time if isinstance(value.dtype, pl.Date) else value
    return Value(_TIME_PARTS[unit](time.expr), dtype, MISSING, 60, "part", (unit, value))


def truncated_time(unit: str, value: Value) -> Value:
    """Lower date_trunc; a date stays a date."""
    if value.const is None:
        return NULL
    value = adapted(value, TIMESTAMP)
    if unit not in _TRUNCATED or not isinstance(value.dtype, (pl.Date, pl.Datetime)):
        names = ", ".join(_TRUNCATED).lower()
        invalid_sql(
            f"date_trunc takes one of {names} and a date or time, not {unit.lower()!r} of {shown(value.dtype)}"
        )
    if isinstance(value.dtype, pl.Date) and unit in ("HOUR", "MINUTE", "SECOND"):
        return as_datetime(value, TIMESTAMP)
    expr = in_utc(value).dt.truncate(_TRUNCATED[unit])
    return Value(expr, value.dtype, function="truncate", arguments=(unit, value))


def _name(node: exp.Expr) -> str:
    """Return the name of a function, for messages."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else _SHOWN.get(type(node), node.key)


def _number(node: exp.Expr, value: Value) -> Value:
    value = adapted(value, pl.Float64())
    if not value.dtype.is_numeric():
        invalid_sql(f"{_name(node)!r} is not defined for {shown(value.dtype)}")
    return value


def _text(node: exp.Expr, value: Value) -> Value:
    if not isinstance(value.dtype, pl.String):
        invalid_sql(f"{_name(node)!r} is not defined for {shown(value.dtype)}")
    return value


def _const_text(node: exp.Expr, value: Value) -> str:
    if not value.is_text_const:
        invalid_sql(f"the second argument of {_name(node)!r} must be a text, not an expression")
    return str(value.const)


def _const_integer(node: exp.Expr, value: Value, min_value: int = 0) -> int:
    if not isinstance(value.const, int) or isinstance(value.const, bool) or value.const < min_value:
        invalid_sql(f"{_name(node)!r} takes a number that is at least {min_value}, not an expression")
    return min(value.const, MAX_LENGTH)


def _abs(node: exp.Expr, value: Value) -> Value:
    value = _number(node, value)
    if isinstance(value.dtype, INTEGERS):  # the minimum of an integer type has no absolute value in it
        value = arithmetic("+", value, Value(pl.lit(0), pl.Int32(), 0))
    return Value(value.expr.abs(), value.dtype, bound=value.bound)


def _sign(node: exp.Expr, value: Value) -> Value:
    value = _number(node, value)
    positive = (value.expr > 0) & value.expr.is_not_nan() if value.dtype.is_float() else value.expr > 0
    return Value(positive.cast(pl.Int8) - (value.expr < 0).cast(pl.Int8), pl.Int8(), bound=1)


def _rounding(function: _Part, places: int = 0) -> Callable[[exp.Expr, Value], Value]:
    """Return a rule for a function on numbers that does not change integers, and keeps some places of decimals."""

    def rule(node: exp.Expr, value: Value) -> Value:
        value = _number(node, value)
        if isinstance(value.dtype, INTEGERS):
            return value
        if not isinstance(value.dtype, pl.Decimal):
            return Value(function(value.expr), value.dtype)
        dtype = pl.Decimal(value.dtype.precision, min(places, value.dtype.scale))
        return Value(function(value.expr).cast(dtype), dtype, bound=value.bound + 1)

    return rule


def _round(node: exp.Expr, value: Value, places: Value | None = None) -> Value:
    digits = 0 if places is None else _const_integer(node, places)
    return _rounding(lambda number: number.round(digits, mode="half_away_from_zero"), digits)(node, value)


def _log(node: exp.Expr, *arguments: Value) -> Value:
    base = 10.0 if len(arguments) == 1 else arguments[0].const
    if isinstance(base, bool) or not isinstance(base, (int, float)):
        invalid_sql("'log' takes a number as its base")
    return Value(as_type(_number(node, arguments[-1]), pl.Float64()).expr.log(float(base)), pl.Float64())


def _extreme(node: exp.Expr, *arguments: Value) -> Value:
    largest = isinstance(node, exp.Greatest)
    values, dtype, bound = unified(arguments, _name(node))
    exprs = [value.expr for value in values]
    if dtype.is_nested():
        invalid_sql(f"{_name(node)!r} is not defined for {shown(dtype)}")
    if not dtype.is_float():
        join = pl.max_horizontal if largest else pl.min_horizontal
        return Value(join(*exprs), dtype, MISSING, bound, node.key, tuple(values))

    def larger(left: pl.Expr, right: pl.Expr) -> pl.Expr:  # NaN is the largest number; Polars ignores it
        first = (left >= right) if largest else (left <= right)
        return pl.when(left.is_null()).then(right).when(right.is_null() | first).then(left).otherwise(right)

    return Value(balanced(exprs, larger), dtype, function=node.key, arguments=tuple(values))


def _coalesce(node: exp.Expr, *arguments: Value) -> Value:
    values, dtype, bound = unified(arguments, _name(node))
    expr = pl.coalesce(_up_to_constant([value.expr for value in values]))
    return Value(expr, dtype, MISSING, bound, node.key, tuple(values))


def _up_to_constant(exprs: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Drop the expressions after a constant that is not null: Polars would return one row for it."""
    kept: list[pl.Expr] = []
    for expr in exprs:
        kept.append(expr)
        if not named_columns(expr) and pl.select(expr).item() is not None:
            break
    return kept


def _nullif(_: exp.Expr, value: Value, other: Value) -> Value:
    typed, equals = adapted(value, other.dtype), compare("=", value, other)
    expr = pl.when(equals.expr).then(None).otherwise(typed.expr)
    return Value(expr, typed.dtype, MISSING, typed.bound, "case", (equals, as_type(NULL, typed.dtype), typed))


def _length(node: exp.Expr, value: Value) -> Value:
    is_list = isinstance(value.dtype, pl.List)
    length = value.expr.list.len() if is_list else _text(node, value).expr.str.len_chars()
    return Value(length.cast(pl.Int64), pl.Int64(), bound=1 << 33)


def _trim(node: exp.Expr, value: Value, letters: Value | None = None) -> Value:
    string = _text(node, value).expr.str
    characters = " " if letters is None else _const_text(node, letters)
    strip = {"LEADING": string.strip_chars_start, "TRAILING": string.strip_chars_end}
    position = str(node.args.get("position") or "BOTH")
    expr = strip.get(position, string.strip_chars)(characters)
    return Value(expr, pl.String(), function="trim", arguments=(position, value, letters or text(" ")))


def _substring(node: exp.Expr, value: Value, start: Value, length: Value | None = None) -> Value:
    first = _const_integer(node, start, min_value=1) - 1
    count = None if length is None else _const_integer(node, length)
    return Value(_text(node, value).expr.str.slice(first, count), pl.String())


def _end(node: exp.Expr, value: Value, count: Value) -> Value:
    cut = _text(node, value).expr.str
    length = _const_integer(node, count)
    return Value(cut.head(length) if isinstance(node, exp.Left) else cut.tail(length), pl.String())


def _find(node: exp.Expr, subject: Value, search: Value) -> Value:
    value, part = _text(node, subject).expr, _const_text(node, search)
    # `str.find` of Polars counts bytes, and `splitn` by an empty text splits at the first letter.
    before = value.str.splitn(part, 2).struct.field("field_0").str.len_chars() if part else pl.lit(0)
    occurs = value.str.contains(part, literal=True)
    position = pl.when(occurs).then(before + 1).otherwise(occurs.cast(pl.Int64))  # 0 or null
    return Value(position.cast(pl.Int64), pl.Int64(), bound=1 << 33)


def _replace(node: exp.Expr, subject: Value, search: Value, new: Value | None = None) -> Value:
    value, old = _text(node, subject).expr, _const_text(node, search)
    replacement = _text(node, text("") if new is None else new)
    if not replacement.is_const:
        value = pl.when(replacement.expr.is_not_null()).then(value)
    if old and replacement.is_const:
        value = value.str.replace_all(old, replacement.expr, literal=True)
    elif old:  # `replace_all` keeps a text if the replacement is null, and reads "$1" in a column as a group
        value = value.str.split(old).list.join(replacement.expr)
    return Value(value, pl.String())


def _contains(node: exp.Expr, value: Value, part: Value) -> Value:
    if isinstance(node, exp.Contains) and isinstance(value.dtype, pl.List):
        return _list_contains(node, value, part)
    first, second = _text(node, value).expr.str, _text(node, part).expr
    if isinstance(node, exp.Contains):
        return boolean(first.contains(second, literal=True))
    at_start = isinstance(node, exp.StartsWith) or _name(node) == "prefix"
    return boolean(first.starts_with(second) if at_start else first.ends_with(second))


def _list_contains(node: exp.Expr, items: Value, item: Value) -> Value:
    if not isinstance(items.dtype, pl.List):
        invalid_sql(f"{_name(node)!r} is not defined for {shown(items.dtype)}")
    inner = inner_type(items.dtype)
    dtype = common_type((of_type(items.expr, inner), item), _name(node))
    list_expr = items.expr if dtype == inner else items.expr.cast(pl.List(dtype))
    element = as_type(item, dtype).expr
    contains = list_expr.list.contains(element, nulls_equal=False)
    return boolean(pl.when(element.is_not_null()).then(contains))


def _concat(_: exp.Expr, *arguments: Value) -> Value:
    texts = [as_text(argument) for argument in arguments]
    expr = pl.concat_str([part.expr for part in texts], ignore_nulls=True)
    return Value(expr, pl.String(), function="concat", arguments=tuple(texts))


def _date(_: exp.Expr, value: Value) -> Value:
    return cast(value, pl.Date(), strict=True)


def _formatted(node: exp.Expr, value: Value, pattern: Value) -> Value:
    value, letters = adapted(value, TIMESTAMP), _const_text(node, pattern)
    if not isinstance(value.dtype, (pl.Date, pl.Datetime)):
        invalid_sql(f"{_name(node)!r} is not defined for {shown(value.dtype)}")
    if re.fullmatch(r"(?:%[YmdHMS]|[^%])*", letters) is None:
        invalid_sql(
            f"the format {letters[:60]!r} has other parts than years, months, days, hours, minutes, seconds"
        )
    return Value(as_datetime(value, TIMESTAMP).expr.dt.strftime(letters), pl.String())


def _date_part(node: exp.Expr, unit: Value, value: Value) -> Value:
    if not unit.is_text_const:
        invalid_sql(f"{_name(node)!r} takes the name of a part, as in date_part('year', ts)")
    return part_of_time(str(unit.const).upper(), value)


def _floating(function: _Part, dtype: pl.DataType = _DOUBLE) -> Callable[[exp.Expr, Value], Value]:
    """Return a rule for a function on DOUBLE."""

    def rule(node: exp.Expr, value: Value) -> Value:
        value = as_type(_number(node, value), _DOUBLE)
        return Value(function(value.expr), dtype, function=node.key, arguments=(value,))

    return rule


def _texts(function: _Part) -> Callable[[exp.Expr, Value], Value]:
    """Return a rule for a function from text to text."""
    return lambda node, value: Value(function(_text(node, value).expr), pl.String())


def _part(unit: str) -> Callable[[exp.Expr, Value], Value]:
    return lambda _, value: part_of_time(unit, value)


# A function with its minimum and maximum number of arguments.
_Rule = tuple[Function, int, int]
_FUNCTIONS: Final[dict[type[exp.Expr], _Rule]] = {
    **{kind: (_part(unit), 1, 1) for kind, unit in PARTS.items()},
    exp.Abs: (_abs, 1, 1),
    exp.Sign: (_sign, 1, 1),
    exp.Floor: (_rounding(pl.Expr.floor), 1, 1),
    exp.Ceil: (_rounding(pl.Expr.ceil), 1, 1),
    exp.Trunc: (_rounding(pl.Expr.truncate), 1, 1),
    exp.Round: (_round, 1, 2),
    exp.Sqrt: (_floating(pl.Expr.sqrt), 1, 1),
    exp.Exp: (_floating(pl.Expr.exp), 1, 1),
    exp.Ln: (_floating(pl.Expr.log), 1, 1),
    exp.Log: (_log, 1, 2),
    exp.IsNan: (_floating(pl.Expr.is_nan, pl.Boolean()), 1, 1),
    **dict.fromkeys((exp.Greatest, exp.Least), (_extreme, 1, MAX_COMPARED)),
    exp.Coalesce: (_coalesce, 1, MAX_ITEMS),
    exp.Nullif: (_nullif, 2, 2),
    exp.Length: (_length, 1, 1),
    exp.Lower: (_texts(lambda string: string.str.to_lowercase()), 1, 1),
    exp.Upper: (_texts(lambda string: string.str.to_uppercase()), 1, 1),
    exp.Trim: (_trim, 1, 2),
    exp.Substring: (_substring, 2, 3),
    **dict.fromkeys((exp.Left, exp.Right), (_end, 2, 2)),
    exp.StrPosition: (_find, 2, 2),
    exp.Replace: (_replace, 2, 3),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith, exp.Contains), (_contains, 2, 2)),
    exp.ArrayContains: (_list_contains, 2, 2),
    exp.Concat: (_concat, 1, MAX_ITEMS),
    exp.Date: (_date, 1, 1),
    exp.TimeToStr: (_formatted, 2, 2),
}
# Functions that may have a value if an argument is null.
_NULLABLE: Final = (exp.Coalesce, exp.Concat, exp.Greatest, exp.Least, exp.Nullif)
# Names for messages, if they differ from the names of nodes.
_SHOWN: Final[dict[type[exp.Expr], str]] = {
    exp.ArrayContains: "list_contains",
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.StrPosition: "strpos",
    exp.TimeToStr: "strftime",
}

# Functions for which sqlglot has no node, by name.
NAMED: Final[dict[str, _Rule]] = {
    **dict.fromkeys(("date_part", "datepart"), (_date_part, 2, 2)),
    **dict.fromkeys(("prefix", "suffix"), (_contains, 2, 2)),
}
