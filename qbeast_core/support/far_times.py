"""Dates and times outside the years that Python and Polars can show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

# Days of the years -262143 and 262142, the first and the last ones that Polars and deltalake convert to text.
_TEXT_DAYS: Final = (-96_465_292, 95_026_236)
# Days of the years 1 and 9999. A time zone may move a time by a day.
_PYTHON_DAYS: Final = (-719_161, 2_932_895)
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def has_text(values: pl.Series) -> bool:
    """Return whether all values can be converted to texts: Polars panics for far dates and times.

    >>> [has_text(pl.Series([day], dtype=pl.Int32).cast(pl.Date)) for day in (2**31 - 1, 2_932_897)]
    [False, True]
    """
    return _within(values, _TEXT_DAYS).all()


def shown_times(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame whose values Python can hold: columns of dates and times outside of its years as texts.

    Inside of lists and structs they become numbers.

    >>> days = pl.Series([0, 2_932_897, 2**31 - 1], dtype=pl.Int32).cast(pl.Date)
    >>> shown_times(pl.DataFrame({"day": days}))["day"].to_list()
    ['1970-01-01', '+10000-01-01', '2147483647 days since 1970']
    """
    far = [column for column in frame if not _within(column, _PYTHON_DAYS).all()]
    return frame.with_columns(
        column.cast(_as_numbers(column.dtype)) if column.dtype.is_nested() else time_texts(column)
        for column in far
    )


def time_texts(values: pl.Series) -> pl.Series:
    """Return texts of dates or times; numbers since 1970 for those that have no text."""
    near = _within(values, _TEXT_DAYS)
    unit = values.dtype.time_unit if isinstance(values.dtype, pl.Datetime) else "days"
    numbers = values.to_physical().cast(pl.String) + f" {unit} since 1970"
    return values.set(~near, None).cast(pl.String).fill_null(numbers)


def _within(values: pl.Series, days: tuple[int, int]) -> pl.Series:
    """Return whether each value is in a range of days; True for other types, and null for null."""
    if isinstance(values.dtype, pl.List | pl.Array):
        return _within(values.explode(), days)
    if isinstance(values.dtype, pl.Struct):
        return pl.Series([_within(field, days).all() for field in values.struct.unnest()], dtype=pl.Boolean)
    if not isinstance(values.dtype, pl.Date | pl.Datetime):
        return pl.Series([True])
    per_day = _PER_DAY[values.dtype.time_unit] if isinstance(values.dtype, pl.Datetime) else 1
    return (values.to_physical() // per_day).is_between(*days)


def _as_numbers(dtype: PolarsDataType) -> PolarsDataType:
    """Return a type with numbers instead of dates and times."""
    match dtype:
        case pl.List() | pl.Array():
            return pl.List(_as_numbers(dtype.inner))
        case pl.Struct():
            return pl.Struct({field.name: _as_numbers(field.dtype) for field in dtype.fields})
        case pl.Date() | pl.Datetime():
            return pl.Int64()
        case _:
            return dtype
