"""Match a predicate with bounds: of cubes and pages in coordinates, and of files in the log's statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.plan.nodes import (
    And,
    Atom,
    Compare,
    IsIn,
    IsNotNull,
    IsNull,
    Node,
    Nothing,
    Op,
    Operand,
    Or,
    StartsWith,
    Unknown,
    column_of,
)
from qbeast_core.space.coordinates import (
    coordinates_of_numbers,
    null_coordinate,
    string_quantile_bounds,
    to_coordinates,
)
from qbeast_core.space.values import BoolArray, F64Array, I64Array, NumberColumn, StringColumn, number_values
from qbeast_core.spec.revision import (
    CDFNumericQuantilesTransformation,
    HashTransformation,
    IdentityTransformation,
    LinearTransformation,
    StringHistogramTransformation,
    TextTransformation,
    Transformation,
)
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.grid import to_index_column

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


_EXACT_INTEGERS = 2.0**53
_LAST_CHARACTER, _LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES = "\U0010ffff", "\ud7ff", "\ue000"
# A JVM may order texts with these characters differently, because it compares UTF-16 units.
_BEYOND_UTF16 = r"[\x{E000}-\x{10FFFF}]"

_RangedTransformation = LinearTransformation | CDFNumericQuantilesTransformation


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Closed intervals of coordinates."""

    # Ends, shape (n,), n >= 1, in [0, 1], both never decreasing.
    lower: F64Array
    upper: F64Array

    def meet(self, box_lower: F64Array, box_upper: F64Array) -> BoolArray:
        """Return which half-open boxes ``[box_lower, box_upper)`` hold a point of any interval.

        >>> points = Intervals(np.array([0.1, 0.6]), np.array([0.1, 0.6]))
        >>> points.meet(np.array([0.0, 0.25, 0.5]), np.array([0.25, 0.5, np.inf]))
        array([ True, False,  True])
        """
        if len(self.lower) == 1:
            single: BoolArray = (box_lower <= self.upper[0]) & (box_upper > self.lower[0])
            return single
        ended = np.searchsorted(self.upper, box_lower, side="left")
        begun = np.searchsorted(self.lower, box_upper, side="left")
        return begun > ended


def coordinate_intervals(atom: Atom, transformation: Transformation, *, foreign: bool) -> Intervals | None:
    """Return the coordinates that rows matching an atom can have; None for any coordinate.

    >>> from qbeast_core.spec.revision import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> nulls = coordinate_intervals(IsNull("x"), linear, foreign=False)
    >>> nulls.lower.tolist(), nulls.upper.tolist()
    ([0.25], [0.25])
    """
    if isinstance(atom, IsNull):
        return _of_nulls(transformation, foreign=foreign)
    if isinstance(atom, IsNotNull):
        return None
    if isinstance(atom, StartsWith):
        return _of_prefix(atom.prefix, transformation, foreign=foreign)
    op: Op = atom.op if isinstance(atom, Compare) else "=="
    values = atom.value if isinstance(atom, Compare) else atom.values
    if op == "!=":
        return None
    if isinstance(transformation, HashTransformation):
        return _of_hashes(atom.operand, op, values, transformation, foreign=foreign)
    ends = _ends(atom.operand, values, transformation, foreign=foreign)
    return None if ends is None else _reach(op, *ends)


def reach(node: Node, column: str, transformation: Transformation) -> tuple[float, float]:
    """Return the minimum and maximum coordinate that a match can have along a column.

    >>> import polars as pl
    >>> from qbeast_core.plan.predicate import parse_predicate
    >>> from qbeast_core.spec.revision import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> node = parse_predicate(pl.col("x").is_between(2, 4), pl.Schema({"x": pl.Int64}))
    >>> reach(node, "x", linear)
    (0.25, 0.5)
    """
    match node:
        case Unknown():
            return 0.0, 1.0
        case Nothing():
            return 1.0, 0.0
        case And():
            ends = [reach(child, column, transformation) for child in node.children]
            return max(low for low, _ in ends), min(high for _, high in ends)
        case Or():
            ends = [reach(child, column, transformation) for child in node.children]
            ranges = [(low, high) for low, high in ends if low <= high] or [(1.0, 0.0)]
            return min(low for low, _ in ranges), max(high for _, high in ranges)
        case _:
            intervals = (
                coordinate_intervals(node, transformation, foreign=False)
                if column_of(node) == column
                else None
            )
            return (
                (0.0, 1.0) if intervals is None else (float(intervals.lower[0]), float(intervals.upper[-1]))
            )


def point_bounds(
    transformation: Transformation, values: pl.Series, *, foreign: bool
) -> tuple[F64Array, F64Array]:
    """Enclose the coordinate of every row.

    >>> from qbeast_core.spec.revision import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> [bound.tolist() for bound in point_bounds(linear, pl.Series("x", [4, None]), foreign=True)]
    [[0.5, 0.25], [0.5, 0.25]]
    """
    column, anywhere = to_index_column(values), (np.zeros(len(values)), np.ones(len(values)))
    match transformation:
        case _ if not foreign:
            pass
        case HashTransformation() if values.dtype.is_float():  # -0.0, and the digits of older Java
            return anywhere
        case IdentityTransformation():  # other writers place NaN anywhere
            return anywhere[0], to_coordinates(transformation, column)
        case LinearTransformation() | CDFNumericQuantilesTransformation() if isinstance(column, NumberColumn):
            numbers = number_values(column)
            lower, upper = _enclose(transformation, *clock_slack(numbers, numbers, values.dtype))
            if column.nulls is not None:
                lower[column.nulls] = upper[column.nulls] = null_coordinate(transformation)
            return lower, upper
        case _ if isinstance(transformation, TextTransformation) and isinstance(column, StringColumn):
            if _sorts_differently(transformation):
                return anywhere
            lower, upper = string_quantile_bounds(transformation, column)
            odd = values.str.contains(_BEYOND_UTF16).fill_null(value=False).to_numpy()
            return np.where(odd, 0.0, lower), np.where(odd, 1.0, upper)
        case _:
            pass
    exact = to_coordinates(transformation, column)
    return exact, exact


def _of_nulls(transformation: Transformation, *, foreign: bool) -> Intervals | None:
    if isinstance(transformation, StringHistogramTransformation):  # nulls are stored as the text "null"
        ends = _text_ends(pl.Series(["null"]), transformation, foreign=foreign)
        return None if ends is None else Intervals(*ends)
    point = np.array([null_coordinate(transformation)])
    return Intervals(point, point)


def _of_prefix(prefix: str, transformation: Transformation, *, foreign: bool) -> Intervals | None:
    if not isinstance(transformation, TextTransformation):
        return None
    beyond = _after(prefix)
    texts = pl.Series([prefix] if beyond is None else [prefix, beyond])
    ends = _text_ends(texts, transformation, foreign=foreign)
    if ends is None:
        return None
    lower, upper = ends
    return Intervals(lower[:1], np.ones(1) if beyond is None else upper[1:])


def _of_hashes(
    operand: Operand, op: Op, values: pl.Series, transformation: HashTransformation, *, foreign: bool
) -> Intervals | None:
    if op != "==" or (foreign and operand.dtype.is_float()):
        return None
    exact = _as_column_values(values, operand)
    if exact is None:
        return None
    points = np.sort(to_coordinates(transformation, to_index_column(exact)))
    return Intervals(points, points)


def _as_column_values(values: pl.Series, operand: Operand) -> pl.Series | None:
    """Cast literals to the column's type; None if another value of the column may equal a literal."""
    dtype = operand.dtype
    types = (dtype, operand.result, values.dtype)
    if not all(kind.is_numeric() or isinstance(kind, pl.String) for kind in types):
        return None
    if not all(kind.is_float() for kind in types) and any(kind.is_float() for kind in types):
        if any(isinstance(kind, pl.Decimal) for kind in types):
            return None
        if not (values.cast(pl.Float64).abs() < _EXACT_INTEGERS).all():  # beyond, casts merge integers
            return None
    exact = values.cast(dtype, strict=False)
    return exact if exact.cast(values.dtype, strict=False).eq_missing(values).all() else None


def _ends(
    operand: Operand, values: pl.Series, transformation: Transformation, *, foreign: bool
) -> tuple[F64Array, F64Array] | None:
    """Enclose the coordinate of each value; bounds are wider where other writers may place it differently."""
    if isinstance(transformation, TextTransformation):
        return _text_ends(values, transformation, foreign=foreign)
    # Other writers place NaN at 0 if they saw a single value.
    if not isinstance(transformation, _RangedTransformation) and (
        foreign or not isinstance(transformation, IdentityTransformation)
    ):
        return None
    bounds = number_bounds(values, operand.dtype)
    if bounds is None:
        return None
    return _enclose(transformation, *(clock_slack(*bounds, operand.dtype) if foreign else bounds))


def _enclose(transformation: Transformation, lower: F64Array, upper: F64Array) -> tuple[F64Array, F64Array]:
    """Return the minimum coordinate of each lower bound and the maximum coordinate of each upper bound."""
    return coordinates_of_numbers(transformation, lower, first=True), coordinates_of_numbers(
        transformation, upper
    )


def _text_ends(
    texts: pl.Series, transformation: TextTransformation, *, foreign: bool
) -> tuple[F64Array, F64Array] | None:
    column = to_index_column(texts) if isinstance(texts.dtype, pl.String) else None
    if not isinstance(column, StringColumn):
        return None
    if foreign and (_sorts_differently(transformation) or texts.str.contains(_BEYOND_UTF16).any()):
        return None
    return string_quantile_bounds(transformation, column)


def _sorts_differently(transformation: TextTransformation) -> bool:
    """Return whether UTF-8 bytes and the JVM's UTF-16 units may order the quantiles differently."""
    return bool(pl.Series(transformation.knots, dtype=pl.String).str.contains(_BEYOND_UTF16).any())


def _after(prefix: str) -> str | None:
    """Return the smallest string above all strings that start with `prefix`; None if there is none."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    last = _FIRST_AFTER_SURROGATES if kept[-1] == _LAST_BEFORE_SURROGATES else chr(ord(kept[-1]) + 1)
    return kept[:-1] + last


def _reach(op: Op, lower: F64Array, upper: F64Array) -> Intervals:
    """Extend the bounds of ascending values to all coordinates for which the comparison can be true."""
    if op in (">", ">="):
        upper = np.ones_like(lower)
    if op in ("<", "<="):
        lower = np.zeros_like(upper)
    # The slack for old calendars ends abruptly, so bounds may decrease.
    return Intervals(np.minimum.accumulate(lower[::-1])[::-1], np.maximum.accumulate(upper))
