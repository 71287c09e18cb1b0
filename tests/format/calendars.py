"""Coordinates as a JVM computed them: in its own time zone, calendar and spelling of numbers (format 4)."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.space.coordinates import coordinates_of_numbers, null_coordinate, to_coordinates
from qbeast_core.space.values import NumberColumn, StringColumn, number_values
from qbeast_core.spec.revision import HashTransformation, Revision, Transformation
from qbeast_core.tree.grid import to_index_column

__all__ = ["jvm_points"]

_MS_PER_DAY = 86_400_000
_GREGORIAN_SINCE = -141_427  # 1582-10-15, in days since 1970
_JULIAN_DAY_OF_1970 = 2_440_588


def jvm_points(frame: pl.DataFrame, revision: Revision, *, zone: str) -> np.ndarray:
    """Return the coordinates of rows that a JVM in `zone` indexed, shape (rows, columns)."""
    actual = [
        _coordinates(space, frame.get_column(name), zone)
        for name, space in zip(revision.columns, revision.transformations, strict=True)
    ]
    return np.stack(actual, axis=1)


def _coordinates(space: Transformation, values: pl.Series, zone: str) -> np.ndarray:
    keys = to_index_column(values)
    points = to_coordinates(space, keys)
    if isinstance(space, HashTransformation):
        if values.dtype.is_float():
            negative_zero = (values == 0.0).fill_null(value=False).to_numpy() & np.signbit(values.to_numpy())
            points[negative_zero] = _hash_of("-0.0", space)
        return points
    if not values.dtype.is_temporal():
        return points
    assert isinstance(keys, NumberColumn)
    days = values.cast(pl.Date)
    shift = _julian_shift(days) * _MS_PER_DAY
    if values.dtype == pl.Date:
        shift = shift + _midnight_shift(days, zone)
    moved = coordinates_of_numbers(space, number_values(keys) + shift)
    return np.where(values.is_null().to_numpy(), null_coordinate(space), moved)


def _hash_of(text: str, space: HashTransformation) -> float:
    data = np.frombuffer(text.encode(), np.uint8)
    return float(to_coordinates(space, StringColumn(data, np.array([0, len(data)])))[0])


def _julian_shift(days: pl.Series) -> np.ndarray:
    """Days from a date to the same year, month and day of the calendar that ruled before October 1582."""
    number = days.to_physical()
    month = days.dt.month().cast(pl.Int64)
    year = days.dt.year().cast(pl.Int64) + 4800 - (month <= 2).cast(pl.Int64)
    month = month + 12 * (month <= 2).cast(pl.Int64) - 3
    julian = days.dt.day().cast(pl.Int64) + (153 * month + 2) // 5 + 365 * year + year // 4 - 32_083
    shift = (julian - _JULIAN_DAY_OF_1970 - number).fill_null(0).to_numpy()
    return np.where((number < _GREGORIAN_SINCE).fill_null(value=False).to_numpy(), shift, 0)


def _midnight_shift(days: pl.Series, zone: str) -> np.ndarray:
    """Milliseconds from UTC's midnight to the zone's own."""
    utc = days.cast(pl.Datetime("ms"))
    local = utc.dt.replace_time_zone(zone, non_existent="null").dt.convert_time_zone("UTC")
    return (local.to_physical() - utc.to_physical()).fill_null(0).to_numpy()
