"""Days of the old calendar, counted by hand: same year, month and day in the calendar of today."""

from __future__ import annotations

import datetime as dt

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.io.other_writers import OldCalendar

OLD = OldCalendar.of({"org.apache.spark.version": "2.4.8"})
JULIAN_DAY_OF_1970 = 2_440_588


def julian(year: int, month: int, day: int) -> int:
    """Count the days from 1970 to a date of the Julian calendar."""
    ahead = (14 - month) // 12
    years, months = year + 4800 - ahead, month + 12 * ahead - 3
    return day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32_083 - JULIAN_DAY_OF_1970


@given(st.dates(dt.date(1, 1, 3), dt.date(2200, 1, 1)))
def test_dates_of_both_calendars_keep_their_names(date: dt.date) -> None:
    assert OLD is not None
    old = (
        julian(date.year, date.month, date.day)
        if date < dt.date(1582, 10, 5)
        else (date - dt.date(1970, 1, 1)).days
    )
    if dt.date(1582, 10, 5) <= date < dt.date(1582, 10, 15):
        return  # no such days
    days = pl.Series("day", [old, None], pl.Int32).cast(pl.Date)
    moved = OLD.today(pl.col("day"), pl.Date(), pl.Date())
    assert moved is not None
    assert days.to_frame().select(moved)["day"].to_list() == [date, None]


def test_modern_files_are_unchanged() -> None:
    for metadata in ({}, {"org.apache.spark.version": "3.5.0"}, {"org.apache.spark.timeZone": "UTC"}):
        assert OldCalendar.of(metadata) is None
    half = OldCalendar.of({"org.apache.spark.version": "3.0.1"})
    assert half is not None
    assert half == OldCalendar(has_dates=False, has_int96=True)
    assert half.today(pl.col("day"), pl.Date(), pl.Date()) is None
