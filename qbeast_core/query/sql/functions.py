"""Functions of one row: what each node of sqlglot's tree means on typed values, as DuckDB defines it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import polars as pl
from sqlglot import exp

from qbeast_core.query.sql.casts import as_text, cast
from qbeast_core.query.sql.operators import Arithmetic, arithmetic, balanced, compare
from qbeast_core.query.sql.tokens import invalid_sql
from qbeast_core.query.sql.values import (
    INTEGERS,
    TIMESTAMP,
    Value,
    adapted,
    as_datetime,
    as_type,
    boolean,
    common_type,
    inner_type,
    of_type,
    shown,
    text,
    unified,
    with_expr,
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
_PART_TYPES: Final[dict[str, pl.DataType]] = {
    "YEAR": pl.Int32(),
    "DOY": pl.Int16(),
    "DAYOFYEAR": pl.Int16(),
    "EPOCH": pl.Float64(),
}
# Functions that return a part of a time, and the name that EXTRACT has for it.
PARTS: Final[dict[type[exp.Expr], str]] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Week: "WEEK",
    exp.Day: "DAY",
    exp.DayOfWeek: "DOW",
    exp.DayOfWeekIso: "ISODOW",
    exp.DayOfYear: "DOY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
    exp.Second: "SECOND",
    exp.TimeToUnix: "EPOCH",
}
_FLOATING: Final[dict[type[exp.Expr], _Part]] = {
    exp.Sqrt: lambda value: value.sqrt(),
    exp.Exp: lambda value: value.exp(),
    exp.Ln: lambda value: value.log(),
}

Arguments = Sequence[Value]
Function = Callable[[exp.Expr, Arguments], Value]


def call(node: exp.Expr, arguments: Arguments) -> Value:
    """Lower a function."""
    if type(node) in PARTS:
        return part_of_time(PARTS[type(node)], _one(node, arguments))
    if type(node) in _FLOATING:
        value = _number(node, _one(node, arguments))
        return Value(_FLOATING[type(node)](as_type(value, pl.Float64())), pl.Float64())
    if isinstance(node, exp.Anonymous):
        named = NAMED.get(str(node.this).lower())
        if named is None:
            invalid_sql(f"the function {str(node.this)[:60]!r} is not supported")
        return named(node, arguments)
    return _FUNCTIONS[type(node)](node, arguments)


def function_arguments(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments that are expressions, in the order that they are written in."""
    keys = (
        "this",
        "expression",
        "expressions",
        "start",
        "length",
        "substr",
        "replacement",
        "decimals",
        "true",
        "false",
    )
    found: list[exp.Expr] = []
    for key in keys:
        value = node.args.get(key)
        if isinstance(value, list):
            found += value
        elif isinstance(value, exp.Expr) and not isinstance(value, exp.Var):
            found.append(value)
    return found


def part_of_time(unit: str, value: Value) -> Value:
    """Lower EXTRACT and its like; times with a zone are read in UTC."""
    value = adapted(value, TIMESTAMP)
    if not isinstance(value.dtype, (pl.Date, pl.Datetime)):
        invalid_sql(f"{unit} is not defined for {shown(value.dtype)}")
    if unit in _DATE_PARTS:
        return Value(_DATE_PARTS[unit](_in_utc(value)), _PART_TYPES.get(unit, pl.Int8()), bound=1 << 20)
    if unit not in _TIME_PARTS:
        known = ", ".join((*_DATE_PARTS, *_TIME_PARTS)).lower()
        invalid_sql(f"{unit.lower()!r} is not a supported part of a time; there are {known}")
    return Value(_TIME_PARTS[unit](as_datetime(value, TIMESTAMP)), _PART_TYPES.get(unit, pl.Int8()), bound=60)


def truncated_time(unit: str, value: Value) -> Value:
    """Lower date_trunc; a date stays a date."""
    value = adapted(value, TIMESTAMP)
    if unit not in _TRUNCATED or not isinstance(value.dtype, (pl.Date, pl.Datetime)):
        known = ", ".join(_TRUNCATED).lower()
        invalid_sql(
            f"date_trunc takes one of {known} and a date or time, not {unit.lower()!r} of {shown(value.dtype)}"
        )
    if isinstance(value.dtype, pl.Date) and unit in ("HOUR", "MINUTE", "SECOND"):
        return Value(as_datetime(value, TIMESTAMP), TIMESTAMP)
    return Value(_in_utc(value).dt.truncate(_TRUNCATED[unit]), value.dtype)


def _in_utc(value: Value) -> pl.Expr:
    zone = value.dtype.time_zone if isinstance(value.dtype, pl.Datetime) else None
    return value.expr if zone in (None, "UTC") else value.expr.dt.convert_time_zone("UTC")


def _name(node: exp.Expr) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else _SHOWN.get(type(node), node.key)


def _one(node: exp.Expr, arguments: Arguments) -> Value:
    if len(arguments) != 1:
        invalid_sql(f"{_name(node)!r} takes one argument")
    return arguments[0]


def _two(node: exp.Expr, arguments: Arguments) -> tuple[Value, Value]:
    if len(arguments) != 2:
        invalid_sql(f"{_name(node)!r} takes two arguments")
    return arguments[0], arguments[1]


def _number(node: exp.Expr, value: Value) -> Value:
    value = adapted(value, pl.Float64())
    if not value.dtype.is_numeric() and not value.is_null:
        invalid_sql(f"{_name(node)!r} is not defined for {shown(value.dtype)}")
    return value


def _text(node: exp.Expr, value: Value) -> Value:
    if value.is_null:
        return Value(pl.lit(None, dtype=pl.String), pl.String())
    if not isinstance(value.dtype, pl.String):
        invalid_sql(f"{_name(node)!r} is not defined for {shown(value.dtype)}")
    return value


def _const_text(node: exp.Expr, value: Value) -> str:
    if not value.is_text_const:
        invalid_sql(f"the second argument of {_name(node)!r} must be a text, not an expression")
    return str(value.const)


def _const_integer(node: exp.Expr, value: Value, least: int = 0) -> int:
    if not isinstance(value.const, int) or isinstance(value.const, bool) or value.const < least:
        invalid_sql(f"{_name(node)!r} takes a number that is at least {least}, not an expression")
    return value.const


def _abs(node: exp.Expr, arguments: Arguments) -> Value:
    value = _number(node, _one(node, arguments))
    if value.is_null:
        return value
    if isinstance(value.dtype, INTEGERS):  # the least number of a type has no positive counterpart in it
        value = arithmetic("+", value, Value(pl.lit(0), pl.Int32(), 0))
    return Value(value.expr.abs(), value.dtype, bound=value.bound)


def _sign(node: exp.Expr, arguments: Arguments) -> Value:
    value = _number(node, _one(node, arguments))
    positive = (value.expr > 0) & value.expr.is_not_nan() if value.dtype.is_float() else value.expr > 0
    return Value(positive.cast(pl.Int8) - (value.expr < 0).cast(pl.Int8), pl.Int8(), bound=1)


def _whole(node: exp.Expr, arguments: Arguments) -> Value:
    value = _number(node, _one(node, arguments))
    if isinstance(value.dtype, INTEGERS) or value.is_null:
        return value
    return with_expr(value, value.expr.floor() if isinstance(node, exp.Floor) else value.expr.ceil())


def _round(node: exp.Expr, arguments: Arguments) -> Value:
    value = _number(node, arguments[0])
    digits = _const_integer(node, arguments[1]) if len(arguments) > 1 else 0
    if isinstance(value.dtype, INTEGERS) or value.is_null:
        return value
    return with_expr(value, value.expr.round(digits, mode="half_away_from_zero"))


def _log(node: exp.Expr, arguments: Arguments) -> Value:
    base, value = arguments if len(arguments) == 2 else (None, arguments[0])
    base_number = 10.0 if base is None else base.const
    if isinstance(base_number, bool) or not isinstance(base_number, (int, float)):
        invalid_sql("'log' takes a number as its base")
    return Value(as_type(_number(node, value), pl.Float64()).log(float(base_number)), pl.Float64())


def _is_nan(node: exp.Expr, arguments: Arguments) -> Value:
    value = _number(node, _one(node, arguments))
    return boolean(as_type(value, pl.Float64()).is_nan())


def _extreme(node: exp.Expr, arguments: Arguments) -> Value:
    if len(arguments) > MAX_COMPARED:
        invalid_sql(f"{_name(node)!r} takes at most {MAX_COMPARED} arguments")
    largest = isinstance(node, exp.Greatest)
    exprs, dtype, bound = unified(arguments, _name(node))
    if dtype.is_nested():
        invalid_sql(f"{_name(node)!r} is not defined for {shown(dtype)}")
    if not dtype.is_float():
        join = pl.max_horizontal if largest else pl.min_horizontal
        return Value(join(*exprs), dtype, bound=bound)

    def larger(left: pl.Expr, right: pl.Expr) -> pl.Expr:  # NaN is the largest number; Polars leaves it out
        first = (left >= right) if largest else (left <= right)
        return pl.when(left.is_null()).then(right).when(right.is_null() | first).then(left).otherwise(right)

    return Value(balanced(exprs, larger), dtype)


def _coalesce(node: exp.Expr, arguments: Arguments) -> Value:
    exprs, dtype, bound = unified(arguments, _name(node))
    return Value(pl.coalesce(_up_to_constant(exprs)), dtype, bound=bound)


def _up_to_constant(exprs: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Leave out what follows a constant that is not null: Polars would return one row for it."""
    found: list[pl.Expr] = []
    for expr in exprs:
        found.append(expr)
        if not expr.meta.root_names() and pl.select(expr).item() is not None:
            break
    return found


def _nullif(node: exp.Expr, arguments: Arguments) -> Value:
    value, other = _two(node, arguments)
    typed = adapted(value, other.dtype)
    return with_expr(typed, pl.when(compare("=", value, other).expr).then(None).otherwise(typed.expr))


def _length(node: exp.Expr, arguments: Arguments) -> Value:
    value = _one(node, arguments)
    found = (
        value.expr.list.len() if isinstance(value.dtype, pl.List) else _text(node, value).expr.str.len_chars()
    )
    return Value(found.cast(pl.Int64), pl.Int64(), bound=1 << 33)


def _case(node: exp.Expr, arguments: Arguments) -> Value:
    value = _text(node, _one(node, arguments)).expr
    return Value(
        value.str.to_lowercase() if isinstance(node, exp.Lower) else value.str.to_uppercase(), pl.String()
    )


def _trim(node: exp.Expr, arguments: Arguments) -> Value:
    value = _text(node, arguments[0]).expr.str
    characters = _const_text(node, arguments[1]) if len(arguments) > 1 else " "
    strip = {"LEADING": value.strip_chars_start, "TRAILING": value.strip_chars_end}
    return Value(strip.get(str(node.args.get("position") or ""), value.strip_chars)(characters), pl.String())


def _substring(node: exp.Expr, arguments: Arguments) -> Value:
    value = _text(node, arguments[0])
    start = _const_integer(node, arguments[1], least=1)
    length = _const_integer(node, arguments[2]) if len(arguments) > 2 else None
    return Value(value.expr.str.slice(start - 1, length), pl.String())


def _end(node: exp.Expr, arguments: Arguments) -> Value:
    value, count = _two(node, arguments)
    cut = _text(node, value).expr.str
    length = _const_integer(node, count)
    return Value(cut.head(length) if isinstance(node, exp.Left) else cut.tail(length), pl.String())


def _find(node: exp.Expr, arguments: Arguments) -> Value:
    value, part = _text(node, arguments[0]).expr, _const_text(node, arguments[1])
    # Polars' own find counts bytes, and cuts at the first letter where there is nothing to find.
    before = value.str.splitn(part, 2).struct.field("field_0").str.len_chars() if part else pl.lit(0)
    occurs = value.str.contains(part, literal=True)
    found = pl.when(occurs).then(before + 1).otherwise(occurs.cast(pl.Int64))  # 0 or null
    return Value(found.cast(pl.Int64), pl.Int64(), bound=1 << 33)


def _replace(node: exp.Expr, arguments: Arguments) -> Value:
    value, old = _text(node, arguments[0]), _const_text(node, arguments[1])
    new = _text(node, arguments[2] if len(arguments) > 2 else text(""))
    if not old:
        return with_expr(value, value.expr)
    return Value(value.expr.str.replace_all(old, new.expr, literal=True), pl.String())


def _contains(node: exp.Expr, arguments: Arguments) -> Value:
    value, part = _two(node, arguments)
    if isinstance(node, exp.Contains) and isinstance(value.dtype, pl.List):
        return _list_contains(node, arguments)
    first, second = _text(node, value).expr.str, _text(node, part).expr
    if isinstance(node, exp.Contains):
        return boolean(first.contains(second, literal=True))
    at_start = isinstance(node, exp.StartsWith) or _name(node) == "prefix"
    return boolean(first.starts_with(second) if at_start else first.ends_with(second))


def _list_contains(node: exp.Expr, arguments: Arguments) -> Value:
    items, item = _two(node, arguments)
    if not isinstance(items.dtype, pl.List):
        invalid_sql(f"{_name(node)!r} is not defined for {shown(items.dtype)}")
    inner = inner_type(items.dtype)
    dtype = common_type((of_type(items.expr, inner), item), _name(node))
    same = items.expr if dtype == inner else items.expr.cast(pl.List(dtype))
    wanted = as_type(item, dtype)
    found = same.list.contains(wanted, nulls_equal=False)
    return boolean(pl.when(wanted.is_not_null()).then(found))


def _concat(_: exp.Expr, arguments: Arguments) -> Value:
    return Value(pl.concat_str([as_text(one) for one in arguments], ignore_nulls=True), pl.String())


def _date(node: exp.Expr, arguments: Arguments) -> Value:
    return cast(_one(node, arguments), pl.Date(), strict=True)


def _date_part(node: exp.Expr, arguments: Arguments) -> Value:
    unit, value = _two(node, arguments)
    if not unit.is_text_const:
        invalid_sql(f"{_name(node)!r} takes the name of a part, as in date_part('year', ts)")
    return part_of_time(str(unit.const).upper(), value)


def _binary(op: Arithmetic) -> Function:
    return lambda node, arguments: arithmetic(op, *_two(node, arguments))


def _truncate(node: exp.Expr, arguments: Arguments) -> Value:
    value = _number(node, _one(node, arguments))
    if isinstance(value.dtype, INTEGERS) or value.is_null:
        return value
    if isinstance(value.dtype, pl.Decimal):
        below = pl.when(value.expr < 0).then(value.expr.ceil()).otherwise(value.expr.floor())
        return with_expr(value, below)
    return with_expr(value, value.expr.truncate())


_FUNCTIONS: Final[dict[type[exp.Expr], Function]] = {
    exp.Abs: _abs,
    exp.Sign: _sign,
    exp.Floor: _whole,
    exp.Ceil: _whole,
    exp.Round: _round,
    exp.Trunc: _truncate,
    exp.Log: _log,
    exp.Pow: _binary("^"),
    exp.Mod: _binary("%"),
    exp.IsNan: _is_nan,
    exp.Greatest: _extreme,
    exp.Least: _extreme,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Length: _length,
    exp.Lower: _case,
    exp.Upper: _case,
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Left: _end,
    exp.Right: _end,
    exp.StrPosition: _find,
    exp.Replace: _replace,
    exp.StartsWith: _contains,
    exp.EndsWith: _contains,
    exp.Contains: _contains,
    exp.ArrayContains: _list_contains,
    exp.Concat: _concat,
    exp.Date: _date,
}
# Names for messages, where those of the nodes differ.
_SHOWN: Final[dict[type[exp.Expr], str]] = {
    exp.ArrayContains: "list_contains",
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.StrPosition: "strpos",
}

# Functions for which sqlglot has no node, by name.
NAMED: Final[dict[str, Function]] = {
    "date_part": _date_part,
    "datepart": _date_part,
    "prefix": _contains,
    "suffix": _contains,
}
