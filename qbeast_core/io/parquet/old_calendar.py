"""Dates and times that Spark wrote in the calendar that ruled before October 1582, as a file's metadata says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

# 1582-10-15 in days since 1970: from here on both calendars are the same.
_SINCE: Final = -141_427

# 1 March of the year 0 in the old calendar, in days since 1970.
_YEAR_0: Final = -719_470

_CENTURY_DAYS: Final = 36_525
_DAY_US: Final = 86_400_000_000
# Before, Java's old classes know one offset from UTC for a zone, that of Spark's own table of 2020.
_RULES_SINCE: Final = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OldCalendar:
    """Which values of a file follow the old calendar."""

    # Dates, and timestamps other than INT96.
    has_dates: bool
    has_int96: bool
    # Whose days the timestamps were counted in.
    zone: str = "UTC"

    @staticmethod
    def of(metadata: Mapping[str, str]) -> OldCalendar | None:
        """Return what a footer says, by Spark's own rules; None: all values follow the calendar of today.

        >>> OldCalendar.of({"org.apache.spark.version": "2.4.8"})
        OldCalendar(has_dates=True, has_int96=True, zone='UTC')
        >>> OldCalendar.of({"org.apache.spark.version": "3.5.0"})
        """
        version = metadata.get("org.apache.spark.version")
        if version is None:  # of another writer, or too old to say: Spark 4 takes it as it is
            return None
        has_dates = version < "3.0.0" or "org.apache.spark.legacyDateTime" in metadata
        has_int96 = version < "3.1.0" or "org.apache.spark.legacyINT96" in metadata
        if not has_dates and not has_int96:
            return None
        return OldCalendar(has_dates, has_int96, metadata.get("org.apache.spark.timeZone", "UTC"))

    def today(self, values: pl.Expr, stored: PolarsDataType, wanted: PolarsDataType) -> pl.Expr | None:
        """Return the values with the same year, month and day in the calendar of today; None: they are as they are."""
        match wanted:
            case pl.Date() if self.has_dates:
                return _shifted(values.to_physical().cast(pl.Int64)).cast(pl.Int32).cast(pl.Date)
            case pl.Datetime(time_zone=str()) if self._is_old(stored):
                return self._times(values)
            case pl.Struct():
                dtypes = {one.name: one.dtype for one in getattr(stored, "fields", ())}
                parts = {
                    one.name: self.today(pl.field(one.name), dtypes[one.name], one.dtype)
                    for one in wanted.fields
                    if one.name in dtypes
                }
                changed = {name: part for name, part in parts.items() if part is not None}
                return values.struct.with_fields(**changed) if changed else None
            case pl.List():
                part = self.today(pl.element(), getattr(stored, "inner", stored), wanted.inner)
                return None if part is None else values.list.eval(part)
            case pl.Map():
                entries = _entries(wanted)
                stored_entries = _entries(stored) if isinstance(stored, pl.Map) else entries
                part = self.today(values.cast(entries), stored_entries, entries)
                return None if part is None else part.cast(wanted)
            case _:
                return None

    def _is_old(self, stored: PolarsDataType) -> bool:
        # Spark writes no other timestamps that Polars reads as nanoseconds.
        is_int96 = isinstance(stored, pl.Datetime) and stored.time_unit == "ns"
        return self.has_int96 if is_int96 else self.has_dates

    def _times(self, values: pl.Expr) -> pl.Expr:
        """Move local days, and let the zone count the moved ones by its rules of today."""
        zone, offset = self._zone_and_offset()
        local = values.to_physical() + offset
        day = local // _DAY_US
        moved = (local + (_shifted(day) - day) * _DAY_US).cast(pl.Datetime("us"))
        exact_zone = moved.dt.replace_time_zone(
            zone, ambiguous="earliest", non_existent="null"
        ).dt.convert_time_zone("UTC")
        exact = pl.coalesce(exact_zone, (moved - timedelta(microseconds=offset)).dt.replace_time_zone("UTC"))
        return pl.when(values < _RULES_SINCE).then(exact).otherwise(values)

    def _zone_and_offset(self) -> tuple[str, int]:
        """Return the zone as far as it is known, and its microseconds from UTC as Java's old classes have it."""
        try:
            at = datetime(2020, 1, 1, tzinfo=ZoneInfo(self.zone))
        except (LookupError, ValueError, OSError):
            return "UTC", 0
        offset = (at.utcoffset() or timedelta()) - (at.dst() or timedelta())
        return self.zone, offset // timedelta(microseconds=1)


def has_times(dtype: pl.DataType) -> bool:
    """Return whether a type has dates or times, at any depth.

    >>> has_times(pl.List(pl.Date())), has_times(pl.Int64())
    (True, False)
    """
    return "Date" in str(dtype)  # of types in types too


def _shifted(days: pl.Expr) -> pl.Expr:
    """Return days since 1970 of the same dates in the calendar of today, which skips three leap years of four."""
    centuries = (days - _YEAR_0) // _CENTURY_DAYS
    return pl.when(days < _SINCE).then(days + 2 - centuries + centuries // 4).otherwise(days)


def _entries(dtype: pl.Map) -> pl.List:
    return pl.List(pl.Struct({"key": dtype.key, "value": dtype.value}))
