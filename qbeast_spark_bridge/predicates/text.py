"""SQL texts as Spark's SQL: conditions that keep the same rows, arithmetic, casts and functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import polars as pl
from sqlglot import exp

from qbeast_core.sql.functions import function_arguments
from qbeast_core.sql.lower import COMPARISON_SIGNS, Lowering, names_of, type_of
from qbeast_core.sql.operators import ANY, ONE, compares_floats, pattern_pieces
from qbeast_core.sql.parse import PARTS, case_parts, operands, without_parentheses
from qbeast_core.sql.values import INTEGERS, MAX_DIGITS, TIMESTAMP, TIMESTAMPTZ, Period, largest
from qbeast_spark_bridge.spark_types import (
    DAY_MICROS,
    NAN,
    SqlPart,
    align,
    as_decimal,
    as_type,
    bound_of,
    quoted,
    refuse,
    sql_type,
    typed_literal,
)

_Function = Callable[..., SqlPart]
_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Neg: "-",
    exp.Mul: "*",
    exp.Mod: "%",
}
_LONG: Final = 2**63 - 1
# Doubles of at least this size are whole numbers.
_WHOLE: Final = "CAST('4503599627370496' AS DOUBLE)"
_MICROS_OF: Final = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_OF_DAY: Final = {
    **{name: f"{name}({{}})" for name in ("YEAR", "QUARTER", "MONTH", "DAY")},
    **dict.fromkeys(("DOY", "DAYOFYEAR"), "DAYOFYEAR({})"),
    **dict.fromkeys(("DOW", "DAYOFWEEK"), "(DAYOFWEEK({}) - 1)"),
    "WEEK": "WEEKOFYEAR({})",
    "ISODOW": "(WEEKDAY({}) + 1)",
}


def _cast(part: SqlPart, dtype: pl.DataType, what: object) -> SqlPart:
    """Cast a part; a value outside of the type becomes null."""
    if part.dtype == dtype or part.dtype == pl.Null() or part.is_text_const:
        return as_type(part, dtype, what)
    if dtype == pl.Int128() and part.dtype.is_integer():
        digits = len(str(bound_of(part)))
        return SqlPart(
            f"CAST({part.expr} AS DECIMAL({digits}, 0))", pl.Decimal(digits, 0), bound=bound_of(part)
        )
    if dtype == pl.Int128():
        refuse(what)
    sql, source, name = part.expr, part.dtype, sql_type(dtype)
    if dtype.is_integer() and source.is_numeric():
        whole = f"RINT({sql})" if source.is_float() else f"ROUND({sql})" if source.is_decimal() else sql
        return SqlPart(f"TRY_CAST({whole} AS {name})", dtype)
    is_exact = source.is_integer() or source.is_decimal() or source == pl.Boolean()
    if dtype.is_numeric() and (is_exact or (source.is_float() and dtype == pl.Float64())):
        via = f"CAST({sql} AS INT)" if source == pl.Boolean() else sql
        return SqlPart(f"TRY_CAST({via} AS {name})", dtype)
    if dtype == pl.String() and (source.is_integer() or source in (pl.Boolean(), pl.Date())):
        return SqlPart(f"CAST({sql} AS STRING)", dtype)
    return _day(part, what) if dtype == pl.Date() else as_type(part, dtype, what)


def _arithmetic(node: exp.Expr, left: SqlPart, right: SqlPart) -> SqlPart:
    if pl.Null() in (left.dtype, right.dtype):
        return SqlPart("NULL", pl.Null())
    left, right = (
        as_type(side, other.dtype, node) if side.is_text_const else side
        for side, other in ((left, right), (right, left))
    )
    if not (left.dtype.is_numeric() and right.dtype.is_numeric()):
        return _days(node, left, right)
    if isinstance(node, exp.Div):
        return _divided(*(as_type(side, pl.Float64(), node) for side in (left, right)))
    if left.dtype.is_float() or right.dtype.is_float():
        if isinstance(node, exp.Mod | exp.IntDiv):
            refuse(node)
        (left, right), dtype = align([left, right], node)
        return SqlPart(f"({left.expr} {_SIGNS[type(node)]} {right.expr})", dtype)
    if left.dtype.is_decimal() or right.dtype.is_decimal():
        return _decimals(node, left, right)
    return _integers(node, left, right)


def _integers(node: exp.Expr, left: SqlPart, right: SqlPart) -> SqlPart:
    """Compute in a type that fits every result."""
    if isinstance(node, exp.IntDiv | exp.Mod):
        return _quotient(node, left, right)
    bounds = bound_of(left), bound_of(right)
    bound = bounds[0] * bounds[1] if isinstance(node, exp.Mul) else sum(bounds)
    if bound >= 10**MAX_DIGITS:
        refuse(node)
    name = "BIGINT" if bound <= _LONG else f"DECIMAL({len(str(bound))}, 0)"
    dtype = pl.Int64() if bound <= _LONG else pl.Decimal(len(str(bound)), 0)
    names = [name, name]
    if bound > _LONG:
        # Spark's result has one digit more for a sum, and the digits of both factors for a product.
        names = [f"DECIMAL({len(str(limit))}, 0)" for limit in bounds]
    sides = [f"CAST({part.expr} AS {own})" for part, own in zip((left, right), names, strict=True)]
    return SqlPart(f"CAST(({sides[0]} {_SIGNS[type(node)]} {sides[1]}) AS {name})", dtype, bound=bound)


def _quotient(node: exp.Expr, left: SqlPart, right: SqlPart) -> SqlPart:
    """Divide 64-bit integers: null for division by zero; a decimal, since the minimum divided by -1 overflows."""
    if max(bound_of(left), bound_of(right)) > _LONG + 1:
        refuse(node)
    dividend, divisor = (f"CAST({part.expr} AS BIGINT)" for part in (left, right))
    if isinstance(node, exp.Mod):
        sql = f"(CASE WHEN {divisor} != 0 THEN {dividend} % {divisor} END)"
        return SqlPart(sql, pl.Int64(), bound=bound_of(right))
    if right.is_const and right.const not in (0, -1):
        return SqlPart(f"({dividend} DIV {divisor})", pl.Int64(), bound=bound_of(left))
    name = "DECIMAL(19, 0)"
    whens = f"WHEN {divisor} = -1 THEN CAST(- CAST({dividend} AS {name}) AS {name})"
    whens += f" WHEN {divisor} != 0 THEN CAST({dividend} DIV {divisor} AS {name})"
    return SqlPart(f"(CASE {whens} END)", pl.Decimal(19, 0), bound=bound_of(left))


def _decimals(node: exp.Expr, left: SqlPart, right: SqlPart) -> SqlPart:
    """Compute exactly; raise if a result could have more digits than Spark keeps."""
    first, second = as_decimal(left), as_decimal(right)
    whole = [dtype.precision - dtype.scale for dtype in (first, second)]
    if isinstance(node, exp.Mul):
        scale, precision = first.scale + second.scale, first.precision + second.precision + 1
    else:
        scale = max(first.scale, second.scale)
        precision = max(whole) + scale + 1
    if isinstance(node, exp.IntDiv) or precision > MAX_DIGITS:
        refuse(node)
    sides = [as_type(part, dtype, node).expr for part, dtype in ((left, first), (right, second))]
    sql = f"({sides[0]} {_SIGNS[type(node)]} {sides[1]})"
    if isinstance(node, exp.Mod):
        sql = f"(CASE WHEN {sides[1]} != 0 THEN {sql} END)"
    return SqlPart(f"CAST({sql} AS DECIMAL({precision}, {scale}))", pl.Decimal(precision, scale))


def _divided(left: SqlPart, right: SqlPart) -> SqlPart:
    """Divide doubles by IEEE 754, also by zero, where Spark raises or returns null."""
    by_zero = f"{left.expr} * POWER({right.expr}, CAST('-1' AS DOUBLE))"
    sql = f"(CASE WHEN {right.expr} = 0 THEN {by_zero} ELSE {left.expr} / {right.expr} END)"
    return SqlPart(sql, pl.Float64())


def _days(node: exp.Expr, left: SqlPart, right: SqlPart) -> SqlPart:
    """Move a date by days, or subtract two dates."""
    if isinstance(node, exp.Add) and right.dtype == pl.Date():
        left, right = right, left
    moves = isinstance(node, exp.Add | exp.Sub) and left.dtype == pl.Date()
    if moves and right.dtype.is_integer() and right.dtype != pl.Int64():
        name = "DATE_ADD" if isinstance(node, exp.Add) else "DATE_SUB"
        return SqlPart(f"{name}({left.expr}, {right.expr})", pl.Date())
    if isinstance(node, exp.Sub) and left.dtype == right.dtype == pl.Date():
        return SqlPart(f"CAST(DATEDIFF({left.expr}, {right.expr}) AS BIGINT)", pl.Int64(), bound=2**33)
    return refuse(node)


def _negated(node: exp.Expr, part: SqlPart) -> SqlPart:
    if part.dtype.is_integer():
        return _integers(node, SqlPart("0", pl.Int32(), 0, 1), part)
    return SqlPart(f"(- {part.expr})", part.dtype)


def _day(part: SqlPart, what: object) -> SqlPart:
    """Return the day of a date or time, in UTC."""
    if part.dtype == pl.Date():
        return part
    if part.dtype == TIMESTAMP:
        return SqlPart(f"CAST({part.expr} AS DATE)", pl.Date())
    if part.dtype != TIMESTAMPTZ:
        refuse(what)
    micros = f"UNIX_MICROS({part.expr})"
    days = f"CAST(({micros} - PMOD({micros}, {DAY_MICROS})) DIV {DAY_MICROS} AS INT)"
    return SqlPart(f"DATE_FROM_UNIX_DATE({days})", pl.Date())


def _extract(node: exp.Expr, *arguments: SqlPart) -> SqlPart:
    part = arguments[-1]
    name = PARTS.get(type(node)) or str(node.this.name).upper()
    if part.dtype == pl.Date() and name in _MICROS_OF:
        part = as_type(part, TIMESTAMP, node)
    if name in _OF_DAY:
        return SqlPart(
            f"CAST({_OF_DAY[name].format(_day(part, node).expr)} AS BIGINT)", pl.Int64(), bound=2**31
        )
    if name not in _MICROS_OF or part.dtype not in (TIMESTAMP, TIMESTAMPTZ):
        refuse(node)
    if part.dtype == TIMESTAMP:
        return SqlPart(f"CAST({name}({part.expr}) AS BIGINT)", pl.Int64(), bound=2**31)
    micros = f"PMOD(UNIX_MICROS({part.expr}), {DAY_MICROS}) DIV {_MICROS_OF[name]}"
    return SqlPart(f"({micros}{'' if name == 'HOUR' else ' % 60'})", pl.Int64(), bound=2**31)


def _truncated(node: exp.Expr, part: SqlPart, *_: SqlPart) -> SqlPart:
    unit = str(node.args["unit"].name).upper()
    if part.dtype.is_temporal() and unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY"):
        day = _day(part, node)
        if unit != "DAY":
            day = SqlPart(f"TRUNC({day.expr}, '{unit}')", pl.Date())
        return as_type(day, part.dtype, node)
    if part.dtype == pl.Date() and unit in _MICROS_OF:
        return as_type(part, TIMESTAMP, node)
    if part.dtype == TIMESTAMP and unit in _MICROS_OF:
        kept = list(_MICROS_OF)[: list(_MICROS_OF).index(unit) + 1]
        times = [f"{name}({part.expr})" if name in kept else "0" for name in _MICROS_OF]
        days = [f"{name}({part.expr})" for name in ("YEAR", "MONTH", "DAY")]
        return SqlPart(f"MAKE_TIMESTAMP_NTZ({', '.join([*days, *times])})", TIMESTAMP)
    if part.dtype != TIMESTAMPTZ or unit not in _MICROS_OF:
        refuse(node)
    micros = f"UNIX_MICROS({part.expr})"
    step = f"CAST('{_MICROS_OF[unit]}' AS BIGINT)"
    return SqlPart(f"TIMESTAMP_MICROS({micros} - PMOD({micros}, {step}))", TIMESTAMPTZ)


def _moved(part: SqlPart, by: Period, what: object) -> SqlPart:
    """Move a date or time by an interval: by calendar months, then by a duration; in UTC."""
    micros = by.duration // timedelta(microseconds=1)
    if part.dtype == pl.Date():
        part = as_type(part, TIMESTAMP, what)
    if part.dtype == TIMESTAMP:
        seconds = f"INTERVAL '{micros // 1_000_000}' SECOND + INTERVAL '0.{micros % 1_000_000:06}' SECOND"
        return SqlPart(f"({part.expr} + INTERVAL '{by.months}' MONTH + {seconds})", TIMESTAMP)
    if part.dtype != TIMESTAMPTZ:
        refuse(what)
    start = f"UNIX_MICROS({part.expr})"
    if by.months:
        days = f"UNIX_DATE(ADD_MONTHS({_day(part, what).expr}, {by.months}))"
        start = f"({days} * {DAY_MICROS} + PMOD({start}, {DAY_MICROS}))"
    return SqlPart(f"TIMESTAMP_MICROS({start} + CAST('{micros}' AS BIGINT))", TIMESTAMPTZ)


def _whole(name: str) -> _Function:
    """Return the function FLOOR, CEIL or ROUND, which returns a float for floats of any size."""

    def write(node: exp.Expr, part: SqlPart, digits: SqlPart | None = None) -> SqlPart:
        if part.dtype.is_integer():
            return part
        places = 0 if digits is None else digits.const
        if part.dtype.is_decimal() and isinstance(places, int):
            scale = min(places, part.dtype.scale)  # type: ignore[attr-defined]
            precision = part.dtype.precision - part.dtype.scale + 1 + scale  # type: ignore[attr-defined]
            digits_sql = "" if digits is None else f", {scale}"
            return SqlPart(f"{name}({part.expr}{digits_sql})", pl.Decimal(min(precision, MAX_DIGITS), scale))
        if not part.dtype.is_float() or places:
            refuse(node)
        sql = f"CAST({part.expr} AS DOUBLE)"
        rounded = f"(CASE WHEN ABS({sql}) < {_WHOLE} THEN CAST({name}({sql}) AS DOUBLE) ELSE {sql} END)"
        return SqlPart(rounded, pl.Float64())

    return write


def _of_numbers(function: _Function) -> _Function:
    """Return a function that raises for a value of another type than a number."""

    def write(node: exp.Expr, part: SqlPart) -> SqlPart:
        return function(node, part) if part.dtype.is_numeric() else refuse(node)

    return write


def _sign(_: exp.Expr, part: SqlPart) -> SqlPart:
    is_number = f" AND {part.expr} != {NAN}" if part.dtype.is_float() else ""
    whens = f"WHEN {part.expr} > 0{is_number} THEN 1 WHEN {part.expr} < 0 THEN -1 WHEN {part.expr} IS NOT NULL THEN 0"
    return SqlPart(f"CAST((CASE {whens} END) AS TINYINT)", pl.Int8(), bound=1)


def _absolute(node: exp.Expr, part: SqlPart) -> SqlPart:
    if not part.dtype.is_integer():
        return SqlPart(f"ABS({part.expr})", part.dtype)
    minus = _negated(exp.Neg(this=node.this), part)
    sql = f"(CASE WHEN {part.expr} < 0 THEN {minus.expr} ELSE {part.expr} END)"
    return SqlPart(sql, minus.dtype, bound=minus.bound)


def _texts(form: str, dtype: pl.DataType | None = None) -> _Function:
    """Return a function of texts and literal integers; its arguments fill the places of `form`."""

    def write(node: exp.Expr, *arguments: SqlPart) -> SqlPart:
        parts = [as_type(part, pl.String(), node) if part.dtype == pl.Null() else part for part in arguments]
        are_valid = all(part.dtype == pl.String() or type(part.const) is int for part in parts)
        if not are_valid or form.count("{") != len(parts):
            refuse(node)
        texts = [str(_count(part.const)) if type(part.const) is int else part.expr for part in parts]
        return SqlPart(form.format(*texts), dtype or pl.String(), bound=2**31)

    return write


def _count(characters: int) -> int:
    """Return a number of characters that Spark takes: an INT, which no text is longer than."""
    return min(max(characters, 1 - 2**31), 2**31 - 1)


def _trimmed(node: exp.Expr, *arguments: SqlPart) -> SqlPart:
    position = str(node.args.get("position") or "BOTH")
    letters = "' '" if len(arguments) == 1 else "{1}"
    return _texts(f"TRIM({position} {letters} FROM {{0}})")(node, *arguments)


def _cut(node: exp.Expr, *arguments: SqlPart) -> SqlPart:
    return _texts("SUBSTRING({}, {})" if len(arguments) == 2 else "SUBSTRING({}, {}, {})")(node, *arguments)


def _joined(node: exp.Expr, *arguments: SqlPart) -> SqlPart:
    """Join texts; CONCAT skips nulls, ``||`` returns null for them."""
    parts = [_cast(argument, pl.String(), node).expr for argument in arguments]
    if isinstance(node, exp.Concat):
        parts = [f"COALESCE({part}, '')" for part in parts]
    return SqlPart(f"CONCAT({', '.join(parts)})", pl.String())


def _skip_nulls(name: str) -> _Function:
    """Return the function COALESCE, GREATEST or LEAST, which skip nulls in Spark too."""

    def write(node: exp.Expr, *arguments: SqlPart) -> SqlPart:
        parts, dtype = align(arguments, node)
        if len(parts) == 1 or dtype.is_nested():
            return parts[0] if len(parts) == 1 else refuse(node)
        return SqlPart(f"{name}({', '.join(part.expr for part in parts)})", dtype)

    return write


def _nullif(node: exp.Expr, part: SqlPart, other: SqlPart) -> SqlPart:
    (left, right), _ = align([part, other], node)
    return SqlPart(f"(CASE WHEN {left.expr} = {right.expr} THEN NULL ELSE {part.expr} END)", part.dtype)


def _is_nan(node: exp.Expr, part: SqlPart) -> SqlPart:
    return SqlPart(f"({part.expr} = {NAN})", pl.Boolean()) if part.dtype.is_float() else refuse(node)


def _root(node: exp.Expr, part: SqlPart) -> SqlPart:
    return SqlPart(f"SQRT({as_type(part, pl.Float64(), node).expr})", pl.Float64())


# Functions with the same results in Spark, given the right types. Others raise.
FUNCTIONS: Final[dict[type[exp.Expr], _Function]] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv), _arithmetic),
    **dict.fromkeys((exp.Extract, *PARTS), _extract),
    exp.Neg: _of_numbers(_negated),
    exp.TimestampTrunc: _truncated,
    exp.Abs: _of_numbers(_absolute),
    exp.Floor: _whole("FLOOR"),
    exp.Ceil: _whole("CEIL"),
    exp.Sign: _of_numbers(_sign),
    exp.Sqrt: _of_numbers(_root),
    exp.IsNan: _is_nan,
    exp.Coalesce: _skip_nulls("COALESCE"),
    exp.Greatest: _skip_nulls("GREATEST"),
    exp.Least: _skip_nulls("LEAST"),
    exp.Nullif: _nullif,
    exp.Length: _texts("CAST(CHAR_LENGTH({}) AS BIGINT)", pl.Int64()),
    exp.StartsWith: _texts("STARTSWITH({}, {})", pl.Boolean()),
    exp.EndsWith: _texts("ENDSWITH({}, {})", pl.Boolean()),
    exp.Contains: _texts("CONTAINS({}, {})", pl.Boolean()),
    exp.Lower: _texts("LOWER({})"),
    exp.Upper: _texts("UPPER({})"),
    exp.Left: _texts("LEFT({}, {})"),
    exp.Right: _texts("RIGHT({}, {})"),
    exp.Replace: _texts("REPLACE({}, {}, {})"),
    exp.StrPosition: _texts("CAST(INSTR({}, {}) AS BIGINT)", pl.Int64()),
    exp.Trim: _trimmed,
    exp.Substring: _cut,
    exp.Round: _whole("ROUND"),
    **dict.fromkeys((exp.DPipe, exp.Concat), _joined),
}


_COMPARISONS: Final[dict[type[exp.Expr], str]] = {**COMPARISON_SIGNS, exp.NullSafeEQ: "<=>"}
_WILDCARDS: Final[dict[object, str]] = {ANY: "%", ONE: "_"}
_ESCAPES: Final = "!#~^|@+;:?"
_TRUTH: Final = (pl.Boolean(), pl.Null())


def tree_to_sql(tree: exp.Expr, schema: pl.Schema) -> str:
    """Translate a condition in this library's SQL to Spark's SQL.

    >>> from qbeast_core.sql.parse import parse_condition
    >>> tree = parse_condition("x > 5 AND s IS NOT NULL", ["x", "s"])
    >>> tree_to_sql(tree, pl.Schema({"x": pl.Int64, "s": pl.String}))
    "((`x` > CAST('5' AS BIGINT)) AND (NOT (`s` IS NULL)))"
    """
    return _Translator(schema).truth(tree).expr


class _Translator:
    """Translates nodes over the columns of a schema."""

    def __init__(self, schema: pl.Schema) -> None:
        self.lowering = Lowering(schema, partial(datetime.now, UTC))

    def truth(self, node: exp.Expr) -> SqlPart:
        """Translate a condition."""
        part = self.part(node)
        if part.dtype not in _TRUTH:
            refuse(node)
        return SqlPart("CAST(NULL AS BOOLEAN)", pl.Boolean()) if part.dtype == pl.Null() else part

    def part(self, node: exp.Expr) -> SqlPart:
        """Translate an expression; constants are computed here, as for Polars."""
        node = without_parentheses(node)
        if node.find(exp.Column, exp.Dot) is None:
            return self.constant(node)
        rule = _RULES.get(type(node))
        if rule is not None:
            return rule(self, node)
        function = FUNCTIONS.get(type(node))
        if function is None:
            refuse(node)
        return function(node, *map(self.part, function_arguments(node)))

    def constant(self, node: exp.Expr) -> SqlPart:
        """Translate a constant."""
        constant = self.lowering.value(node)
        if isinstance(constant.const, Period):
            refuse(node)
        try:
            value: Any = constant.const if constant.is_number_const else pl.select(constant.expr).item()
        except pl.exceptions.PolarsError:
            refuse(node)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        return _number(value) if is_number else typed_literal(value, constant.dtype)

    def column(self, node: exp.Expr) -> SqlPart:
        """Translate the name of a column or field."""
        column = self.lowering.value(node)
        dtype = next(iter(pl.Schema({"": column.dtype}).values()))
        path = names_of(node)
        if any("${" in field for field in path[1:]):  # Spark would substitute it
            refuse(node)
        return SqlPart(".".join(map(quoted, path)), dtype)


def _chain(translator: _Translator, node: exp.Expr) -> SqlPart:
    word = " AND " if isinstance(node, exp.And) else " OR "
    return SqlPart(
        f"({word.join(translator.truth(operand).expr for operand in operands(node))})", pl.Boolean()
    )


def _not(translator: _Translator, node: exp.Expr) -> SqlPart:
    return SqlPart(f"(NOT {translator.truth(node.this).expr})", pl.Boolean())


def _compare(translator: _Translator, node: exp.Expr) -> SqlPart:
    return _compared(
        _COMPARISONS[type(node)], translator.part(node.this), translator.part(node.expression), node
    )


def _compared(sign: str, left: SqlPart, right: SqlPart, node: exp.Expr) -> SqlPart:
    (left, right), dtype = align([left, right], node)
    if dtype.is_nested():
        refuse(node)
    return SqlPart(f"({left.expr} {sign} {right.expr})", pl.Boolean())


def _distinct(translator: _Translator, node: exp.Expr) -> SqlPart:
    same = _compared("<=>", translator.part(node.this), translator.part(node.expression), node)
    return SqlPart(f"(NOT {same.expr})", pl.Boolean())


def _is(translator: _Translator, node: exp.Expr) -> SqlPart:
    if isinstance(node.expression, exp.Null):
        return SqlPart(f"({translator.part(node.this).expr} IS NULL)", pl.Boolean())
    value = "TRUE" if node.expression.this else "FALSE"
    return SqlPart(f"({translator.truth(node.this).expr} <=> {value})", pl.Boolean())


def _between(translator: _Translator, node: exp.Expr) -> SqlPart:
    sides = [node.args[name] for name in ("this", "low", "high")]
    parts = [translator.part(side) for side in sides]
    if compares_floats([translator.lowering.value(side) for side in sides]):
        parts = align(parts, node)[0]
    value, low, high = parts
    above, below = _compared(">=", value, low, node), _compared("<=", value, high, node)
    return SqlPart(f"({above.expr} AND {below.expr})", pl.Boolean())


def _in(translator: _Translator, node: exp.Expr) -> SqlPart:
    value, *items = align([translator.part(item) for item in (node.this, *node.expressions)], node.this)[0]
    if value.dtype == pl.Null():
        return translator.truth(exp.Null())
    if value.dtype.is_nested():
        refuse(node)
    return SqlPart(f"({value.expr} IN ({', '.join(item.expr for item in items)}))", pl.Boolean())


def _like(translator: _Translator, node: exp.Expr) -> SqlPart:
    escape = ""
    if isinstance(node, exp.Escape):
        node, escape = without_parentheses(node.this), str(node.expression.this)
    value, pattern = translator.part(node.this), translator.part(node.expression)
    if value.dtype != pl.String() or not pattern.is_text_const:
        refuse(node)
    folds = isinstance(node, exp.ILike)
    letters = pattern.const.lower() if folds else pattern.const
    # By default, Spark treats a backslash as the escape character.
    mark = next((sign for sign in _ESCAPES if sign not in letters), None) or refuse(node)
    pieces = pattern_pieces(letters, escape)
    text = "".join(_WILDCARDS.get(piece) or re.sub("[%_]", rf"{mark}\g<0>", str(piece)) for piece in pieces)
    side = f"LOWER({value.expr})" if folds else value.expr
    test = f"({side} LIKE {typed_literal(text, pl.String()).expr} ESCAPE '{mark}')"
    return SqlPart(f"(NOT {test})" if node.args.get("negate") else test, pl.Boolean())


def _case(translator: _Translator, node: exp.Expr) -> SqlPart:
    tests, values = case_parts(node)
    (*results, last), dtype = align([translator.part(value) for value in values], node)
    pairs = zip(tests, results, strict=True)
    whens = " ".join(f"WHEN {translator.truth(test).expr} THEN {result.expr}" for test, result in pairs)
    return SqlPart(f"(CASE {whens} ELSE {last.expr} END)", dtype)


def _number(value: int | Decimal) -> SqlPart:
    """Return a number as an integer, or as a decimal if it has a decimal point."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return typed_literal(
            value, next(kind() for kind in INTEGERS if max(value, -value - 1) <= largest(kind()))
        )
    exact = Decimal(value)
    exponent = int(exact.as_tuple().exponent)
    digits = max(len(exact.as_tuple().digits) + max(exponent, 0), -exponent)
    if digits > MAX_DIGITS:
        refuse(value)
    return typed_literal(exact, pl.Decimal(digits, max(-exponent, 0)))


def _moved_node(translator: _Translator, node: exp.Expr) -> SqlPart:
    """Add or subtract an interval, or numbers."""
    sides = [(node.this, node.expression), (node.expression, node.this)]
    for other, side in sides if isinstance(node, exp.Add) else sides[:1]:
        is_constant = side.find(exp.Interval) is not None and side.find(exp.Column) is None
        by = translator.lowering.value(side).const if is_constant else None
        if isinstance(by, Period):
            return _moved(translator.part(other), by if isinstance(node, exp.Add) else -by, node)
    return FUNCTIONS[type(node)](node, translator.part(node.this), translator.part(node.expression))


def _cast_node(translator: _Translator, node: exp.Expr) -> SqlPart:
    dtype = type_of(node.args["to"]) if "to" in node.args else pl.Date()
    return _cast(translator.part(node.this), dtype, node)


_RULES: Final[dict[type[exp.Expr], Callable[[_Translator, exp.Expr], SqlPart]]] = {
    **dict.fromkeys((exp.And, exp.Or), _chain),
    **dict.fromkeys(_COMPARISONS, _compare),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), _like),
    **dict.fromkeys((exp.Case, exp.If), _case),
    **dict.fromkeys((exp.Column, exp.Dot), _Translator.column),
    **dict.fromkeys((exp.Cast, exp.TryCast, exp.Date), _cast_node),
    **dict.fromkeys((exp.Add, exp.Sub), _moved_node),
    exp.Not: _not,
    exp.NullSafeNEQ: _distinct,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
}
