"""Values to coordinates in [0, 1], with one arithmetic at write and at query time (format 4)."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.arrays import F64Array
from qbeast_core.space.columns import IndexColumn, NumberColumn, StringColumn
from qbeast_core.space.hashes.number_text import number_text
from qbeast_core.space.hashes.scala_hash import bytes_hash, span_hash
from qbeast_core.space.number_quantiles import number_ranks
from qbeast_core.space.numbers import number_values
from qbeast_core.space.string_quantiles import string_ranks
from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    HashTransformation,
    IdentityTransformation,
    LinearTransformation,
    StringHistogramTransformation,
    TextTransformation,
    Transformation,
    typed_number,
)

_BLOCK_ROWS = 1 << 16
_LARGEST_HASH = 0x7FFFFFFF


def to_coordinates(transformation: Transformation, column: IndexColumn) -> F64Array:
    """Return the coordinate of every row along one indexed column.

    >>> from qbeast_core.spec.transformation import linear_transformation
    >>> price = linear_transformation("DoubleDataType", min_number=0, max_number=10, null_value=5)
    >>> column = NumberColumn("float64", np.array([2.5, np.nan, 0.0]), np.array([False, False, True]))
    >>> to_coordinates(price, column).tolist()
    [0.25, 1.0, 0.5]
    """
    out = np.empty(len(column))
    for start in range(0, len(column), _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(column))
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            out[start:stop] = _coordinates(transformation, column.slice(start, stop))
    if column.nulls is not None:
        out[column.nulls] = null_coordinate(transformation)
    return out


def coordinates_of_numbers(
    transformation: Transformation, values: F64Array, *, first: bool = False
) -> F64Array:
    """Return the coordinates of numbers, such as the literals of a predicate.

    >>> quantiles = CDFNumericQuantilesTransformation(quantiles=(0.0, 3.0, 3.0), data_type="DoubleDataType")
    >>> [coordinates_of_numbers(quantiles, np.array([3.0]), first=first).tolist() for first in (True, False)]
    [[0.5], [1.0]]
    """
    if isinstance(transformation, LinearTransformation):
        return _linear(transformation, values)
    if isinstance(transformation, CDFNumericQuantilesTransformation):
        return number_ranks(transformation.quantiles, values, first=first)
    if isinstance(transformation, IdentityTransformation):
        return np.isnan(values).astype(np.float64)
    if isinstance(transformation, HashTransformation | TextTransformation):
        _refuse(transformation, "plain numbers")
    return np.zeros(len(values))


def null_coordinate(transformation: Transformation) -> float:
    """Return the coordinate of null.

    >>> null_coordinate(HashTransformation(null_value=-737119)) == (-1225754825 & 0x7FFFFFFF) / 0x7FFFFFFF
    True
    """
    if isinstance(transformation, LinearTransformation):
        null = _typed(transformation, transformation.null_value)
        return float(_linear(transformation, np.array([null]))[0])
    if isinstance(transformation, HashTransformation):
        return float(_hashed(_text(str(transformation.null_value)))[0])
    if isinstance(transformation, StringHistogramTransformation):
        return float(string_ranks(transformation.histogram, _text("null"))[0])
    return 0.0


def string_quantile_bounds(
    transformation: TextTransformation, values: StringColumn
) -> tuple[F64Array, F64Array]:
    """Return the least and the greatest coordinate that a writer may have given to each string.

    They differ where a string equals a quantile that repeats: `to_coordinates` takes the last of them,
    other writers any. Nulls have their own coordinate in both.
    """
    knots = transformation.knots
    lower, upper = string_ranks(knots, values, first=True), string_ranks(knots, values)
    if values.nulls is not None:
        lower[values.nulls] = upper[values.nulls] = null_coordinate(transformation)
    return lower, upper


def _coordinates(transformation: Transformation, column: IndexColumn) -> F64Array:
    if isinstance(transformation, HashTransformation):
        return _hashed(column)
    if isinstance(transformation, TextTransformation):
        if isinstance(column, NumberColumn):
            _refuse(transformation, f"a {column.kind} column")
        return string_ranks(transformation.knots, column)
    if isinstance(column, NumberColumn):
        return coordinates_of_numbers(transformation, number_values(column))
    if isinstance(transformation, LinearTransformation | CDFNumericQuantilesTransformation):
        _refuse(transformation, "a string column")
    return np.zeros(len(column))


def _linear(transformation: LinearTransformation, values: F64Array) -> F64Array:
    low, high = (_typed(transformation, end) for end in transformation.knots)
    half = 1.0 if math.isfinite(high - low) else 0.5
    low, high = low * half, high * half
    # Bounds that are one float64, or less than the smallest normal apart, are taken as that far apart.
    width = max(high - low, math.ulp(low), float(np.finfo(np.float64).tiny))
    with np.errstate(over="ignore"):  # beyond the range by more than any float64: the end of it
        coordinates: F64Array = values * half if half != 1.0 else values
        coordinates = coordinates - low
        coordinates *= 1.0 / width
    np.fmin(coordinates, 1.0, out=coordinates)  # takes NaN to 1.0
    return np.maximum(coordinates, 0.0, out=coordinates)


def _hashed(column: IndexColumn) -> F64Array:
    if isinstance(column, StringColumn):
        hashes = bytes_hash(column.data, column.offsets)
    else:
        hashes = span_hash(*number_text(column))
    return (hashes & np.int32(_LARGEST_HASH)) / _LARGEST_HASH


def _text(text: str) -> StringColumn:
    data = np.frombuffer(text.encode(), np.uint8)
    return StringColumn(data, np.array([0, len(data)], np.int64))


def _typed(transformation: LinearTransformation, number: float) -> float:
    """Return a JSON number as it is computed with; integers beyond float64 count as its largest."""
    largest = float(np.finfo(np.float64).max)
    return float(typed_number(min(max(number, -largest), largest), transformation.ordered_data_type))


def _refuse(transformation: Transformation, what: str) -> NoReturn:
    name = type(transformation).__name__
    message = f"A {name} gives no coordinates to {what}: column and revision do not belong together"
    raise InvalidInputError(message, argument="transformation")
