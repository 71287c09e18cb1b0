"""Trees of conditions as Spark's SQL, with the same value under all settings of a session."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NoReturn

import polars as pl

from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.operators import ANY, ONE
from qbeast_core.sql.values import MAX_DIGITS, TIMESTAMP, TIMESTAMPTZ, NoEquivalentError, Value
from qbeast_spark_bridge.spark_types import quoted

_Rule = str | Callable[[Value], str]

# Names of types, except decimals.
_TYPES: Final[dict[pl.DataType, str]] = {
    pl.Int8(): "TINYINT",
    pl.Int16(): "SMALLINT",
    pl.Int32(): "INT",
    pl.Int64(): "BIGINT",
    pl.Float32(): "FLOAT",
    pl.Float64(): "DOUBLE",
    pl.Boolean(): "BOOLEAN",
    pl.String(): "STRING",
    pl.Binary(): "BINARY",
    pl.Date(): "DATE",
    TIMESTAMP: "TIMESTAMP_NTZ",
    TIMESTAMPTZ: "TIMESTAMP",
}
_NAN: Final = "CAST('NaN' AS DOUBLE)"
_LONG: Final = 2**63
# Doubles of at least this size are whole numbers.
_WHOLE: Final = "CAST('4503599627370496' AS DOUBLE)"
# Microseconds of a day.
_DAY: Final = "CAST('86400000000' AS BIGINT)"
_MICROS_OF: Final = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_OF_DAY: Final = {
    **{name: f"{name}({{}})" for name in ("YEAR", "QUARTER", "MONTH", "DAY")},
    **dict.fromkeys(("DOY", "DAYOFYEAR"), "DAYOFYEAR({})"),
    **dict.fromkeys(("DOW", "DAYOFWEEK"), "(DAYOFWEEK({}) - 1)"),
    "WEEK": "WEEKOFYEAR({})",
    "ISODOW": "(WEEKDAY({}) + 1)",
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:;/+-]*", re.ASCII)
_ESCAPES: Final = "!#~^|@+;:?"
_WILDCARDS: Final[dict[object, str]] = {ANY: "%", ONE: "_"}


def spark_sql(condition: Value) -> str:
    """Return a condition as Spark's SQL: a word, a call, or an expression in parentheses.

    >>> from qbeast_core.table.data.expressions import text_filter
    >>> spark_sql(text_filter("x > 5 AND s IS NOT NULL", pl.Schema({"x": pl.Int64, "s": pl.String})))
    "((`x` > CAST('5' AS BIGINT)) AND (NOT (`s` IS NULL)))"
    """
    return "CAST(NULL AS BOOLEAN)" if condition.is_null else _sql(condition)


def _sql(value: Value) -> str:
    try:
        if not value.function:
            return _literal(value)
        rule = _RULES.get(value.function) or _refuse()
        return rule(value) if callable(rule) else rule.format(*map(_sql, value.arguments))
    except NoEquivalentError as error:
        if error.part is None:
            error.part = value.source
        raise


def _refuse() -> NoReturn:
    raise NoEquivalentError


def _type(value: Value) -> str:
    """Return the name of the type of a value; a decimal has no more digits than it needs."""
    if value.dtype.is_decimal() or value.dtype == pl.Int128():
        return "DECIMAL({}, {})".format(*_digits(value))
    return _TYPES.get(value.dtype) or _refuse()


def _digits(value: Value) -> tuple[int, int]:
    """Return the digits of a number, and those after the point."""
    scale = value.dtype.scale if isinstance(value.dtype, pl.Decimal) else 0
    digits = max((len(str(value.bound)) if value.bound else 0) + scale, 1)
    return (digits, scale) if digits <= MAX_DIGITS else _refuse()


def _literal(value: Value) -> str:
    if value.is_const and value.const is not None:
        return _constant(value, value.const)
    if named_columns(value.expr):  # only Polars computes it
        _refuse()
    try:
        constant = pl.select(value.expr.cast(value.dtype)).to_series()
        if constant.null_count():
            return "NULL" if value.is_null else f"CAST(NULL AS {_type(value)})"
        if value.dtype == pl.Date():  # years outside of Python's range, too
            return f"DATE_FROM_UNIX_DATE({constant.to_physical().item()})"
        if value.dtype == TIMESTAMPTZ:
            return f"TIMESTAMP_MICROS(CAST('{constant.to_physical().item()}' AS BIGINT))"
        return _constant(value, constant.item())
    except (ValueError, OverflowError, pl.exceptions.PolarsError):  # it is beyond the type
        _refuse()


def _constant(value: Value, constant: Any) -> str:
    text = str(constant)
    match constant:
        case bool():
            return text.upper()
        case bytes():
            return f"X'{constant.hex()}'"
        case str():  # escapes depend on settings
            return f"'{text}'" if _PLAIN.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"
        case float():
            text = text.replace("nan", "NaN").replace("inf", "Infinity")
        case int() | Decimal() if value.dtype.is_decimal() or value.dtype.is_integer():
            text = f"{Decimal(constant):f}"
        case datetime() if value.dtype == TIMESTAMP:
            pass
        case _:
            _refuse()
    return f"CAST('{text}' AS {_type(value)})"


def _column(value: Value) -> str:
    name, *fields = value.arguments
    if any("${" in field for field in fields):  # Spark would substitute it
        _refuse()
    return ".".join(map(quoted, (name, *fields)))


def _compared(value: Value) -> str:
    left, right = value.arguments
    if left.dtype.is_nested():
        _refuse()
    return f"({_sql(left)} {value.function} {_sql(right)})"


def _joined(value: Value) -> str:
    return f"({f' {value.function.upper()} '.join(map(_sql, value.arguments))})"


def _in(value: Value) -> str:
    subject, *items = value.arguments
    return f"({_sql(subject)} IN ({', '.join(map(_sql, items))}))"


def _like(value: Value) -> str:
    subject, *pieces = value.arguments
    letters = "".join(piece for piece in pieces if isinstance(piece, str))
    # By default, Spark treats a backslash as the escape character.
    mark = next((sign for sign in _ESCAPES if sign not in letters), None) or _refuse()
    pattern = "".join(_WILDCARDS.get(piece) or re.sub("[%_]", rf"{mark}\g<0>", piece) for piece in pieces)
    return f"({_sql(subject)} LIKE {_constant(value, pattern)} ESCAPE '{mark}')"


def _case(value: Value) -> str:
    half = len(value.arguments) // 2
    *results, last = map(_sql, value.arguments[half:])
    tests = map(_sql, value.arguments[:half])
    whens = " ".join(f"WHEN {test} THEN {result}" for test, result in zip(tests, results, strict=True))
    return f"(CASE {whens} ELSE {last} END)"


def _cast(value: Value) -> str:
    """Cast a value; outside of the type it becomes null."""
    (inner,) = value.arguments
    if not inner.function:
        return _literal(value)
    sql, source, dtype = _sql(inner), inner.dtype, value.dtype
    is_exact = source.is_integer() or source.is_decimal()
    if dtype == TIMESTAMPTZ and source == pl.Date():
        return f"TIMESTAMP_MICROS(UNIX_DATE({sql}) * {_DAY})"
    if dtype == pl.Date():
        return _day(inner)
    if dtype == pl.Int128() and not source.is_integer():
        _refuse()
    if dtype.is_integer() and source.is_numeric():
        sql = f"RINT({sql})" if source.is_float() else f"ROUND({sql})" if source.is_decimal() else sql
    elif dtype.is_numeric() and source == pl.Boolean():
        sql = f"CAST({sql} AS INT)"
    elif not (
        (dtype.is_numeric() and (is_exact or (source.is_float() and dtype.is_float())))
        or (dtype == pl.String() and (source.is_integer() or source in (pl.Boolean(), pl.Date())))
        or (dtype == TIMESTAMP and source == pl.Date())
    ):
        _refuse()
    name = _type(value)
    if source.is_numeric() and name == _type(inner):
        return sql
    return f"TRY_CAST({sql} AS {name})"


def _arithmetic(value: Value) -> str:
    left, right = value.arguments
    sql = f"({_sql(left)} {value.function} {_sql(right)})"
    if value.dtype.is_float():
        return sql
    if value.dtype.is_decimal():
        _check_digits(value, _digits(left), _digits(right))
    if value.function == "%":
        sql = f"(CASE WHEN {_sql(right)} != 0 THEN {sql} END)"
    return f"CAST({sql} AS {_type(value)})"


def _check_digits(value: Value, first: tuple[int, int], second: tuple[int, int]) -> None:
    """Raise if Spark would round the result of decimals."""
    digits = first[0] + second[0] + 1
    if value.function != "*":
        digits = max(first[0] - first[1], second[0] - second[1]) + max(first[1], second[1]) + 1
    if digits > MAX_DIGITS:
        _refuse()


def _quotient(value: Value) -> str:
    """Divide integers: null for division by zero; a decimal if the minimum divided by -1 may overflow."""
    left, right = value.arguments
    if max(left.bound, right.bound) > _LONG:
        _refuse()
    name = _type(value)
    dividend, divisor = (f"CAST({_sql(part)} AS BIGINT)" for part in (left, right))
    whens = f"WHEN {divisor} = -1 THEN CAST(- CAST({dividend} AS DECIMAL(19, 0)) AS {name})"
    whens += f" WHEN {divisor} != 0 THEN CAST({dividend} DIV {divisor} AS {name})"
    return f"(CASE {whens} END)"


def _divided(value: Value) -> str:
    """Divide doubles by IEEE 754, also by zero, where Spark raises or returns null."""
    left, right = map(_sql, value.arguments)
    by_zero = f"{left} * POWER({right}, CAST('-1' AS DOUBLE))"
    return f"(CASE WHEN {right} = 0 THEN {by_zero} ELSE {left} / {right} END)"


def _moved_days(value: Value) -> str:
    day, days = value.arguments
    if days.dtype in (pl.Int64(), pl.Int128()):
        _refuse()
    return f"{'DATE_ADD' if value.function == 'days +' else 'DATE_SUB'}({_sql(day)}, {_sql(days)})"


def _day(value: Value) -> str:
    """Return the day of a date or time, in UTC."""
    sql = _sql(value)
    if value.dtype == pl.Date():
        return sql
    if value.dtype == TIMESTAMP:
        return f"CAST({sql} AS DATE)"
    if value.dtype != TIMESTAMPTZ:
        _refuse()
    micros = f"UNIX_MICROS({sql})"
    return f"DATE_FROM_UNIX_DATE(CAST(({micros} - PMOD({micros}, {_DAY})) DIV {_DAY} AS INT))"


def _part(value: Value) -> str:
    name, time = value.arguments
    if name in _OF_DAY:
        return f"CAST({_OF_DAY[name].format(_day(time))} AS BIGINT)"
    if name not in _MICROS_OF or time.dtype not in (TIMESTAMP, TIMESTAMPTZ):
        _refuse()
    if time.dtype == TIMESTAMP:
        return f"CAST({name}({_sql(time)}) AS BIGINT)"
    micros = f"PMOD(UNIX_MICROS({_sql(time)}), {_DAY}) DIV {_MICROS_OF[name]}"
    return f"({micros}{'' if name == 'HOUR' else ' % 60'})"


def _truncated(value: Value) -> str:
    unit, time = value.arguments
    if unit not in _MICROS_OF:
        day = _day(time) if unit == "DAY" else f"TRUNC({_day(time)}, '{unit}')"
        forms = {
            TIMESTAMP: f"CAST({day} AS TIMESTAMP_NTZ)",
            TIMESTAMPTZ: f"TIMESTAMP_MICROS(UNIX_DATE({day}) * {_DAY})",
        }
        return forms.get(time.dtype, day)
    sql = _sql(time)
    if time.dtype == TIMESTAMP:
        kept = list(_MICROS_OF)[: list(_MICROS_OF).index(unit) + 1]
        times = [f"{name}({sql})" if name in kept else "0" for name in _MICROS_OF]
        days = [f"{name}({sql})" for name in ("YEAR", "MONTH", "DAY")]
        return f"MAKE_TIMESTAMP_NTZ({', '.join([*days, *times])})"
    if time.dtype != TIMESTAMPTZ:
        _refuse()
    step = f"CAST('{_MICROS_OF[unit]}' AS BIGINT)"
    return f"TIMESTAMP_MICROS(UNIX_MICROS({sql}) - PMOD(UNIX_MICROS({sql}), {step}))"


def _moved(value: Value) -> str:
    """Move a time by calendar months, then by microseconds; in UTC."""
    time, months, micros = value.arguments
    if time.dtype == TIMESTAMP:
        seconds = f"INTERVAL '{micros // 1_000_000}' SECOND + INTERVAL '0.{micros % 1_000_000:06}' SECOND"
        return f"({_sql(time)} + INTERVAL '{months}' MONTH + {seconds})"
    if time.dtype != TIMESTAMPTZ:
        _refuse()
    start = f"UNIX_MICROS({_sql(time)})"
    if months:
        start = f"(UNIX_DATE(ADD_MONTHS({_day(time)}, {months})) * {_DAY} + PMOD({start}, {_DAY}))"
    return f"TIMESTAMP_MICROS({start} + CAST('{micros}' AS BIGINT))"


def _rounded(value: Value) -> str:
    """Print FLOOR, CEIL or ROUND, which return a float for floats of any size."""
    number, *places = value.arguments
    sql, name = _sql(number), value.function.upper()
    if number.dtype.is_decimal():
        return f"{name}({', '.join([sql, *(str(value.dtype.scale) for _ in places)])})"  # type: ignore[attr-defined]
    if not number.dtype.is_float() or any(place.const for place in places):
        _refuse()
    sql = f"CAST({sql} AS DOUBLE)"
    return f"(CASE WHEN ABS({sql}) < {_WHOLE} THEN CAST({name}({sql}) AS DOUBLE) ELSE {sql} END)"


def _sign(value: Value) -> str:
    (number,) = value.arguments
    sql = _sql(number)
    is_number = f" AND {sql} != {_NAN}" if number.dtype.is_float() else ""
    whens = f"WHEN {sql} > 0{is_number} THEN 1 WHEN {sql} < 0 THEN -1 WHEN {sql} IS NOT NULL THEN 0"
    return f"CAST((CASE {whens} END) AS TINYINT)"


def _absolute(value: Value) -> str:
    (number,) = value.arguments
    sql = _sql(number)
    if not number.dtype.is_integer():
        return f"ABS({sql})"
    wide = f"CAST({sql} AS {_type(value)})"  # its minimum has no absolute value
    return f"(CASE WHEN {sql} < 0 THEN CAST(- {wide} AS {_type(value)}) ELSE {wide} END)"


def _extreme(value: Value) -> str:
    texts = [_sql(argument) for argument in value.arguments]
    return texts[0] if len(texts) == 1 else f"{value.function.upper()}({', '.join(texts)})"


def _trimmed(value: Value) -> str:
    position, string, letters = value.arguments
    return f"TRIM({position} {_sql(letters)} FROM {_sql(string)})"


def _counted(value: Value) -> str:
    """Print a function of a text and counts, which are an INT."""
    string, *counts = value.arguments
    texts = [_sql(string), *(str(min(count.const, 2**31 - 1)) for count in counts)]
    return f"{value.function.upper()}({', '.join(texts)})"


def _concatenated(value: Value) -> str:
    """Print CONCAT, which skips nulls, or ``||``, which is null for them."""
    form = "COALESCE({}, '')" if value.function == "concat" else "{}"
    return f"CONCAT({', '.join(form.format(_sql(part)) for part in value.arguments)})"


def _replaced(value: Value) -> str:
    texts = [_sql(argument) for argument in value.arguments]
    return f"REPLACE({', '.join(texts)})" if len(texts) == 3 else _refuse()


# Functions with the same results in Spark, given the right types: a text with places for arguments, or a function.
_RULES: Final[dict[str, _Rule]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _compared),
    **dict.fromkeys(("and", "or"), _joined),
    **dict.fromkeys(("+", "-", "*", "%"), _arithmetic),
    **dict.fromkeys(("days +", "days -"), _moved_days),
    **dict.fromkeys(("floor", "ceil", "round"), _rounded),
    **dict.fromkeys(("coalesce", "greatest", "least"), _extreme),
    **dict.fromkeys(("left", "right", "substring"), _counted),
    "/": _divided,
    "//": _quotient,
    "abs": _absolute,
    "case": _case,
    "cast": _cast,
    "column": _column,
    **dict.fromkeys(("concat", "||"), _concatenated),
    "contains": "CONTAINS({}, {})",
    "days between": "CAST(DATEDIFF({}, {}) AS BIGINT)",
    "endswith": "ENDSWITH({}, {})",
    "in": _in,
    "isnan": f"({{}} = {_NAN})",
    "length": "CAST(CHAR_LENGTH({}) AS BIGINT)",
    "like": _like,
    "lower": "LOWER({})",
    "move": _moved,
    "neg": "(- {})",
    "not": "(NOT {})",
    "null": "({} IS NULL)",
    "part": _part,
    "replace": _replaced,
    "sign": _sign,
    "sqrt": "SQRT({})",
    "startswith": "STARTSWITH({}, {})",
    "strposition": "CAST(INSTR({}, {}) AS BIGINT)",
    "trim": _trimmed,
    "truncate": _truncated,
    "upper": "UPPER({})",
}
