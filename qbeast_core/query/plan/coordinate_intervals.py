"""Compute where rows, or matches of a filter, can lie along one dimension of a space (format 4 and 10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from qbeast_core.query.filters.nodes import (
    And,
    Atom,
    Compare,
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
from qbeast_core.query.plan.file_statistics import clock_slack, number_bounds
from qbeast_core.space.coordinates import (
    coordinates_of_numbers,
    null_coordinate,
    string_quantile_bounds,
    to_coordinates,
)
from qbeast_core.space.values import BoolArray, F64Array, NumberColumn, StringColumn, number_values
from qbeast_core.spec.revision import (
    CDFNumericQuantilesTransformation,
    HashTransformation,
    IdentityTransformation,
    LinearTransformation,
    StringHistogramTransformation,
    TextTransformation,
    Transformation,
)
from qbeast_core.tree.grid import to_index_column

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
    >>> from qbeast_core.query.filters.predicate import parse_predicate
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
