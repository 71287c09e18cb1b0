"""Typed values: nodes of the tree of a condition, with rules for common types and casts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final, NoReturn

import polars as pl

MAX_DIGITS: Final = 38
# Characters of a number, and of the text of an interval.
MAX_NUMBER: Final = 1_000
# No text or list is longer; larger positions and counts have the same meaning.
MAX_LENGTH: Final = (1 << 31) - 1
INTEGERS: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128)
FRACTIONS: Final = (pl.Float32, pl.Float64, pl.Decimal)
UNSIGNED: Final = (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
TIMESTAMP: Final = pl.Datetime("us")
TIMESTAMPTZ: Final = pl.Datetime("us", "UTC")
_BITS: Final[dict[type[pl.DataType], int]] = {kind: 8 << place for place, kind in enumerate(INTEGERS)}
# Names of types in SQL, if they differ from those of Polars.
_NAMES: Final[dict[type[pl.DataType], str]] = {
    **dict(zip(INTEGERS, ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), strict=True)),
    pl.String: "VARCHAR",
    pl.Float64: "DOUBLE",
    pl.Float32: "FLOAT",
    pl.Duration: "INTERVAL",
}
_TIME: Final = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)?"
    r"\s*(Z|UTC|[+-]\d{2}(?::?\d{2})?)?",
    re.ASCII,
)
_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

# Larger numbers round to infinity in single precision.
_ABOVE_SINGLE: Final = (2 - 2**-24) * 2.0**127
# The constant of a value that depends on the row.
MISSING: Final = object()


class InvalidSqlError(Exception):
    """Reason why a text is not supported; callers convert it to a public error."""


def invalid_sql(why: str, cause: BaseException | None = None) -> NoReturn:
    """Raise `InvalidSqlError`."""
    raise InvalidSqlError(why) from cause


class NoEquivalentError(Exception):
    """Engines evaluate a part of a condition differently; `part` is its parsed text or its expression."""

    def __init__(self, part: Any = None) -> None:
        self.part = part
        super().__init__(part)


class UnknownColumnError(Exception):
    """A text names a column that does not exist; `name` is the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no such column: {name!r}")


@dataclass(frozen=True, slots=True)
class Period:
    """An interval: calendar months and an exact duration."""

    months: int
    duration: timedelta

    def __neg__(self) -> Period:
        return Period(-self.months, -self.duration)


@dataclass(slots=True, eq=False)  # frozen ones take three times as long to make
class Value:
    """A node of the tree of an expression: its type, its expression in Polars, and its parts for other engines.

    `const` is the Python value of a literal: None, bool, int, float, Decimal, str or `Period`. `bound` is the largest
    magnitude of an integer, and of the digits of a decimal before the point; it decides the width of arithmetic.
    """

    expr: pl.Expr
    dtype: pl.DataType
    const: Any = MISSING
    bound: int = 0
    # What it computes of its arguments, of their types. Literals have none, and what only Polars computes.
    function: str = ""
    # Nodes, and options of the function.
    arguments: tuple[Any, ...] = ()
    # The part of the condition, for messages.
    source: Any = None

    @property
    def is_null(self) -> bool:
        """Whether it is the literal NULL."""
        return isinstance(self.dtype, pl.Null)

    @property
    def is_const(self) -> bool:
        """Whether it is a literal."""
        return self.const is not MISSING

    @property
    def is_text_const(self) -> bool:
        """Whether it is a literal text, which takes the type of the other operand."""
        return isinstance(self.const, str)

    @property
    def is_number_const(self) -> bool:
        """Whether it is a literal number without an exponent."""
        return isinstance(self.const, (int, Decimal)) and not isinstance(self.const, bool)


NULL: Final = Value(pl.lit(None), pl.Null(), None)


def integer(number: int) -> Value:
    """Return an integer literal, of the smallest type of 32, 64 or 128 bits that holds it."""
    kind = next((kind for kind in (pl.Int32, pl.Int64, pl.Int128) if abs(number) <= largest(kind())), None)
    if kind is None:
        return _decimal(Decimal(number))
    expr = pl.lit(number) if abs(number) <= largest(pl.Int64()) else pl.lit(number, dtype=pl.Int128)
    return Value(expr, kind(), number, abs(number))


def _decimal(number: Decimal) -> Value:
    """Return a decimal literal."""
    scale = max(-int(number.as_tuple().exponent), 0)
    if scale > MAX_DIGITS or len(number.as_tuple().digits) > MAX_DIGITS or number.adjusted() >= MAX_DIGITS:
        invalid_sql(f"{str(number)[:60]} has more than {MAX_DIGITS} digits; write it with an exponent")
    dtype = pl.Decimal(MAX_DIGITS, scale)
    return Value(pl.lit(number, dtype=dtype), dtype, number, int(abs(number)))


def number(value: Decimal | float) -> Value:
    """Return a literal of a Python number."""
    if isinstance(value, Decimal):
        return _decimal(value)
    return integer(value) if isinstance(value, int) else Value(pl.lit(value), pl.Float64(), value)


def text(value: str) -> Value:
    """Return a text literal."""
    return Value(pl.lit(value), pl.String(), value)


def boolean(expr: pl.Expr, function: str = "", *arguments: object) -> Value:
    """Return a condition."""
    return Value(expr, pl.Boolean(), function=function, arguments=arguments)


def truth(value: object) -> Value:
    """Return a constant condition, true, false or null."""
    return Value(pl.lit(value, dtype=pl.Boolean), pl.Boolean(), value)


def of_type(expr: pl.Expr, dtype: pl.DataType, function: str = "", *arguments: object) -> Value:
    """Return a value of a type; unsigned integers and categories are cast to types of SQL."""
    bound = 0
    if isinstance(dtype, UNSIGNED):
        is_wide = isinstance(dtype, pl.UInt64)
        dtype, bound = pl.Int128() if is_wide else pl.Int64(), 1 << 64 if is_wide else 1 << 32
        expr = expr.cast(dtype)
    elif isinstance(dtype, (pl.Categorical, pl.Enum)):
        dtype = pl.String()
        expr = expr.cast(dtype)
    elif isinstance(dtype, INTEGERS):
        bound = largest(dtype) + 1
    elif isinstance(dtype, pl.Decimal):
        bound = 10 ** ((dtype.precision or MAX_DIGITS) - dtype.scale) - 1
    return Value(expr, dtype, bound=bound, function=function, arguments=arguments)


def largest(dtype: pl.DataType) -> int:
    """Return the largest number of an integer type."""
    return (1 << (_BITS[type(dtype)] - 1)) - 1


def adapted(value: Value, dtype: pl.DataType) -> Value:
    """Parse a literal text as a value of another type: ``ts >= '2026-11-05'``."""
    if not value.is_text_const or isinstance(dtype, (pl.String, pl.Null)):
        return value
    literal = _text_literal(value.const, dtype)
    if literal is None:
        invalid_sql(f"{value.const[:60]!r} is not a value of type {shown(dtype)}")
    return literal


def _text_literal(string: str, dtype: pl.DataType) -> Value | None:
    """Parse a text as a literal of a type; None if it is invalid."""
    if isinstance(dtype, pl.Boolean) and string.lower() in _BOOLEANS:
        return truth(_BOOLEANS[string.lower()])
    if dtype.is_numeric():
        return _number_literal(string)
    moment = _moment(string)
    if isinstance(dtype, pl.Date) and moment is not None and ":" not in string:
        return date_literal(moment.date())
    if isinstance(dtype, pl.Datetime) and moment is not None:
        return time_literal(moment, zoned=dtype.time_zone is not None)
    return None


def _number_literal(string: str) -> Value | None:
    try:
        value = Decimal(string.strip()) if len(string) <= MAX_NUMBER else Decimal("")
    except InvalidOperation:
        return None
    if not value.is_finite() or "e" in string.lower():
        return number(float(value))
    return integer(int(value)) if value == value.to_integral_value() else _decimal(value)


def _moment(string: str) -> datetime | None:
    """Parse a date or a time; without a zone it is in UTC."""
    match = _TIME.fullmatch(string.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, digits, zone = match.groups()
    micros = int((digits or "0").ljust(6, "0")[:6])
    try:
        midnight = datetime(int(year), int(month), int(day), tzinfo=UTC)
        time = timedelta(
            hours=int(hour or 0), minutes=int(minute or 0), seconds=int(second or 0), microseconds=micros
        )
        return midnight + time - _offset(zone) if time < timedelta(days=1) else None
    except (ValueError, OverflowError):
        return None


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone in ("Z", "UTC"):
        return timedelta()
    sign, digits = -1 if zone[0] == "-" else 1, zone[1:].replace(":", "").ljust(4, "0")
    return sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))


def common_type(values: Sequence[Value], what: str) -> pl.DataType:
    """Return the type to which several values are cast."""
    typed = [value for value in values if not value.is_null and not value.is_text_const]
    if not typed:
        return pl.String() if any(value.is_text_const for value in values) else pl.Null()
    kinds = [value.dtype for value in typed]
    if all(isinstance(kind, INTEGERS) for kind in kinds):
        return max(kinds, key=lambda kind: _BITS[type(kind)])
    if all(kind.is_numeric() for kind in kinds):
        return _common_number(typed)
    if all(isinstance(kind, (pl.Date, pl.Datetime)) for kind in kinds):
        zoned = any(isinstance(kind, pl.Datetime) and kind.time_zone for kind in kinds)
        times = any(isinstance(kind, pl.Datetime) for kind in kinds)
        return (TIMESTAMPTZ if zoned else TIMESTAMP) if times else pl.Date()
    if len(set(kinds)) > 1:
        names = " and ".join(sorted({shown(kind) for kind in kinds}))
        is_time = any(isinstance(kind, (pl.Date, pl.Datetime)) for kind in kinds)
        cure = "write a date or a time as a text, such as '2026-10-03'" if is_time else "cast one of them"
        invalid_sql(f"{what} combines {names}; {cure}")
    return kinds[0]


def _common_number(values: Sequence[Value]) -> pl.DataType:
    kinds = [value.dtype for value in values]
    if any(isinstance(kind, pl.Float64) for kind in kinds):
        return pl.Float64()
    if any(isinstance(kind, pl.Float32) for kind in kinds):
        exact = all(isinstance(value.dtype, pl.Float32) or value.is_const for value in values)
        return pl.Float32() if exact else pl.Float64()
    return pl.Decimal(MAX_DIGITS, max(scale_of(kind) for kind in kinds))


def scale_of(dtype: pl.DataType) -> int:
    """Return the number of digits after the decimal point."""
    return dtype.scale or 0 if isinstance(dtype, pl.Decimal) else 0


def as_type(value: Value, dtype: pl.DataType) -> Value:
    """Return a value of a common type; see `common_type`."""
    if value.is_null:
        return Value(pl.lit(None, dtype=dtype), dtype, None)
    value = adapted(value, dtype)
    if value.is_number_const:
        convert = float if dtype.is_float() else Decimal if isinstance(dtype, pl.Decimal) else int
        return Value(pl.lit(convert(value.const), dtype=dtype), dtype, convert(value.const), value.bound)
    if isinstance(dtype, pl.Datetime):
        return as_datetime(value, dtype)
    return value if value.dtype == dtype else converted(value, dtype, value.expr.cast(dtype))


def converted(value: Value, dtype: pl.DataType, expr: pl.Expr) -> Value:
    """Return a value in another type, which fits it; Polars may convert it itself."""
    if value.is_const:
        return Value(expr, dtype, value.const, value.bound)
    return Value(expr, dtype, value.const, value.bound, "cast", (value,), value.source)


def as_datetime(value: Value, dtype: pl.Datetime) -> Value:
    """Return a date or time as a time; a time without a zone is in UTC."""
    source = value.dtype
    if isinstance(source, pl.Date):
        expr = value.expr.cast(pl.Datetime("us"), strict=False)  # Polars panics if days are out of range
        expr = expr if dtype.time_zone is None else expr.dt.replace_time_zone(dtype.time_zone)
    elif not isinstance(source, pl.Datetime) or source.time_zone == dtype.time_zone:
        return value
    elif source.time_zone is None:
        expr = value.expr.dt.replace_time_zone("UTC")
    else:
        expr = in_utc(value)
        expr = expr if dtype.time_zone is not None else expr.dt.replace_time_zone(None)
    return converted(value, dtype, expr)


def in_utc(value: Value) -> pl.Expr:
    """Return a date or time, with its zone changed to UTC."""
    zone = value.dtype.time_zone if isinstance(value.dtype, pl.Datetime) else None
    return value.expr if zone in (None, "UTC") else value.expr.dt.convert_time_zone("UTC")


def unified(values: Sequence[Value], what: str) -> tuple[list[Value], pl.DataType, int]:
    """Cast values to their common type; return them, the type and the bound of integers."""
    dtype = common_type(values, what)
    bound = max((value.bound for value in values), default=0)
    return [as_type(value, dtype) for value in values], dtype, bound


def inner_type(dtype: pl.List) -> pl.DataType:
    """Return the type of a list's elements."""
    return pl.Series(dtype=dtype).explode().dtype


def shown(dtype: pl.DataType) -> str:
    """Return the name of a type as SQL writes it, for messages."""
    if isinstance(dtype, pl.Datetime):
        return "TIMESTAMP" if dtype.time_zone is None else "TIMESTAMPTZ"
    return _NAMES.get(type(dtype), str(dtype).upper())


def date_literal(value: date) -> Value:
    """Return a date literal."""
    return Value(pl.lit(value), pl.Date())


def time_literal(value: datetime, *, zoned: bool = True) -> Value:
    """Return a literal of an instant, or of the same time in UTC without a zone."""
    dtype = TIMESTAMPTZ if zoned else TIMESTAMP
    return Value(pl.lit(value if zoned else value.replace(tzinfo=None), dtype=dtype), dtype)


def cast(value: Value, dtype: pl.DataType, *, strict: bool) -> Value:
    """Lower a cast; values that do not fit the type fail at evaluation if `strict`, else they become null."""
    if value.is_null:
        return of_type(pl.lit(None, dtype=dtype), dtype)
    if value.is_text_const and not isinstance(dtype, pl.String):
        return _literal(value.const, dtype, strict=strict)
    if value.dtype == dtype and not value.is_number_const:
        return value
    expr = _cast_expr(value, dtype, strict=strict)
    if expr is None:
        invalid_sql(f"a cast of {shown(value.dtype)} to {shown(dtype)} is not supported")
    return of_type(expr, dtype, "cast", value)


def _literal(string: str, dtype: pl.DataType, *, strict: bool) -> Value:
    literal = _text_literal(string, dtype)
    if literal is not None and literal.dtype != dtype:
        return cast(literal, dtype, strict=strict)
    if literal is None and strict:
        invalid_sql(f"{string[:60]!r} is not a value of type {shown(dtype)}")
    return of_type(pl.lit(None, dtype=dtype), dtype) if literal is None else literal


def _cast_expr(value: Value, dtype: pl.DataType, *, strict: bool) -> pl.Expr | None:
    if value.dtype.is_numeric() or isinstance(value.dtype, pl.Boolean):
        return _of_number(value, dtype, strict=strict)
    if isinstance(value.dtype, pl.String):
        number = dtype.is_numeric() and not isinstance(dtype, pl.Decimal)
        if isinstance(dtype, pl.Date):
            return value.expr.str.to_date("%Y-%m-%d", strict=strict)
        return value.expr.cast(dtype, strict=strict) if number or isinstance(dtype, pl.String) else None
    if isinstance(value.dtype, (pl.Date, pl.Datetime)):
        return _of_time(value, dtype)
    return None


def _of_number(value: Value, dtype: pl.DataType, *, strict: bool) -> pl.Expr | None:
    expr, source = value.expr, value.dtype
    if isinstance(dtype, pl.Boolean):
        return expr != 0
    if isinstance(dtype, pl.String):
        return None if source.is_float() else expr.cast(pl.String)
    if isinstance(dtype, INTEGERS):
        if source.is_float():
            expr = expr.round(0, mode="half_to_even")
        elif isinstance(source, pl.Decimal):
            expr = expr.round(0, mode="half_away_from_zero")
        return expr.cast(dtype, strict=strict)
    if isinstance(dtype, pl.Decimal):
        return _as_decimal(value, dtype, strict=strict)
    if isinstance(dtype, pl.Float32) and isinstance(source, pl.Float64):
        # Polars returns infinity for a large number.
        large = pl.when(expr.is_finite() & (expr.abs() >= _ABOVE_SINGLE)).then(expr)
        expr = pl.coalesce(large.cast(pl.Int64), expr) if strict else pl.when(large.is_null()).then(expr)
    return expr.cast(dtype, strict=strict) if dtype.is_float() else None


def _as_decimal(value: Value, dtype: pl.Decimal, *, strict: bool) -> pl.Expr | None:
    if value.is_number_const:
        with localcontext(prec=2 * MAX_DIGITS):
            rounded = Decimal(value.const).quantize(Decimal(1).scaleb(-scale_of(dtype)), ROUND_HALF_UP)
        fits = len(rounded.as_tuple().digits) <= (dtype.precision or MAX_DIGITS)
        if strict and not fits:
            invalid_sql(f"{str(value.const)[:60]} does not fit {dtype}")
        return pl.lit(rounded if fits else None, dtype=dtype)
    if value.dtype.is_float():
        return None
    expr = value.expr.cast(pl.Int8) if isinstance(value.dtype, pl.Boolean) else value.expr
    return half_up(expr, value.dtype, dtype).cast(dtype, strict=strict)


def _of_time(value: Value, dtype: pl.DataType) -> pl.Expr | None:
    if isinstance(dtype, pl.Datetime):
        return as_datetime(value, dtype).expr
    if isinstance(dtype, pl.Date):
        return in_utc(value).cast(pl.Date)
    is_text_of_day = isinstance(dtype, pl.String) and isinstance(value.dtype, pl.Date)
    return value.expr.cast(pl.String) if is_text_of_day else None


def as_text(value: Value) -> Value:
    """Return a value as text, for ``||`` and CONCAT."""
    return cast(value if not value.is_number_const else text(str(value.const)), pl.String(), strict=True)


def half_up(expr: pl.Expr, dtype: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Return a number with the digits of a type. Halves are rounded away from zero; a cast of Polars rounds to even.

    >>> value = pl.lit("1.005").cast(pl.Decimal(10, 3))
    >>> pl.select(half_up(value, pl.Decimal(10, 3), pl.Decimal(5, 2)).cast(pl.Decimal(5, 2))).item()
    Decimal('1.01')
    """
    if not isinstance(wanted, pl.Decimal):
        return expr
    loses_digits = dtype.is_float() or (isinstance(dtype, pl.Decimal) and dtype.scale > wanted.scale)
    return expr.round(wanted.scale, mode="half_away_from_zero") if loses_digits else expr
