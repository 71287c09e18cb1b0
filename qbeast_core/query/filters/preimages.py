"""Turn comparisons of arithmetic, years and truncated times into comparisons of their column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias, TypeGuard

import numpy as np
import polars as pl

from qbeast_core.query.filters.nodes import FLAT_ZONES, MIRRORED, Op
from qbeast_core.query.filters.terms import Term

# Comparisons that are all true.
_Comparisons: TypeAlias = list[tuple[Op, pl.Series]]

# The argument of a function, and alternatives: comparisons of the argument, of which one alternative is true.
Preimage: TypeAlias = tuple[Term, list[_Comparisons]]

_MAX_OF: Final[dict[type[pl.DataType], int]] = {
    dtype: (1 << bits - 1) - 1
    for dtype, bits in ((pl.Int8, 8), (pl.Int16, 16), (pl.Int32, 32), (pl.Int64, 64), (pl.Int128, 128))
}
_INTEGER_TYPES, _FLOATS = tuple(_MAX_OF), (pl.Float32, pl.Float64)
_NAN: Final = pl.Series([math.nan])
# Floats: largest number that is safe from overflow, binary digits that are exact after rounding, binary digits of
# the smallest number.
_SINGLE, _DOUBLE = (Fraction(10) ** 15, 21, 140), (Fraction(10) ** 150, 50, 1060)

# Dates reach at least this many years before and after year 0.
_YEARS: Final = 200_000


def preimage(term: Term, op: Op, value: pl.Series) -> Preimage | None:
    """Return the comparisons of a column that follow from a comparison of a function of the column.

    >>> term = Term.of(pl.col("x") * 2.0, pl.Schema({"x": pl.Float64}))
    >>> inner, alternatives = preimage(term, ">=", pl.Series([8.0]))
    >>> inner.kind, [(op, round(bound.item(), 9)) for op, bound in alternatives[0]]
    ('Column', [('>=', 4.0)])
    """
    group, name, _ = term.function if term.kind == "Function" else (term.kind, "", None)
    if op == "!=" or not term.children:
        return None
    if group in ("BinaryExpr", "Negate"):
        return _of_line(term, op, value)
    inner = term.children[0]
    if group != "TemporalExpr" or name not in ("Year", "Truncate") or not _is_flat(inner.dtype):
        return None
    comparisons = (
        _of_year(op, value) if name == "Year" else _of_truncated(inner.dtype, term.children[1], op, value)
    )
    if comparisons is None:
        return None
    zone = inner.dtype.time_zone if isinstance(inner.dtype, pl.Datetime) else None
    return inner, [[(op, bound.cast(pl.Datetime("us", zone))) for op, bound in comparisons]]


def _is_flat(dtype: pl.DataType | None) -> TypeGuard[pl.Date | pl.Datetime]:
    """Return whether a type holds dates, or times in UTC or without a time zone."""
    return isinstance(dtype, pl.Date) or (isinstance(dtype, pl.Datetime) and dtype.time_zone in FLAT_ZONES)


def _of_year(op: Op, value: pl.Series) -> _Comparisons | None:
    year = _number(value)
    if year is None or abs(year) > _YEARS:
        return None
    first, last = math.ceil(year), math.floor(year)  # years that equal the value: none if first > last
    start = last + 1 if op == ">" else first
    end = first if op == "<" else last + 1
    return _between(op, _new_year(start), _new_year(end), below="<")


def _new_year(year: int) -> pl.Series:
    """Return the first day of a year, also outside of the range of Python's dates."""
    day = np.array([year - 1970], dtype="datetime64[Y]").astype("datetime64[D]").astype(np.int32)
    return pl.Series(day).cast(pl.Date)


def _of_truncated(dtype: pl.DataType, unit_term: Term, op: Op, value: pl.Series) -> _Comparisons | None:
    """Compare the time itself: it is at or after the truncated time, by less than the unit."""
    unit = unit_term.evaluate_one()
    if unit is None or unit.null_count() or not _is_flat(value.dtype):
        return None
    if op in (">=", ">", "!="):  # needs no end, which may be out of range
        return _between(op, value, value)
    try:
        # One more step: a date drops hours, and a bound in microseconds drops nanoseconds.
        end = value.cast(pl.Datetime("us")).dt.offset_by(unit.item())
        end = end.dt.offset_by("1d" if isinstance(dtype, pl.Date) else "1us")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # the end is out of range
        return None
    return _between(op, value, end, below="<")


@dataclass(frozen=True, slots=True)
class _Line:
    """Arithmetic with a constant, `slope * x + offset`, exact except for rounding and overflow."""

    inner: Term
    # The slope is not 0.
    slope: Fraction
    offset: Fraction

    def solve(self, value: Fraction) -> Fraction:
        """Return the x at which the line has a value."""
        return (value - self.offset) / self.slope


def _line(term: Term) -> _Line | None:
    """Parse a sum, difference, product or quotient of a term and a constant, or a negation."""
    one, zero = Fraction(1), Fraction(0)
    if term.kind == "Function":
        return _Line(term.children[0], -one, zero)
    left, right = term.children
    inner, constant = (left, right.evaluate_one()) if right.is_constant else (right, left.evaluate_one())
    number = None if constant is None else _number(constant)
    match str(term.body["op"]):
        case "Plus" if number is not None:
            return _Line(inner, one, number)
        case "Minus" if number is not None:
            return _Line(inner, one, -number) if inner is left else _Line(inner, -one, number)
        case "Multiply" if number:
            return _Line(inner, number, zero)
        case "TrueDivide" if number and inner is left:
            return _Line(inner, 1 / number, zero)
        case _:
            return None


def _of_line(term: Term, op: Op, value: pl.Series) -> Preimage | None:
    line, target, result = _line(term), _number(value), term.dtype
    source = None if line is None else line.inner.dtype
    if line is None or target is None or result is None:
        return None
    alternatives: list[_Comparisons] | None = None
    if isinstance(result, _FLOATS) and isinstance(source, (*_FLOATS, *_INTEGER_TYPES)):
        alternatives = _of_floats(line, result, op, target)
    elif (
        isinstance(result, _INTEGER_TYPES)
        and isinstance(source, _INTEGER_TYPES)
        and line.slope.denominator == 1
    ):
        # An integer is compared with a float as a float.
        slack = abs(target) / (1 << 50) if value.dtype.is_float() else Fraction(0)
        alternatives = _of_integers(line, result, op, target, slack)
    return None if alternatives is None else (line.inner, alternatives)


def _of_floats(line: _Line, result: pl.DataType, op: Op, target: Fraction) -> list[_Comparisons] | None:
    slack = _rounding(result, line, target)
    if slack is None:
        return None
    turned = MIRRORED[op] if line.slope < 0 else op
    low, high = float(line.solve(target) - slack), float(line.solve(target) + slack)
    ends = pl.Series([math.nextafter(low, -math.inf)]), pl.Series([math.nextafter(high, math.inf)])
    alternatives = [_between(turned, *ends)]
    if turned != op and op in (">", ">="):
        # Arithmetic on NaN returns NaN, which is above all numbers, whatever the sign of the slope.
        alternatives.append([(">=", _NAN)])
    return alternatives


def _of_integers(
    line: _Line, result: pl.DataType, op: Op, target: Fraction, slack: Fraction
) -> list[_Comparisons]:
    source = line.inner.dtype
    turned = MIRRORED[op] if line.slope < 0 else op
    low, high = line.solve(target) - slack, line.solve(target) + slack
    ends = _integer(math.ceil(low), source), _integer(math.floor(high), source)
    return [_between(turned, *ends), *_wrapped(result, line)]


def _rounding(result: pl.DataType, line: _Line, target: Fraction) -> Fraction | None:
    """Return the maximum error that rounding adds to a solution; None for very large or very small numbers."""
    largest, digits, min_digits = _SINGLE if isinstance(result, pl.Float32) else _DOUBLE
    if max(abs(target), abs(line.offset), abs(line.slope), 1 / abs(line.slope)) > largest:
        return None
    size = (abs(target) + abs(line.offset)) / abs(line.slope) + abs(line.solve(target))
    tiny = Fraction(1, 1 << min_digits)
    return size / (1 << digits) + tiny / abs(line.slope) + tiny


def _wrapped(result: pl.DataType, line: _Line) -> list[_Comparisons]:
    """Return the ranges of x where integer arithmetic overflows and wraps around."""
    max_value, source = _MAX_OF[type(result)], line.inner.dtype
    ends = line.solve(Fraction(max_value)), line.solve(Fraction(-max_value - 1))
    above, below = math.floor(max(ends)), math.ceil(min(ends))
    alternatives: list[_Comparisons] = []
    if above < max_value:
        alternatives.append([(">", _integer(above, source))])
    if below > -max_value - 1:
        alternatives.append([("<", _integer(below, source))])
    return alternatives


def _between(op: Op, low: pl.Series, high: pl.Series, *, below: Op = "<=") -> _Comparisons:
    """Compare with the ends of an interval that encloses the value."""
    comparisons: _Comparisons = []
    if op in ("==", ">=", ">"):
        comparisons.append((">=", low))
    if op in ("==", "<=", "<"):
        comparisons.append((below, high))
    return comparisons


def _integer(value: int, source: pl.DataType | None) -> pl.Series:
    """Return a bound as Int64, or as Int128 if the column has that type and the bound needs it."""
    wide = isinstance(source, pl.Int128) and not -(2**63) <= value < 2**63
    dtype = pl.Int128 if wide else pl.Int64
    max_value = _MAX_OF[dtype]
    return pl.Series([min(max(value, -max_value - 1), max_value)], dtype=dtype)


def _number(value: pl.Series) -> Fraction | None:
    """Return a constant as an exact number; None for NaN, infinities and values that are not numbers."""
    if not value.dtype.is_numeric():
        return None
    item = value.item()
    return Fraction(item) if not isinstance(item, float) or math.isfinite(item) else None
