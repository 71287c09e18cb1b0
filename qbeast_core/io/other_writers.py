"""Files of other writers: their types, the old calendar of Spark, and files that only pyarrow reads.

Spark annotates variants, which Polars does not support.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import StorageError
from qbeast_core.io.store import Store

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


_BATCH_ROWS: Final = 8_192

_INTEGER_BITS: Final[dict[pl.DataType, int]] = {
    pl.Int8(): 8,
    pl.Int16(): 16,
    pl.Int32(): 32,
    pl.Int64(): 64,
    pl.UInt8(): 8,
    pl.UInt16(): 16,
    pl.UInt32(): 32,
    pl.UInt64(): 64,
}
# Types of a file and of a table, other than integers and decimals.
_PAIRS: Final[frozenset[tuple[pl.DataType, pl.DataType]]] = frozenset(
    {
        (pl.Int32(), pl.Date()),
        (pl.Date(), pl.Datetime("us")),
        (pl.Binary(), pl.String()),
        (pl.String(), pl.Binary()),
        *((dtype, pl.Float64()) for dtype, bits in _INTEGER_BITS.items() if bits <= 32),
    }
)
# The fields of a variant.
_BINARIES: Final = pl.Schema({"metadata": pl.Binary(), "value": pl.Binary()})

# 1582-10-15 in days since 1970: from here on both calendars are the same.
_SINCE: Final = -141_427

# 1 March of the year 0 in the old calendar, in days since 1970.
_YEAR_0: Final = -719_470

_CENTURY_DAYS: Final = 36_525
_DAY_US: Final = 86_400_000_000
# Before this, Java's old classes use one fixed offset from UTC per zone: the standard offset of 2020.
_RULES_SINCE: Final = datetime(1900, 1, 1, tzinfo=UTC)


def arrow_schema(footer: bytes) -> pl.Schema | None:
    """Return the types of a file that pyarrow reads; None if it does not.

    >>> file = io.BytesIO()
    >>> pl.DataFrame({"x": [1]}).write_parquet(file)
    >>> dict(arrow_schema(file.getvalue()))
    {'x': Int64}
    """
    from pyarrow import ArrowException  # noqa: PLC0415 - slow to load, and few reads need it
    from pyarrow import parquet as pq  # noqa: PLC0415 - the same

    try:
        return pl.Schema(pq.read_schema(io.BytesIO(footer)))
    except (ArrowException, OSError, pl.exceptions.PolarsError):
        return None


def scan_by_arrow(store: Store, path: str, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Return a scan of some columns of a file in the types that it has."""

    def batches(
        names: list[str] | None, predicate: pl.Expr | None, limit: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        from pyarrow import ArrowException  # noqa: PLC0415 - slow to load, and few reads need it
        from pyarrow import parquet as pq  # noqa: PLC0415 - the same

        wanted = names or list(schema)  # at least one column, because a frame without columns has no rows
        try:
            with pq.ParquetFile(_StoredFile(store, path)) as file:
                rows = 0
                for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
                    frame = pl.DataFrame(batch).select(wanted)
                    frame = frame if limit is None else frame.head(limit - rows)
                    rows += frame.height
                    yield frame if predicate is None else frame.filter(predicate)
                    if limit is not None and rows >= limit:
                        return
        except ArrowException as error:
            message = f"data file {path!r} of {store.uri!r} cannot be read: {error}."
            raise StorageError(message, path=path) from error

    return register_io_source(batches, schema=pl.Schema(schema))


class _StoredFile(io.RawIOBase):
    """A file of a store, as pyarrow reads it."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path, self._at, self._size = store, path, 0, store.size(path)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int | None = -1) -> bytes:
        left = max(self._size - self._at, 0)
        length = left if length is None or length < 0 else min(length, left)
        data = bytes(self._store.get_range(self._path, self._at, length)) if length else b""
        self._at += len(data)
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def stored_type(stored: pl.DataType, target: pl.DataType) -> pl.DataType:
    """Return the type to read a file's column as, so that a strict cast to the table's type loses nothing.

    Polars itself widens numbers and converts timestamps. For types that cannot be cast, the table's type is returned
    and Polars raises.

    >>> stored_type(pl.Int32(), pl.Int8()), stored_type(pl.Int8(), pl.Int32()), stored_type(pl.Int64(), pl.Boolean())
    (Int32, Int32, Boolean)
    >>> stored_type(pl.Struct({"a": pl.Binary, "b": pl.Date}), pl.Struct({"b": pl.Date, "a": pl.String}))
    Struct({'b': Date, 'a': Binary})
    """
    match stored, target:
        case pl.Struct(), pl.Struct():
            stored_fields = {field.name: _type(field.dtype) for field in stored.fields}
            fields = {field.name: _type(field.dtype) for field in target.fields}
            return pl.Struct(
                {name: stored_type(stored_fields.get(name, dtype), dtype) for name, dtype in fields.items()}
            )
        case pl.List(), pl.List():
            return pl.List(stored_type(_type(stored.inner), _type(target.inner)))
        case pl.Map(), pl.Map():
            key = stored_type(_type(stored.key), _type(target.key))
            value = stored_type(_type(stored.value), _type(target.value))
            # Polars casts no keys of maps, and overflows on INT96 in maps, but does both in lists.
            if _type(stored.key) != _type(target.key) or "'ns'" in str(stored):
                return pl.List(pl.Struct({"key": key, "value": value}))
            return pl.Map(key, value)
        case _:
            return stored if _is_cast(stored, target) else target


def parts_apart(stored: Any, target: Any) -> bool:
    """Return whether a file stores parts of a variant apart (shredded), at any depth.

    >>> binaries = {"metadata": pl.Binary, "value": pl.Binary}
    >>> parts_apart(pl.Struct({**binaries, "typed_value": pl.Int64}), pl.Struct(binaries))
    True
    """
    match stored, target:
        case pl.Struct(), pl.Struct():
            stored_fields, fields = stored.to_schema(), target.to_schema()
            if "typed_value" in stored_fields and fields == _BINARIES:
                return True
            return any(parts_apart(dtype, fields.get(name)) for name, dtype in stored_fields.items())
        case pl.List(), pl.List():
            return parts_apart(stored.inner, target.inner)
        case pl.Map(), pl.Map():
            return parts_apart(stored.value, target.value)
        case _:
            return False


def _is_cast(stored: pl.DataType, target: pl.DataType) -> bool:
    """Return whether Spark or deltalake read a type as another one without loss, where a scan of Polars does not."""
    bits, target_bits = _INTEGER_BITS.get(stored), _INTEGER_BITS.get(target)
    if isinstance(target, pl.Decimal):
        return bits is not None or _is_narrowed(stored, target)
    if bits is None or target_bits is None:
        return (stored, target) in _PAIRS
    return stored != target and bits >= target_bits


def _is_narrowed(stored: pl.DataType, target: pl.Decimal) -> bool:
    """Return whether a decimal type needs a cast to another one."""
    if not isinstance(stored, pl.Decimal) or stored.scale > target.scale:
        return False
    return stored.scale < target.scale or (stored.precision or 38) > (target.precision or 38)


def _type(dtype: PolarsDataType) -> pl.DataType:
    """Return an instance of a type: nested types may be classes."""
    return dtype if isinstance(dtype, pl.DataType) else dtype()


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
