"""Comparisons, arithmetic and patterns of SQL on typed values."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import localcontext
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias

import polars as pl

from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.values import (
    INTEGERS,
    MAX_DIGITS,
    MISSING,
    NULL,
    TIMESTAMP,
    Period,
    Value,
    adapted,
    as_datetime,
    as_type,
    boolean,
    common_type,
    converted,
    integer,
    invalid_sql,
    largest,
    number,
    scale_of,
    shown,
    truth,
    unified,
)
from qbeast_core.support.text import OUT_OF_RANGE

Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
Arithmetic: TypeAlias = Literal["+", "-", "*", "/", "//", "%", "^"]

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_APPLY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": operator.pow,
}
# The last day is in the year 262,071, the first in the year -258,131. Beyond, functions of Polars on times panic.
_MAX_DAY: Final = 95_000_000
_DAY_MICROS: Final = 86_400_000_000
# Wildcards of LIKE: any texts, and one character.
ANY: Final = object()
ONE: Final = object()
_ORDERED: Final = (pl.String, pl.Boolean, pl.Date, pl.Datetime, pl.Duration, pl.Binary, pl.Time)


def compare(op: Comparison, left: Value, right: Value) -> Value:
    """Lower a comparison; it is null if an operand is null."""
    left, right = adapted(left, right.dtype), adapted(right, left.dtype)
    if left.const is None or right.const is None:
        return truth(None)
    if left.is_number_const and right.is_number_const:
        return truth(bool(_COMPARE[op](Fraction(left.const), Fraction(right.const))))
    exact = _against_integer(op, left, right)
    if exact is not None:
        return exact
    first, second = _aligned(left, right)
    # Polars rejects some constants on the left.
    if first.function != "column" and not named_columns(first.expr):
        first, second, op = second, first, MIRRORED.get(op, op)
    return boolean(_COMPARE[op](first.expr, second.expr), op, first, second)


def same(left: Value, right: Value) -> Value:
    """Lower ``IS NOT DISTINCT FROM``; it is never null."""
    left, right = adapted(left, right.dtype), adapted(right, left.dtype)
    if left.is_null or right.is_null:
        other = right if left.is_null else left
        return boolean(other.expr.is_null(), "null", other)
    if right.is_number_const and isinstance(left.dtype, INTEGERS):
        left, right = right, left
    if left.is_number_const and isinstance(right.dtype, INTEGERS):
        if left.const != int(left.const) or abs(left.const) > largest(right.dtype):
            return truth(right.const == left.const)
        literal = _literal(int(left.const), right.dtype)
        return boolean(right.expr.eq_missing(literal.expr), "<=>", right, literal)
    first, second = _aligned(left, right)
    # Polars rejects some constants on the left.
    if first.function != "column" and not named_columns(first.expr):
        first, second = second, first
    return boolean(first.expr.eq_missing(second.expr), "<=>", first, second)


def between(value: Value, low: Value, high: Value) -> Value:
    """Lower BETWEEN: with a float column all operands are floats, as in DuckDB, where they have one type."""
    operands = [value, low, high]
    if _compares_floats(operands):
        dtype = common_type(operands, "BETWEEN")
        operands = [_as_float(each, dtype) for each in operands]
    value, low, high = operands
    above, below = compare(">=", value, low), compare("<=", value, high)
    return boolean(above.expr & below.expr, "and", above, below)


def _compares_floats(operands: Sequence[Value]) -> bool:
    are_numbers = all(each.dtype.is_numeric() for each in operands)
    return are_numbers and any(each.dtype.is_float() and not each.is_const for each in operands)


def is_in(value: Value, items: Sequence[Value]) -> Value:
    """Lower an IN list: literals of the operand's type become one `is_in`, which can skip files.

    With a float among them all are compared as floats, as in DuckDB, where a list has one type.
    """
    if value.dtype.is_numeric() and any(item.dtype.is_float() for item in items):
        value = _as_float(value, pl.Float64())
    plain: list[Value] = []
    others: list[Value] = []
    for item in (adapted(item, value.dtype) for item in items):
        is_plain = isinstance(value.dtype, pl.String) and item.is_text_const
        if isinstance(value.dtype, INTEGERS) and isinstance(item.const, int) and not value.is_const:
            is_plain = abs(item.const) <= largest(value.dtype)
        if is_plain:
            plain.append(item)
        else:
            others.append(compare("=", value, item))
    if plain:
        constants = pl.Series([item.const for item in plain], dtype=value.dtype)
        others.insert(0, boolean(value.expr.is_in(constants.implode()), "in", value, *plain))
    return boolean(balanced([each.expr for each in others], operator.or_), "or", *_with_lists(value, others))


def _with_lists(value: Value, tests: Sequence[Value]) -> list[Value]:
    """Join comparisons of a value in one type with constants to one list: engines look it up faster."""
    lists: dict[pl.DataType, list[Value]] = {}
    others: list[Value] = []
    for test in tests:
        subject, *items = test.arguments or (value,)
        is_own = subject is value or subject.arguments == (value,)
        if test.function == "=" and is_own and not items[0].function:
            lists.setdefault(subject.dtype, [subject]).extend(items)
        else:
            others.append(test)
    return [*others, *(boolean(tests[0].expr, "in", *arguments) for arguments in lists.values())]


def balanced(parts: Sequence[pl.Expr], join: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> pl.Expr:
    """Join expressions to a balanced tree, because Polars recurses over its depth."""
    row = list(parts)
    while len(row) > 1:
        pairs = [join(row[index], row[index + 1]) for index in range(0, len(row) - 1, 2)]
        row = pairs + row[len(pairs) * 2 :]
    return row[0]


def _against_integer(op: Comparison, left: Value, right: Value) -> Value | None:
    """Compare an integer with a number exactly; round literals with a fraction to an equivalent integer."""
    if left.is_number_const and isinstance(right.dtype, INTEGERS):
        return _against_integer(MIRRORED.get(op, op), right, left)
    if not (isinstance(left.dtype, INTEGERS) and right.is_number_const):
        return None
    literal = right.const
    if literal != int(literal):
        if op in ("=", "<>"):  # no integer equals the literal; null stays null
            op = "<>" if op == "=" else "="
            return boolean(_COMPARE[op](left.expr, left.expr), op, left, left)
        literal = math.floor(literal) if op in ("<=", ">") else math.ceil(literal)
    if abs(literal) <= largest(left.dtype):
        right = _literal(int(literal), left.dtype)
        return boolean(_COMPARE[op](left.expr, right.expr), op, left, right)
    wide = min(max(int(literal), -largest(pl.Int128())), largest(pl.Int128()))
    expr = _COMPARE[op](left.expr.cast(pl.Int128), pl.lit(wide, dtype=pl.Int128))
    return boolean(expr, op, left, integer(wide))


def _literal(number: int, dtype: pl.DataType) -> Value:
    return Value(pl.lit(number), dtype, number, abs(number))


MIRRORED: Final[dict[Comparison, Comparison]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _aligned(left: Value, right: Value) -> tuple[Value, Value]:
    """Return both operands of a comparison in types that Polars compares by value."""
    dtype = common_type((left, right), "a comparison")
    if dtype.is_float():
        is_single = pl.Float32() in (left.dtype, right.dtype)
        return _as_float(left, dtype, is_typed=is_single), _as_float(right, dtype, is_typed=is_single)
    if isinstance(dtype, INTEGERS):
        return left, right
    if dtype.is_numeric():
        return converted(left, dtype, left.expr), converted(right, dtype, right.expr)
    if not isinstance(dtype, _ORDERED):
        invalid_sql(f"values of type {shown(dtype)} cannot be compared")
    if isinstance(left.const, Period) or isinstance(right.const, Period):
        return _duration(left), _duration(right)
    return _as_ordered(left, dtype), _as_ordered(right, dtype)


def _as_float(value: Value, dtype: pl.DataType, *, is_typed: bool = False) -> Value:
    """Return a value as a float; Polars would round a literal without a type to the column's type."""
    if value.is_number_const or isinstance(value.const, float):
        const = float(value.const)
        return Value(pl.lit(const, dtype=dtype if is_typed else None), dtype, const)
    return value if value.dtype.is_float() else converted(value, dtype, value.expr.cast(dtype))


def _as_ordered(value: Value, dtype: pl.DataType) -> Value:
    # Polars casts a date to a time itself; an explicit cast would hide the column from the index.
    is_cast = isinstance(value.dtype, pl.Date) and isinstance(dtype, pl.Datetime) and dtype.time_zone is None
    return converted(value, dtype, value.expr) if is_cast else as_type(value, dtype)


def _duration(value: Value) -> Value:
    if not isinstance(value.const, Period):
        return value
    if value.const.months:
        invalid_sql("an interval of months or years has no exact length; compare with days")
    return Value(pl.lit(value.const.duration), value.dtype)


def arithmetic(op: Arithmetic, left: Value, right: Value) -> Value:
    """Lower arithmetic: integers in a type that holds all results, decimals exactly, other numbers as DOUBLE."""
    if left.is_null or right.is_null:
        return NULL
    shifted = _temporal(op, left, right)
    if shifted is not None:
        return shifted
    for operand in (left, right):
        if not operand.dtype.is_numeric():
            invalid_sql(f"{op!r} is not defined for {shown(operand.dtype)}")
    if left.is_number_const and right.is_number_const and op in ("+", "-", "*"):
        return _folded(op, left, right)
    if op in ("/", "^") or left.dtype.is_float() or right.dtype.is_float():
        return _floating(op, left, right)
    if isinstance(left.dtype, pl.Decimal) or isinstance(right.dtype, pl.Decimal):
        return _decimals(op, left, right)
    return _integers(op, left, right)


def negated(value: Value) -> Value:
    """Lower a minus sign."""
    if value.is_null:
        return value
    if isinstance(value.const, Period):
        return Value(value.expr, value.dtype, -value.const)
    if value.is_number_const or isinstance(value.const, float):
        return number(-value.const)
    if isinstance(value.dtype, INTEGERS):
        return arithmetic("-", integer(0), value)
    if not value.dtype.is_numeric() and not isinstance(value.dtype, pl.Duration):
        invalid_sql(f"'-' is not defined for {shown(value.dtype)}")
    return Value(-value.expr, value.dtype, bound=value.bound, function="neg", arguments=(value,))


def _folded(op: Arithmetic, left: Value, right: Value) -> Value:
    """Compute a constant exactly."""
    with localcontext(prec=2 * MAX_DIGITS + 2):
        return number(_APPLY[op](left.const, right.const))


def _floating(op: Arithmetic, left: Value, right: Value) -> Value:
    if op in ("%", "//"):
        invalid_sql(f"{op!r} is defined for integers and decimals only; cast the operands")
    first, second = as_type(left, pl.Float64()), as_type(right, pl.Float64())
    expr = _APPLY[op](first.expr, second.expr)
    return Value(expr, pl.Float64(), function=op, arguments=(first, second))


def _decimals(op: Arithmetic, left: Value, right: Value) -> Value:
    scales = scale_of(left.dtype), scale_of(right.dtype)
    scale = sum(scales) if op == "*" else max(scales)
    if op == "//":
        invalid_sql("'//' is defined for integers only; cast the operands")
    if scale > MAX_DIGITS:
        invalid_sql(f"the product has more than {MAX_DIGITS} digits after the point; cast an operand")
    dtype = pl.Decimal(MAX_DIGITS, scale)
    first, second = as_type(left, dtype).expr, as_type(right, dtype).expr
    bounds = {"*": (left.bound + 1) * (right.bound + 1) - 1, "%": right.bound}
    expr = _truncated_remainder(first, second) if op == "%" else _APPLY[op](first, second)
    exact = [
        converted(side, pl.Decimal(MAX_DIGITS, scale_of(side.dtype)), side.expr) for side in (left, right)
    ]
    return Value(expr, dtype, MISSING, bounds.get(op, left.bound + right.bound + 1), op, tuple(exact))


def _integers(op: Arithmetic, left: Value, right: Value) -> Value:
    """Compute in 64 bits, or in 128 if the result may need them, so results never overflow."""
    bounds = {"*": left.bound * right.bound, "//": left.bound, "%": right.bound}
    bound = bounds.get(op, left.bound + right.bound)
    max_bound = max(left.bound, right.bound, bound)
    dtype = next((kind() for kind in (pl.Int64, pl.Int128) if max_bound <= largest(kind())), None)
    if dtype is None:
        invalid_sql(f"the result of {op!r} may need more than 128 bits; cast an operand to DOUBLE")
    operands = as_type(left, dtype), as_type(right, dtype)
    first, second = (operand.expr for operand in operands)
    if op == "%":
        expr = _truncated_remainder(first, second)
    elif op == "//":
        exact = (first % second) == 0
        expr = first // second + (~exact & ((first < 0) != (second < 0))).cast(dtype)  # Polars rounds down
    else:
        expr = _APPLY[op](first, second)
    return Value(expr, dtype, MISSING, bound, op, operands)


def _truncated_remainder(first: pl.Expr, second: pl.Expr) -> pl.Expr:
    """Return the remainder with the sign of the dividend; Polars uses the sign of the divisor."""
    remainder = first.abs() % pl.when(second != 0).then(second.abs())  # null; Polars raises for decimals
    opposite = remainder - remainder - remainder  # Polars does not negate 128 bits
    return pl.when(first < 0).then(opposite).otherwise(remainder)


def _temporal(op: Arithmetic, left: Value, right: Value) -> Value | None:
    """Shift a date or time by an interval or days, or subtract two of them."""
    if op == "+" and not isinstance(left.dtype, (pl.Date, pl.Datetime)):
        left, right = right, left
    if not isinstance(left.dtype, (pl.Date, pl.Datetime)) or op not in ("+", "-"):
        return None
    if isinstance(right.const, Period):
        return _shifted(left, right.const if op == "+" else -right.const)
    if isinstance(left.dtype, pl.Date) and isinstance(right.dtype, INTEGERS):
        days = _APPLY[op](left.expr.cast(pl.Int32).cast(pl.Int128), as_type(right, pl.Int128()).expr)
        expr = _limited(days, _MAX_DAY, pl.Int32()).cast(pl.Date)
        return Value(expr, pl.Date(), function=f"days {op}", arguments=(left, right))
    return _between_times(op, left, adapted(right, left.dtype))


def _between_times(op: Arithmetic, left: Value, right: Value) -> Value | None:
    if op == "-" and isinstance(left.dtype, pl.Date) and isinstance(right.dtype, pl.Date):
        days = left.expr.cast(pl.Int32).cast(pl.Int64) - right.expr.cast(pl.Int32).cast(pl.Int64)
        return Value(days, pl.Int64(), MISSING, 1 << 33, "days between", (left, right))
    if op == "-" and isinstance(right.dtype, (pl.Date, pl.Datetime)):
        (first, second), _, _ = unified((left, right), "a difference")
        micros = _micros(first.expr) - _micros(second.expr)
        return Value(
            _limited(micros, largest(pl.Int64()), pl.Int64()).cast(pl.Duration("us")), pl.Duration("us")
        )
    if isinstance(right.dtype, pl.Duration):
        return _moved(op, left, right.expr.dt.total_microseconds())
    return None


def _shifted(value: Value, interval: Period) -> Value:
    """Add the months first, then the duration, as DuckDB does."""
    moved = value
    if interval.months:  # `offset_by` panics if the time is out of range
        start = _moved("+", value, pl.lit(0))
        moved = Value(start.expr.dt.offset_by(f"{interval.months}mo"), start.dtype)
    micros = interval.duration // timedelta(microseconds=1)
    if micros or not interval.months:
        moved = _moved("+", moved, pl.lit(micros))
    time = as_datetime(value, TIMESTAMP) if isinstance(value.dtype, pl.Date) else value
    return Value(moved.expr, moved.dtype, function="move", arguments=(time, interval.months, micros))


def _moved(op: Arithmetic, value: Value, by: pl.Expr) -> Value:
    """Move a time by microseconds; a date is the time at which it starts."""
    is_date = isinstance(value.dtype, pl.Date)
    start = as_datetime(value, TIMESTAMP).expr if is_date else value.expr
    dtype = TIMESTAMP if is_date else value.dtype
    micros = _APPLY[op](_micros(start), by.cast(pl.Int128))
    return Value(_limited(micros, _MAX_DAY * _DAY_MICROS, pl.Int64()).cast(dtype), dtype)


def _micros(time: pl.Expr) -> pl.Expr:
    return time.dt.timestamp("us").cast(pl.Int128)


def _limited(number: pl.Expr, limit: int, dtype: pl.DataType) -> pl.Expr:
    """Cast a number to a smaller type, which raises if its magnitude is above a limit. Polars would wrap around."""
    fits = number.is_null() | number.is_between(-limit, limit)
    return pl.when(fits).then(number).otherwise(pl.lit(int(OUT_OF_RANGE), dtype=pl.Int128)).cast(dtype)


def matches(value: Value, pattern: Value) -> Value:
    """Lower ``~`` and regexp_matches: whether a regular expression occurs in a text."""
    if value.const is None or pattern.const is None:
        return truth(None)
    regex = _constant(pattern)
    try:
        pl.select(pl.lit("").str.contains(regex))
    except pl.exceptions.PolarsError as error:
        invalid_sql(f"{regex[:60]!r} is not a valid regular expression", error)
    return boolean(_subject(value).expr.str.contains(regex))


def like(value: Value, pattern: Value, *, escape: str = "", fold: bool = False) -> Value:
    """Lower LIKE and ILIKE: a prefix, suffix or substring test if possible, else a regular expression."""
    if value.const is None or pattern.const is None:
        return truth(None)
    subject, pattern_text = _subject(value), _constant(pattern)
    if fold:
        lower = subject.expr.str.to_lowercase()
        subject = Value(lower, pl.String(), function="lower", arguments=(subject,))
        pattern_text = pattern_text.lower()
    pieces = _pattern_pieces(pattern_text, escape)
    return boolean(_matched(subject.expr, pieces), "like", subject, *pieces)


def _matched(subject: pl.Expr, pieces: list[object]) -> pl.Expr:
    match pieces:
        case []:
            expr = subject == ""
        case [str(fragment)]:
            expr = subject == fragment
        case [str(fragment), last] if last is ANY:
            expr = subject.str.starts_with(fragment)
        case [first, str(fragment)] if first is ANY:
            expr = subject.str.ends_with(fragment)
        case [first, str(fragment), last] if first is ANY and last is ANY:
            expr = subject.str.contains(fragment, literal=True)
        case _:
            regex = "".join({ANY: ".*", ONE: "."}.get(piece) or re.escape(str(piece)) for piece in pieces)
            expr = subject.str.contains(f"(?s)^{regex}$")
            if isinstance(pieces[0], str):  # the index skips files by the prefix
                expr = subject.str.starts_with(pieces[0]) & expr
    return expr


def _pattern_pieces(pattern: str, escape: str) -> list[object]:
    """Split a pattern into texts and wildcards."""
    pieces: list[object] = []
    letters = iter(pattern)
    for letter in letters:
        piece: object = {"%": ANY, "_": ONE}.get(letter, letter)
        if escape and letter == escape:
            piece = next(letters, None)
            if piece is None:
                invalid_sql("a LIKE pattern must not end with the escape character")
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        elif not (piece is ANY and pieces and pieces[-1] is ANY):
            pieces.append(piece)
    return pieces


def _subject(value: Value) -> Value:
    if not isinstance(value.dtype, pl.String):
        invalid_sql(f"a pattern is not defined for {shown(value.dtype)}")
    return value


def _constant(pattern: Value) -> str:
    if not isinstance(pattern.const, str):
        invalid_sql("a pattern must be a text, not an expression")
    return pattern.const
