"""Where rows lie along one dimension as far as can be told, whoever wrote them (format 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from qbeast_core.query.units import clock_slack
from qbeast_core.space.arrays import BoolArray, F64Array
from qbeast_core.space.columns import IndexColumn, NumberColumn, StringColumn
from qbeast_core.space.coordinates import (
    coordinates_of_numbers,
    null_coordinate,
    number_quantile_bounds,
    number_values,
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

__all__ = ["point_bounds"]

_BEYOND_UTF16 = r"[\x{E000}-\x{10FFFF}]"
"""Strings with these characters may stand in another order for a JVM."""


def point_bounds(
    transformation: Transformation, values: pl.Series, *, foreign: bool
) -> tuple[F64Array, F64Array]:
    """Enclose the coordinate of every row.

    Parameters
    ----------
    transformation : Transformation
        Of the revision, for this column.
    values : polars.Series
        The column.
    foreign : bool
        Whether another writer placed the rows, with a clock, a calendar, an order of strings and a spelling of
        numbers of its own.

    Returns
    -------
    lower, upper : F64Array
        Shape (n,), equal where the place is certain; 0 and 1 where nothing is known.

    Examples
    --------
    >>> from qbeast_core.spec.transformation import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> [bound.tolist() for bound in point_bounds(linear, pl.Series("x", [4, None]), foreign=True)]
    [[0.5, 0.25], [0.5, 0.25]]
    """
    column = to_index_column(values)
    points = None if not foreign else _of_others(transformation, values, column)
    if points is None:
        exact = to_coordinates(transformation, column)
        return exact, exact
    return points


def _of_others(
    transformation: Transformation, values: pl.Series, column: IndexColumn
) -> tuple[F64Array, F64Array] | None:
    match transformation:
        case HashTransformation() if values.dtype.is_float():  # -0.0, and the digits of older Java
            return np.zeros(len(values)), np.ones(len(values))
        case IdentityTransformation():  # others place NaN with all else
            return np.zeros(len(values)), to_coordinates(transformation, column)
        case LinearTransformation() | CDFNumericQuantilesTransformation() if isinstance(column, NumberColumn):
            return _of_numbers(transformation, values, column)
        case CDFStringQuantilesTransformation(quantiles=knots) if isinstance(column, StringColumn):
            return _of_texts(transformation, knots, values, column)
        case StringHistogramTransformation(histogram=knots) if isinstance(column, StringColumn):
            return _of_texts(transformation, knots, values, column)
        case _:
            return None


def _of_numbers(
    transformation: LinearTransformation | CDFNumericQuantilesTransformation,
    values: pl.Series,
    column: NumberColumn,
) -> tuple[F64Array, F64Array]:
    numbers = number_values(column)
    low, high = clock_slack(numbers, numbers, values.dtype)
    if isinstance(transformation, CDFNumericQuantilesTransformation):
        lower, upper = (
            number_quantile_bounds(transformation, low)[0],
            number_quantile_bounds(transformation, high)[1],
        )
    else:
        lower, upper = (coordinates_of_numbers(transformation, end) for end in (low, high))
    return _with_nulls(transformation, column.nulls, lower, upper)


def _of_texts(
    transformation: CDFStringQuantilesTransformation | StringHistogramTransformation,
    knots: Sequence[str],
    values: pl.Series,
    column: StringColumn,
) -> tuple[F64Array, F64Array]:
    if pl.Series(knots, dtype=pl.String).str.contains(_BEYOND_UTF16).any():
        return np.zeros(len(values)), np.ones(len(values))
    lower, upper = string_quantile_bounds(transformation, column)
    odd = values.str.contains(_BEYOND_UTF16).fill_null(value=False).to_numpy()
    return np.where(odd, 0.0, lower), np.where(odd, 1.0, upper)


def _with_nulls(
    transformation: Transformation, nulls: BoolArray | None, lower: F64Array, upper: F64Array
) -> tuple[F64Array, F64Array]:
    if nulls is None:
        return lower, upper
    point = null_coordinate(transformation)
    return np.where(nulls, point, lower), np.where(nulls, point, upper)
