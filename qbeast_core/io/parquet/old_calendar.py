"""Convert dates and times that Spark wrote in the Julian calendar, used before October 1582, to today's calendar."""

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
# Before this, Java's old classes use one fixed offset from UTC per zone: the standard offset of 2020.
_RULES_SINCE: Final = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OldCalendar:
    """Which values of a file follow the old calendar."""

    # Dates, and timestamps other than INT96.
    has_dates: bool
    has_int96: bool
    # The time zone of the writer.
    zone: str = "UTC"

    @staticmethod
    def of(metadata: Mapping[str, str]) -> OldCalendar | None:
        """Read the metadata of a footer by Spark's rules; None if all values follow today's calendar.

        >>> OldCalendar.of({"org.apache.spark.version": "2.4.8"})
        OldCalendar(has_dates=True, has_int96=True, zone='UTC')
        >>> OldCalendar.of({"org.apache.spark.version": "3.5.0"})
        """
        version = metadata.get("org.apache.spark.version")
        if version is None:  # another writer, or a very old Spark: Spark 4 does not convert it either
            return None
        has_dates = version < "3.0.0" or "org.apache.spark.legacyDateTime" in metadata
        has_int96 = version < "3.1.0" or "org.apache.spark.legacyINT96" in metadata
        if not has_dates and not has_int96:
            return None
        return OldCalendar(has_dates, has_int96, metadata.get("org.apache.spark.timeZone", "UTC"))

    def today(self, values: pl.Expr, stored: PolarsDataType, dtype: PolarsDataType) -> pl.Expr | None:
        """Return the values with the same year, month and day in today's calendar; None if nothing changes."""
        match dtype:
            case pl.Date() if self.has_dates:
                return _shifted(values.to_physical().cast(pl.Int64)).cast(pl.Int32).cast(pl.Date)
            case pl.Datetime(time_zone=str()) if self._is_old(stored):
                return self._times(values)
            case pl.Struct():
                dtypes = {field.name: field.dtype for field in getattr(stored, "fields", ())}
                parts = {
                    field.name: self.today(pl.field(field.name), dtypes[field.name], field.dtype)
                    for field in dtype.fields
                    if field.name in dtypes
                }
                changed = {name: part for name, part in parts.items() if part is not None}
                return values.struct.with_fields(**changed) if changed else None
            case pl.List():
                part = self.today(pl.element(), getattr(stored, "inner", stored), dtype.inner)
                return None if part is None else values.list.eval(part)
            case pl.Map():
                entries = _entries(dtype)
                stored_entries = _entries(stored) if isinstance(stored, pl.Map) else entries
                part = self.today(values.cast(entries), stored_entries, entries)
                return None if part is None else part.cast(dtype)
            case _:
                return None

    def _is_old(self, stored: PolarsDataType) -> bool:
        # Spark writes no other timestamps that Polars reads as nanoseconds.
        is_int96 = isinstance(stored, pl.Datetime) and stored.time_unit == "ns"
        return self.has_int96 if is_int96 else self.has_dates

    def _times(self, values: pl.Expr) -> pl.Expr:
        """Shift local days, then convert the result to UTC by the present rules of the zone."""
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
        """Return the zone (UTC if unknown), and its offset from UTC in microseconds as in Java's old classes."""
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
    return "Date" in str(dtype)  # nested types are part of the text


def _shifted(days: pl.Expr) -> pl.Expr:
    """Return days since 1970 of the same dates in today's calendar, which has three leap days fewer in 400 years."""
    centuries = (days - _YEAR_0) // _CENTURY_DAYS
    return pl.when(days < _SINCE).then(days + 2 - centuries + centuries // 4).otherwise(days)


def _entries(dtype: pl.Map) -> pl.List:
    return pl.List(pl.Struct({"key": dtype.key, "value": dtype.value}))
