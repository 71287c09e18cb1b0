"""Where the rows that match an atom can lie along one dimension of a space (format 4 and 10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from qbeast_core.query.nodes import Atom, Compare, IsNotNull, IsNull, Op, Operand, StartsWith
from qbeast_core.query.units import clock_slack, number_bounds
from qbeast_core.space.arrays import BoolArray, F64Array
from qbeast_core.space.columns import StringColumn
from qbeast_core.space.coordinates import (
    coordinates_of_numbers,
    null_coordinate,
    number_quantile_bounds,
    string_quantile_bounds,
    to_coordinates,
)
from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    HashTransformation,
    IdentityTransformation,
    LinearTransformation,
    StringHistogramTransformation,
    Transformation,
)
from qbeast_core.tree.columns import to_index_column

__all__ = ["Intervals", "coordinate_intervals"]

_EXACT_INTEGERS = 2.0**53
_LAST_CHARACTER, _LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES = "\U0010ffff", "\ud7ff", "\ue000"
_OfTexts = (CDFStringQuantilesTransformation, StringHistogramTransformation)
_OfNumbers = (LinearTransformation, IdentityTransformation, CDFNumericQuantilesTransformation)


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Closed intervals of coordinates.

    Attributes
    ----------
    lower, upper : F64Array
        Ends, shape (n,), n >= 1, in [0, 1], both never decreasing.
    """

    lower: F64Array
    upper: F64Array

    def meet(self, box_lower: F64Array, box_upper: F64Array) -> BoolArray:
        """Tell which half-open boxes ``[box_lower, box_upper)`` hold a point of any interval.

        Examples
        --------
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
    """Find the coordinates that rows matching an atom can have.

    Parameters
    ----------
    atom : Atom
        About the column of this dimension.
    transformation : Transformation
        That of the column, in one revision.
    foreign : bool
        Whether the blocks are of another writer, whose clock, calendar and order of strings may differ.

    Returns
    -------
    Intervals or None
        Every matching row lies in one of them; None when it can lie anywhere.

    Examples
    --------
    >>> from qbeast_core.spec.transformation import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> found = coordinate_intervals(IsNull("x"), linear, foreign=False)
    >>> found.lower.tolist(), found.upper.tolist()
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


def _of_nulls(transformation: Transformation, *, foreign: bool) -> Intervals | None:
    if isinstance(transformation, StringHistogramTransformation):  # a null is the text "null" there
        ends = _text_ends(pl.Series(["null"]), transformation, foreign=foreign)
        return None if ends is None else Intervals(*ends)
    point = np.array([null_coordinate(transformation)])
    return Intervals(point, point)


def _of_prefix(prefix: str, transformation: Transformation, *, foreign: bool) -> Intervals | None:
    if not isinstance(transformation, _OfTexts):
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
    """Give literals in the column's own type: the only values of it that equal them; None when unsure."""
    dtype = operand.dtype
    types = (dtype, operand.result, values.dtype)
    if not all(one.is_numeric() or isinstance(one, pl.String) for one in types):
        return None
    if not all(one.is_float() for one in types) and any(one.is_float() for one in types):
        if any(isinstance(one, pl.Decimal) for one in types):
            return None
        if not (values.cast(pl.Float64).abs() < _EXACT_INTEGERS).all():  # beyond, casts merge integers
            return None
    exact = values.cast(dtype, strict=False)
    return exact if exact.cast(values.dtype, strict=False).eq_missing(values).all() else None


def _ends(
    operand: Operand, values: pl.Series, transformation: Transformation, *, foreign: bool
) -> tuple[F64Array, F64Array] | None:
    """Enclose each value's coordinate: exact but for what the writer may have seen otherwise."""
    if isinstance(transformation, _OfTexts):
        return _text_ends(values, transformation, foreign=foreign)
    # Others place NaN at 0 where a single value was seen.
    if not isinstance(transformation, _OfNumbers) or (
        foreign and isinstance(transformation, IdentityTransformation)
    ):
        return None
    bounds = number_bounds(values, operand.dtype)
    if bounds is None:
        return None
    lower, upper = clock_slack(*bounds, operand.dtype) if foreign else bounds
    if isinstance(transformation, CDFNumericQuantilesTransformation):
        return number_quantile_bounds(transformation, lower)[0], number_quantile_bounds(
            transformation, upper
        )[1]
    return coordinates_of_numbers(transformation, lower), coordinates_of_numbers(transformation, upper)


def _text_ends(
    texts: pl.Series,
    transformation: CDFStringQuantilesTransformation | StringHistogramTransformation,
    *,
    foreign: bool,
) -> tuple[F64Array, F64Array] | None:
    if not isinstance(texts.dtype, pl.String):
        return None
    if foreign and (_sorts_unlike(_quantiles(transformation)) or _sorts_unlike(texts)):
        return None
    column = to_index_column(texts)
    return string_quantile_bounds(transformation, column) if isinstance(column, StringColumn) else None


def _quantiles(transformation: CDFStringQuantilesTransformation | StringHistogramTransformation) -> pl.Series:
    if isinstance(transformation, StringHistogramTransformation):
        return pl.Series(transformation.histogram)
    return pl.Series(transformation.quantiles)


def _sorts_unlike(texts: pl.Series) -> bool:
    """Tell whether UTF-8 bytes and the JVM's UTF-16 units may order strings differently from these."""
    return bool(texts.str.contains(r"[\x{E000}-\x{10FFFF}]").any())


def _after(prefix: str) -> str | None:
    """Give a string above all that start with `prefix`, and below nothing else that is above them."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    last = _FIRST_AFTER_SURROGATES if kept[-1] == _LAST_BEFORE_SURROGATES else chr(ord(kept[-1]) + 1)
    return kept[:-1] + last


def _reach(op: Op, lower: F64Array, upper: F64Array) -> Intervals:
    """Stretch the enclosures of ascending values to all that compares so with them."""
    if op in (">", ">="):
        upper = np.ones_like(lower)
    if op in ("<", "<="):
        lower = np.zeros_like(upper)
    # The slack for old calendars ends abruptly, so ends may step back.
    return Intervals(np.minimum.accumulate(lower[::-1])[::-1], np.maximum.accumulate(upper))
