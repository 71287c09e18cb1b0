"""Decide which files can match a filter by their statistics, whose bounds enclose inexact literals (format 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.filters.nodes import (
    And,
    Atom,
    Compare,
    IsIn,
    IsNotNull,
    IsNull,
    Node,
    Nothing,
    Operand,
    Or,
    StartsWith,
    Unknown,
)
from qbeast_core.space.values import BoolArray, F64Array, I64Array
from qbeast_core.support.sizing import sizing

_MS_PER_DAY = 86_400_000.0
UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
# Relative; some hundred times the error of a conversion from decimal to float64.
_DECIMAL_SLACK = 1e-12

_LOCAL_MIDNIGHT_MS = 36 * 3_600_000.0
_JULIAN_MS = 14 * _MS_PER_DAY
# 1583-01-01: calendars of JVM writers agree from this day on.
_GREGORIAN_MS = -12_212_553_600_000.0


def number_bounds(values: pl.Series, column: pl.DataType) -> tuple[F64Array, F64Array] | None:
    """Enclose literals in the numbers of the format; None if the types do not compare.

    >>> from datetime import date
    >>> [bound.tolist() for bound in number_bounds(pl.Series([date(1970, 1, 2)]), pl.Date())]
    [[86400000.0], [86400000.0]]
    """
    dtype = values.dtype
    if isinstance(column, (pl.Date, pl.Datetime)):
        return _instants(values, column) if isinstance(dtype, (pl.Date, pl.Datetime)) else None
    if not (column.is_numeric() and dtype.is_numeric()):
        return None
    numbers = values.cast(pl.Float64).to_numpy()
    if isinstance(column, pl.Decimal) or isinstance(dtype, pl.Decimal):
        slack = np.abs(numbers) * _DECIMAL_SLACK
        if not isinstance(column, pl.Decimal):
            slack = slack + 1.0  # the engine may round the literal to the column's type
        return numbers - slack, numbers + slack
    return numbers, numbers


def _instants(values: pl.Series, column: pl.DataType) -> tuple[F64Array, F64Array]:
    dtype = values.dtype
    physical = values.to_physical()
    if isinstance(dtype, pl.Datetime):
        floored = (physical // UNITS_PER_MS[dtype.time_unit]).cast(pl.Float64).to_numpy()
        return floored, floored
    midnights = physical.cast(pl.Float64).to_numpy() * _MS_PER_DAY
    # All timestamps of a day, cast to a date, equal the date.
    return midnights, midnights + _MS_PER_DAY if isinstance(column, pl.Datetime) else midnights


def clock_slack(lower: F64Array, upper: F64Array, column: pl.DataType) -> tuple[F64Array, F64Array]:
    """Widen bounds for files whose writer had another time zone or calendar (format 4)."""
    if not isinstance(column, (pl.Date, pl.Datetime)):
        return lower, upper
    zone = _LOCAL_MIDNIGHT_MS if isinstance(column, pl.Date) else 0.0
    wide_lower = lower - zone - np.where(lower - zone < _GREGORIAN_MS, _JULIAN_MS, 0.0)
    wide_upper = upper + zone + np.where(upper < _GREGORIAN_MS, _JULIAN_MS, 0.0)
    return wide_lower, wide_upper


def evaluate(node: Node, size: int, of_atom: Callable[[Atom], BoolArray]) -> BoolArray:
    """Return the mask of what may match a filter, from the mask of each atom."""
    if isinstance(node, Unknown):
        return np.ones(size, np.bool_)
    if isinstance(node, Nothing):
        return np.zeros(size, np.bool_)
    if isinstance(node, (And, Or)):
        decided = isinstance(node, Or)
        result = np.full(size, not decided, np.bool_)
        for child in node.children:
            mask = evaluate(child, size, of_atom)
            result = result | mask if decided else result & mask
            if (result == decided).all():
                break  # the others change nothing
        return result
    return of_atom(node)


# Writers that convert decimals to float64 may lose digits beyond this number.
_SAFE_DIGITS = 15


_DAY_MS: Final = 86_400_000
# Maximum difference of the calendars and time zones of two writers.
_CALENDAR_DAYS: Final = 14
# Delta 3.2 and 3.3 cut the seconds of offsets from UTC: `00:44:30` became `00:44`.
_OFFSET_MS: Final = 59_000

# 1900-01-01 in days since 1970.
_CALENDARS_AGREE: Final = -25_567

_ABOVE_CUT_TEXT = "\U0010ffff" * 8
_MISREAD = "[\U000f0000-\U000fffff]"
# Older versions of Delta end a cut text with U+FFFD, which is above most characters in the order of Java, not in that
# of bytes. A question mark before it may be the first half of a character beyond U+FFFF, whose second half was cut.
_JAVA_CUT = "\\??\ufffd$"
_low, _high, _foreign = pl.col("low"), pl.col("high"), pl.col("foreign")
_nulls, _rows = pl.col("nulls"), pl.col("rows")
_never = pl.lit(value=False)
_row_count = pl.when(_rows > 0).then(_rows)
_COUNTS = (
    _row_count.alias("rows"),
    # Null counts above the number of rows are invalid.
    pl.when((_nulls >= 0) & ~(_nulls > _row_count).fill_null(value=False)).then(_nulls).alias("nulls"),
    _foreign,
)


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class Statistics:
    """Typed statistics of files."""

    # `num_records`, and the optional structs `min`, `max` and `null_count`; null if unknown.
    files: pl.DataFrame
    # Boolean, one per file: another writer made it, which may exclude NaN from bounds of floats, truncate strings
    # and round decimals.
    foreign: pl.Series
    # Number of rows of each file, shape (files,); below 1 if unknown.
    rows: I64Array
    # Boolean, one per file: the log contradicts itself about the file, so its statistics are ignored.
    doubtful: pl.Series
    _cache: dict[Operand, pl.DataFrame] = field(
        default_factory=dict[Operand, pl.DataFrame], init=False, repr=False
    )

    def may_match(self, atom: Atom) -> BoolArray:
        """Return whether each file can hold a match, shape (files,); True without statistics."""
        if isinstance(atom, (IsNull, IsNotNull)):
            frame = self._counted(nulls=self._null_count(atom.column)).select(*_COUNTS)
            rule = _nulls > 0 if isinstance(atom, IsNull) else _nulls < _rows
        else:
            frame = self._bounds(atom.operand)
            rule = _rule(atom, frame) & (_nulls < _rows)
        may = frame.select(rule.fill_null(value=True).alias("may")).get_column("may")
        return (may | self.doubtful).to_numpy()

    def _bounds(self, operand: Operand) -> pl.DataFrame:
        """Return corrected bounds in the type that is compared, and the numbers of rows and nulls."""
        bounds = self._cache.get(operand)
        if bounds is None:
            bounds = self._compute_bounds(operand)
            if self.files.height <= sizing().max_cached_files:
                self._cache[operand] = bounds
        return bounds

    def _compute_bounds(self, operand: Operand) -> pl.DataFrame:
        counted = self._counted(
            nulls=self._field("null_count", operand.column, pl.Int64()),
            low=self._field("min", operand.column, operand.dtype),
            high=self._field("max", operand.column, operand.dtype),
        )
        in_order = (_low <= _high).fill_null(value=True)  # reversed bounds are invalid
        low, high = _corrected(operand.dtype, *(pl.when(in_order).then(bound) for bound in (_low, _high)))
        return counted.select(*_COUNTS, low=operand.apply(low), high=operand.apply(high))

    def _counted(self, **fields: pl.Expr) -> pl.DataFrame:
        """Return fields of the statistics, with the number of rows and the mask of foreign files."""
        rows, foreign = pl.Series("rows", self.rows), self.foreign.alias("foreign")
        return self.files.select(**fields).hstack([rows, foreign])

    def _field(self, struct: str, column: str, dtype: pl.DataType) -> pl.Expr:
        """Return one column of a struct of statistics; null if it is missing or has another type."""
        kind = self._kinds.get((struct, column))
        if isinstance(kind, pl.DataType) and _same_kind(kind, dtype):
            return pl.col(struct).struct.field(column).cast(dtype, strict=False)
        # `repeat` keeps the height even if no other column is selected.
        return pl.repeat(None, pl.len(), dtype=dtype)

    def _null_count(self, column: str) -> pl.Expr:
        """Return the null counts of a column; null if unknown.

        Writers that take an unknown count for 0 have no bounds there either.
        """
        counts = self._field("null_count", column, pl.Int64())
        has_bounds = ("min", column) in self._kinds
        bounded = pl.col("min").struct.field(column).is_not_null() if has_bounds else _never
        return pl.when((counts > 0) | bounded | ~self.foreign).then(counts)

    @cached_property
    def _kinds(self) -> dict[tuple[str, str], object]:
        """Types of the fields of statistics, cached: Polars rebuilds the schema of a frame at each access."""
        structs = {name: kind for name, kind in self.files.schema.items() if isinstance(kind, pl.Struct)}
        return {(name, field.name): field.dtype for name, kind in structs.items() for field in kind.fields}


def trusted_counts(files: pl.DataFrame) -> I64Array:
    """Return the number of rows of each file, -1 if unknown.

    A count of 0 is not trusted: opening such a file costs nothing, and skipping it could lose rows.
    """
    counts = files.get_column("num_records").cast(pl.Int64).fill_null(-1).to_numpy()
    return np.where(counts < 1, -1, counts)


def _known_text_high(high: pl.Expr) -> pl.Expr:
    r"""Return upper bounds of texts, null where they may have been misread.

    deltalake reads characters from U+100000 on that are escaped in the log (``\udbff\udfff``) as characters that are
    0x10000 lower. Lower bounds stay valid.

    >>> pl.DataFrame({"high": ["b", "z\U000fffff"]}).select(_known_text_high(pl.col("high")))["high"].to_list()
    ['b', None]
    """
    return pl.when(~high.str.contains(_MISREAD)).then(high)


def text_above(high: pl.Expr, *, foreign: pl.Expr) -> pl.Expr:
    """Return texts that are not below those whose upper bound may have been cut, null where it may be misread."""
    cut = high.str.replace(_JAVA_CUT, "") + _ABOVE_CUT_TEXT
    return (
        pl.when(foreign)
        .then(pl.when(_known_text_high(high).is_not_null()).then(cut))
        .otherwise(_known_text_high(high))
    )


def widened_bounds(
    dtype: pl.DataType, low: pl.Expr, high: pl.Expr, *, foreign: pl.Expr
) -> tuple[pl.Expr, pl.Expr]:
    """Widen bounds of dates and times: a writer may use other calendars and offsets in the log than in the file."""
    is_date = isinstance(dtype, pl.Date)
    units_per_ms = UNITS_PER_MS[getattr(dtype, "time_unit", "us")]
    day = 1 if is_date else _DAY_MS * units_per_ms
    is_instant = isinstance(dtype, pl.Datetime) and dtype.time_zone is not None
    usual = _OFFSET_MS * units_per_ms if is_instant else 0
    first, last = (bound.to_physical().cast(pl.Int64) for bound in (low, high))
    slack_low, slack_high = (
        pl.when(time < _CALENDARS_AGREE * day).then(_CALENDAR_DAYS * day).otherwise(usual)
        for time in (first, last)
    )
    room = 2**63 - 1 - _CALENDAR_DAYS * day
    stored = pl.Int32 if is_date else pl.Int64
    below = pl.when(~foreign).then(first).when(first >= -room).then(first - slack_low)
    above = pl.when(~foreign).then(last).when(last <= room).then(last + slack_high)
    return below.cast(stored, strict=False).cast(dtype), above.cast(stored, strict=False).cast(dtype)


def _same_kind(stored: pl.DataType, dtype: pl.DataType) -> bool:
    return stored == dtype or any(
        isinstance(stored, kinds) and isinstance(dtype, kinds)
        for kinds in ((pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt64), pl.Datetime)
    )


def _corrected(dtype: pl.DataType, low: pl.Expr, high: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Widen the two bounds by the known inaccuracies of writers."""
    if isinstance(dtype, (pl.Date, pl.Datetime)):
        low, high = widened_bounds(dtype, low, high, foreign=_foreign)
    if isinstance(dtype, pl.Datetime):  # truncated to milliseconds
        step = UNITS_PER_MS[dtype.time_unit]
        physical = high.to_physical()
        return low, pl.when(physical < 2**63 - 1 - step).then(physical + step).cast(dtype)
    if isinstance(dtype, pl.String):
        return low, text_above(high, foreign=_foreign)
    if isinstance(dtype, pl.Decimal) and (dtype.precision or 38) > _SAFE_DIGITS:
        return pl.when(~_foreign).then(low), pl.when(~_foreign).then(high)
    return low, high


def _rule(atom: Compare | IsIn | StartsWith, frame: pl.DataFrame) -> pl.Expr:
    if isinstance(atom, StartsWith):
        prefix = pl.lit(atom.prefix)
        return (_high >= prefix) & ((_low <= prefix) | _low.str.starts_with(prefix))
    if isinstance(atom, Compare):
        return _compare_rule(atom)
    return _is_in_rule(atom, frame)


def _compare_rule(atom: Compare) -> pl.Expr:
    value = pl.lit(atom.value).first()
    # Writers that exclude NaN write an upper bound below NaN, which is the largest value.
    nan_hidden = _foreign if atom.operand.dtype.is_float() else _never
    is_nan = bool(atom.value.dtype.is_float() and atom.value.is_nan().all())
    rules = {
        "<": _low < value,
        "<=": _low <= value,
        ">": (_high > value) | nan_hidden,
        ">=": (_high >= value) | nan_hidden,
        "==": (_low <= value) & ((_high >= value) | (nan_hidden & is_nan)),
        "!=": (_low != value) | (_high != value) | nan_hidden,
    }
    return rules[atom.op]


def _is_in_rule(atom: IsIn, frame: pl.DataFrame) -> pl.Expr:
    """Return whether any of the sorted values lies between the bounds."""
    values = atom.values
    target = atom.operand.result
    cast = values if values.dtype == target else values.cast(target, strict=False)
    hidden = _foreign if values.dtype.is_float() and values.is_nan().any() else _never
    if cast.null_count() or not cast.cast(values.dtype, strict=False).eq_missing(values).all():
        return ((_low <= pl.lit(values[-1:]).first()) & (_high >= pl.lit(values[:1]).first())) | hidden
    first = cast.search_sorted(frame.get_column("low"), side="left")
    last = cast.search_sorted(frame.get_column("high"), side="right")
    has_bounds = _low.is_not_null() & _high.is_not_null()
    return pl.lit(last > first) | ~has_bounds | hidden
