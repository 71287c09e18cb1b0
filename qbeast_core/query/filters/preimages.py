"""Turn comparisons of arithmetic, years and truncated times into comparisons of their column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias, TypeGuard

import numpy as np
import polars as pl

from qbeast_core.query.filters.atoms import mirror_op
from qbeast_core.query.filters.nodes import Op
from qbeast_core.query.filters.terms import Term

# Comparisons that hold together.
_Together: TypeAlias = list[tuple[Op, pl.Series]]

# What a function is of, and alternatives, each comparisons that hold for it together.
Preimage: TypeAlias = tuple[Term, list[_Together]]

_MAX_OF: Final[dict[type[pl.DataType], int]] = {
    dtype: (1 << bits - 1) - 1
    for dtype, bits in ((pl.Int8, 8), (pl.Int16, 16), (pl.Int32, 32), (pl.Int64, 64), (pl.Int128, 128))
}
_INTEGERS, _FLOATS = tuple(_MAX_OF), (pl.Float32, pl.Float64)
_NAN: Final = pl.Series([math.nan])
# Of floats: numbers within which nothing overflows, binary digits that rounding leaves right, digits of the
# least.
_SINGLE, _DOUBLE = (Fraction(10) ** 15, 21, 140), (Fraction(10) ** 150, 50, 1060)

# Years that dates are sure to reach, before and after the first.
_YEARS: Final = 200_000

_FLAT_ZONES: Final = (None, "UTC")


def preimage(term: Term, op: Op, value: pl.Series) -> Preimage | None:
    """Return comparisons of the column that a comparison of a function of it implies.

    >>> import orjson
    >>> asked = pl.col("x") * 2.0
    >>> term = Term(orjson.loads(asked.meta.serialize(format="json")), asked, pl.Schema({"x": pl.Float64}))
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
    found = _of_year(op, value) if name == "Year" else _of_truncated(inner.dtype, term.children[1], op, value)
    if found is None:
        return None
    zone = inner.dtype.time_zone if isinstance(inner.dtype, pl.Datetime) else None
    return inner, [[(one, bound.cast(pl.Datetime("us", zone))) for one, bound in found]]


def _is_flat(dtype: pl.DataType | None) -> TypeGuard[pl.Date | pl.Datetime]:
    """Return whether a type is of days or times whose calendar is that of UTC."""
    return isinstance(dtype, pl.Date) or (isinstance(dtype, pl.Datetime) and dtype.time_zone in _FLAT_ZONES)


def _of_year(op: Op, value: pl.Series) -> _Together | None:
    asked = _number(value)
    if asked is None or abs(asked) > _YEARS:
        return None
    first, last = math.ceil(asked), math.floor(asked)  # of the years that equal it: none if first > last
    found: _Together = []
    if op in ("==", ">=", ">"):
        found.append((">=", _new_year(last + 1 if op == ">" else first)))
    if op in ("==", "<=", "<"):
        found.append(("<", _new_year(first if op == "<" else last + 1)))
    return found


def _new_year(year: int) -> pl.Series:
    """Return the first day of a year, which Python's own dates may not reach."""
    day = np.array([year - 1970], dtype="datetime64[Y]").astype("datetime64[D]").astype(np.int32)
    return pl.Series(day).cast(pl.Date)


def _of_truncated(dtype: pl.DataType, every: Term, op: Op, value: pl.Series) -> _Together | None:
    """Ask of the time: it lies at or after the truncated one, by less than the unit."""
    unit = every.evaluate_one()
    if unit is None or unit.null_count() or not _is_flat(value.dtype):
        return None
    found: _Together = []
    if op in ("==", ">=", ">"):
        found.append((">=", value))
    if op in ("==", "<=", "<"):
        try:
            # More by what a date loses of hours, or a bound of nanoseconds.
            beyond = value.cast(pl.Datetime("us")).dt.offset_by(unit.item())
            beyond = beyond.dt.offset_by("1d" if isinstance(dtype, pl.Date) else "1us")
        except pl.exceptions.PolarsError:
            return None
        found.append(("<", beyond))
    return found


@dataclass(frozen=True, slots=True)
class _Line:
    """Arithmetic with a constant: `slope * x + offset`, exact but for rounding and wrapping."""

    inner: Term
    # The slope is not 0.
    slope: Fraction
    offset: Fraction

    def solve(self, asked: Fraction) -> Fraction:
        """Return where it has a value."""
        return (asked - self.offset) / self.slope


def _line(term: Term) -> _Line | None:
    """Read a sum, difference, product or quotient of something and a constant, or a negative."""
    one, zero = Fraction(1), Fraction(0)
    if term.kind == "Function":
        return _Line(term.children[0], -one, zero)
    left, right = term.children
    inner, constant = (left, right.evaluate_one()) if right.is_constant else (right, left.evaluate_one())
    by = None if constant is None else _number(constant)
    match str(term.body["op"]):
        case "Plus" if by is not None:
            return _Line(inner, one, by)
        case "Minus" if by is not None:
            return _Line(inner, one, -by) if inner is left else _Line(inner, -one, by)
        case "Multiply" if by:
            return _Line(inner, by, zero)
        case "TrueDivide" if by and inner is left:
            return _Line(inner, 1 / by, zero)
        case _:
            return None


def _of_line(term: Term, op: Op, value: pl.Series) -> Preimage | None:
    line, asked, result = _line(term), _number(value), term.dtype
    source = None if line is None else line.inner.dtype
    if line is None or asked is None or result is None:
        return None
    found: list[_Together] | None = None
    if isinstance(result, _FLOATS) and isinstance(source, (*_FLOATS, *_INTEGERS)):
        found = _of_floats(line, result, op, asked)
    elif isinstance(result, _INTEGERS) and isinstance(source, _INTEGERS) and line.slope.denominator == 1:
        # An integer is compared with a float as a float.
        slack = abs(asked) / (1 << 50) if value.dtype.is_float() else Fraction(0)
        found = _of_integers(line, result, op, asked, slack)
    return None if found is None else (line.inner, found)


def _of_floats(line: _Line, result: pl.DataType, op: Op, asked: Fraction) -> list[_Together] | None:
    slack = _rounding(result, line, asked)
    if slack is None:
        return None
    turned = mirror_op(op) if line.slope < 0 else op
    low, high = float(line.solve(asked) - slack), float(line.solve(asked) + slack)
    ends = pl.Series([math.nextafter(low, -math.inf)]), pl.Series([math.nextafter(high, math.inf)])
    found = [_between(turned, *ends)]
    if turned != op and op in (">", ">="):
        found.append(
            [(">=", _NAN)]
        )  # what is made of NaN is NaN, above all numbers, whichever way the line goes
    return found


def _of_integers(
    line: _Line, result: pl.DataType, op: Op, asked: Fraction, slack: Fraction
) -> list[_Together]:
    source = line.inner.dtype
    turned = mirror_op(op) if line.slope < 0 else op
    low, high = line.solve(asked) - slack, line.solve(asked) + slack
    ends = _integer(math.ceil(low), source), _integer(math.floor(high), source)
    return [_between(turned, *ends), *_wrapped(result, line)]


def _rounding(result: pl.DataType, line: _Line, asked: Fraction) -> Fraction | None:
    """Bound how far off rounding may put a solution; None for numbers that are very large or very small."""
    largest, digits, least = _SINGLE if isinstance(result, pl.Float32) else _DOUBLE
    if max(abs(asked), abs(line.offset), abs(line.slope), 1 / abs(line.slope)) > largest:
        return None
    size = (abs(asked) + abs(line.offset)) / abs(line.slope) + abs(line.solve(asked))
    tiny = Fraction(1, 1 << least)
    return size / (1 << digits) + tiny / abs(line.slope) + tiny


def _wrapped(result: pl.DataType, line: _Line) -> list[_Together]:
    """Return where arithmetic on integers goes beyond their type and comes back at the other end."""
    most, source = _MAX_OF[type(result)], line.inner.dtype
    ends = line.solve(Fraction(most)), line.solve(Fraction(-most - 1))
    above, below = math.floor(max(ends)), math.ceil(min(ends))
    found: list[_Together] = []
    if above < most:
        found.append([(">", _integer(above, source))])
    if below > -most - 1:
        found.append([("<", _integer(below, source))])
    return found


def _between(op: Op, low: pl.Series, high: pl.Series) -> _Together:
    """Compare with the ends of what encloses a value."""
    found: _Together = []
    if op in ("==", ">=", ">"):
        found.append((">=", low))
    if op in ("==", "<=", "<"):
        found.append(("<=", high))
    return found


def _integer(value: int, source: pl.DataType | None) -> pl.Series:
    """Return a bound of a column, of 64 bits, and of 128 where the column has these and the bound needs them."""
    wide = isinstance(source, pl.Int128) and not -(2**63) <= value < 2**63
    dtype = pl.Int128 if wide else pl.Int64
    most = _MAX_OF[dtype]
    return pl.Series([min(max(value, -most - 1), most)], dtype=dtype)


def _number(value: pl.Series) -> Fraction | None:
    """Return a constant as the number that it is; None for what is none, NaN and infinities."""
    if not value.dtype.is_numeric():
        return None
    item = value.item()
    return Fraction(item) if not isinstance(item, float) or math.isfinite(item) else None
