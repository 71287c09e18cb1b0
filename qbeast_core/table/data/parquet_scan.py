"""Read whole data files with Polars' own reader: full reads, files of other writers, deletion vectors."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import polars as pl

from qbeast_core.errors import StorageError, UnsupportedTableError
from qbeast_core.io.footer import Unreadable, read_footer_bytes
from qbeast_core.io.other_writers import (
    OldCalendar,
    arrow_schema,
    has_times,
    parts_apart,
    scan_by_arrow,
    stored_type,
)
from qbeast_core.io.store import Store, map_files
from qbeast_core.space.values import I64Array
from qbeast_core.support.frames import own_column
from qbeast_core.table.data.file_scan import FileScan, TableFiles
from qbeast_core.table.data.query_batches import query_batches
from qbeast_core.table.data.row_codec import RowCodec, names_by_id

# What a damaged file makes Polars raise; a panic is not an `Exception`.
SCAN_ERRORS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)

# A condition that is evaluated inside the reader of a file fails under the reader's name.
_IS_OF_A_FILE: Final = re.compile(r"^parquet:(?! Invalid parameter: conversion from )")

_ROW: Final = own_column("row")
_PATH: Final = own_column("path")
_CASTS: Final = pl.ScanCastOptions(
    integer_cast="upcast",
    float_cast="upcast",
    datetime_cast=["nanosecond-downcast", "millisecond-upcast", "convert-timezone"],
    missing_struct_fields="insert",
    extra_struct_fields="ignore",
    categorical_to_string="allow",
)


def scan_files(
    files: TableFiles,
    scans: Sequence[FileScan],
    columns: Sequence[str],
    schema: pl.Schema,
    *,
    use_bounds: bool = True,
    place_column: str | None = None,
) -> pl.LazyFrame:
    """Return a scan of whole files in the types of the table, without hidden rows; missing columns are null.

    `place_column` is the name of a column with the index of each row in its file.
    """
    codec = RowCodec(files.columns, columns, schema)
    alike: dict[tuple[object, ...], tuple[_Stored, list[FileScan]]] = {}
    for scan, stored in zip(
        scans, map_files(files.store, partial(_look_up, files, codec), scans), strict=True
    ):
        key = (stored, scan.path if scan.needs_places or place_column is not None else None)
        alike.setdefault(key, (stored, []))[1].append(scan)
    lazies = [
        _scan_alike(files, same, stored, codec, use_bounds=use_bounds, place_column=place_column)
        for stored, same in alike.values()
    ]
    return lazies[0] if len(lazies) == 1 else pl.concat(lazies)


def whole_batches(
    lazy: pl.LazyFrame,
    scans: Sequence[FileScan],
    scan: Callable[[Sequence[FileScan]], pl.LazyFrame],
    *,
    again: Callable[[], Iterator[pl.DataFrame]] | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield all rows of a scan of files, in frames of bounded size and in order, or raise an error that names a file.

    `again` yields the rows if the query fails although each file can be read.
    """
    rows = 0
    try:
        for batch in query_batches(lazy):
            rows += batch.height
            yield batch
    except SCAN_ERRORS as error:
        for file in scans:
            _refuse_damaged(file.path, scan([file]))
        if again is None:
            is_of_a_file = isinstance(error, pl.exceptions.PanicException) or _IS_OF_A_FILE.search(str(error))
            if not is_of_a_file:
                raise  # the condition is at fault, not a file
            message = f"one of {len(scans)} data files cannot be read: {error}."
            raise StorageError(message, path=scans[0].path) from error
    else:
        return
    for batch in again():
        yield batch.slice(rows)
        rows = max(rows - batch.height, 0)


def _scan_alike(
    files: TableFiles,
    scans: Sequence[FileScan],
    stored: _Stored,
    codec: RowCodec,
    *,
    use_bounds: bool,
    place_column: str | None,
) -> pl.LazyFrame:
    """Return a scan of files with the same types. A file whose rows need their places is alone."""
    seen, counts = stored.codec(codec), scans[0].needs_places or place_column is not None
    if stored.by_arrow is None:
        types = seen.stored_schema | dict(stored.types)
        lazy = _scan_by_polars(files, scans, types, seen, counts=counts, use_bounds=use_bounds)
    else:
        lazy = _scan_by_arrow(files.store, scans, dict(stored.by_arrow), seen, counts=counts)
    values = [stored.column(name, dtype) for name, dtype in seen.stored_schema.items()]
    constants = seen.constants_of(scans, _number(files.store, scans)) if seen.constant_names else []
    lazy = lazy.select(*seen.columns_of(values), *constants, *([_ROW] if counts else []))
    ids, hidden, only = scans[0].row_ids, scans[0].hidden, scans[0].only
    if ids is not None:
        lazy = lazy.with_columns(ids.filled(pl.col(_ROW), codec.names))
    if only is not None:
        lazy = lazy.filter(_is_listed(only))
    elif hidden is not None:
        lazy = lazy.filter(~_is_listed(hidden))
    places = [] if place_column is None else [pl.col(_ROW).cast(pl.Int64).alias(place_column)]
    return lazy.select(*codec.names, *places) if counts or not files.columns.is_plain else lazy


def _is_listed(rows: I64Array) -> pl.Expr:
    return pl.col(_ROW).is_in(pl.Series(rows, dtype=pl.get_index_type()).implode())


def _scan_by_polars(
    files: TableFiles,
    scans: Sequence[FileScan],
    types: dict[str, pl.DataType],
    codec: RowCodec,
    *,
    counts: bool,
    use_bounds: bool,
) -> pl.LazyFrame:
    """Return a scan of files with the same types, with indexes of rows if `counts`, and paths if needed."""
    return pl.scan_parquet(
        [files.store.locate(scan.path) for scan in scans],
        schema=types,
        missing_columns="insert",
        extra_columns="ignore",
        cast_options=_CASTS,
        storage_options=_as_polars_takes_them(files.location.storage_options),
        glob=False,
        hive_partitioning=False,
        row_index_name=_ROW if counts else None,
        include_file_paths=_PATH if codec.constant_names else None,
        use_statistics=use_bounds,
    )


def _number(store: Store, scans: Sequence[FileScan]) -> pl.Expr:
    """Return the number of the file of each row."""
    located = pl.Series([store.locate(scan.path) for scan in scans])
    return pl.col(_PATH).replace_strict(located, pl.Series(range(len(scans)), dtype=pl.UInt32))


@dataclass(frozen=True, slots=True)
class _Stored:
    """How the columns of a file differ from the table's."""

    # Columns that are cast when they have been read, with their types in the file.
    types: tuple[tuple[str, pl.DataType], ...] = ()
    # Columns that may hold old dates and times, with their types in the file.
    times: tuple[tuple[str, pl.DataType], ...] = ()
    # Of these; None: the one of today.
    calendar: OldCalendar | None = None
    # Ids and names of its fields, if the table finds them by id.
    names: tuple[tuple[int, str], ...] = ()
    # All columns with their types, if the reader of Polars refuses the file; it is read with pyarrow then.
    by_arrow: tuple[tuple[str, pl.DataType], ...] | None = None

    def column(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """Return a column of the file as the table has it."""
        values = pl.col(name).cast(dtype) if name in dict(self.types) else pl.col(name)
        stored = dict(self.times).get(name)
        moved = (
            None if stored is None or self.calendar is None else self.calendar.today(values, stored, dtype)
        )
        return values if moved is None else moved.alias(name)

    def codec(self, codec: RowCodec) -> RowCodec:
        """Return the codec of this file."""
        return replace(codec, columns=codec.columns.with_names(dict(self.names))) if self.names else codec


def _look_up(files: TableFiles, codec: RowCodec, scan: FileScan) -> _Stored:
    """Look at the footer of a file. One that cannot be read differs in nothing, so that its scan says why it fails."""
    if not scan.may_differ:
        return _Stored()
    store, path = files.store, scan.path
    try:
        footer = read_footer_bytes(store, path, scan.size_bytes)
        named = _Stored(names=_footer_names(footer) if files.columns.mode == "id" else ())
    except (Unreadable, StorageError, OSError):
        return _Stored()
    wanted = named.codec(codec).stored_schema
    timed = [name for name, dtype in wanted.items() if has_times(dtype)]
    try:
        found: Mapping[str, pl.DataType] = pl.read_parquet_schema(io.BytesIO(footer))
        calendar = OldCalendar.of(pl.read_parquet_metadata(io.BytesIO(footer))) if timed else None
    except SCAN_ERRORS:
        by_arrow = arrow_schema(footer)
        if by_arrow is None:
            return _Stored()
        _refuse_parts_apart(store, path, by_arrow, wanted)
        types = tuple((name, by_arrow[name]) for name in wanted if name in by_arrow)
        return replace(named, types=types, by_arrow=tuple(by_arrow.items()))
    _refuse_parts_apart(store, path, found, wanted)
    read = {name: stored_type(found[name], dtype) for name, dtype in wanted.items() if name in found}
    types = tuple((name, dtype) for name, dtype in read.items() if dtype != wanted[name])
    if calendar is None:
        return replace(named, types=types)
    times = tuple((name, found[name]) for name in timed if name in found)
    return replace(named, types=types, times=times, calendar=calendar)


def _footer_names(footer: bytes) -> tuple[tuple[int, str], ...]:
    from pyarrow import parquet as pq  # noqa: PLC0415 - slow to load, and few tables need it

    return tuple(sorted(names_by_id(pq.read_schema(io.BytesIO(footer))).items()))


def _scan_by_arrow(
    store: Store, files: Sequence[FileScan], found: dict[str, pl.DataType], codec: RowCodec, *, counts: bool
) -> pl.LazyFrame:
    """Return a scan of files that Polars refuses, with the same columns as its own scan."""
    stored_schema = codec.stored_schema
    present = {name: dtype for name, dtype in found.items() if name in stored_schema}
    first = dict(list(found.items())[:1])
    missing = [
        pl.lit(None, dtype).alias(name) for name, dtype in stored_schema.items() if name not in present
    ]
    scans: list[pl.LazyFrame] = []
    for file in files:
        place = [pl.lit(store.locate(file.path)).alias(_PATH)] if codec.constant_names else []
        scans.append(scan_by_arrow(store, file.path, present or first).with_columns(*missing, *place))
    return pl.concat(scans).with_row_index(_ROW) if counts else pl.concat(scans)


def _refuse_parts_apart(
    store: Store, path: str, stored: Mapping[str, pl.DataType], wanted: Mapping[str, pl.DataType]
) -> None:
    """Raise if the file has variants that are shredded: their values are incomplete without the other parts."""
    names = [name for name, dtype in wanted.items() if name in stored and parts_apart(stored[name], dtype)]
    if not names:
        return
    message = (
        f"{path!r} of {store.uri!r} stores parts of variants apart (variantShredding), which qbeast does not read: "
        f"{', '.join(names)}. Read other columns, or let Spark read them: "
        f"qbeast_spark_bridge.read_table(spark, {store.uri!r})."
    )
    raise UnsupportedTableError(message, path=store.uri, feature="variantShredding")


def _as_polars_takes_them(storage_options: Mapping[str, str]) -> dict[str, Any] | None:
    """Translate options of `deltalake`, which are all texts: Polars wants this one as a number."""
    numbers = {key: int(text) for key, text in storage_options.items() if key.lower() == "max_retries"}
    return {**storage_options, **numbers} or None


def _refuse_damaged(path: str, lazy: pl.LazyFrame) -> None:
    try:
        for _ in query_batches(lazy):
            pass
    except SCAN_ERRORS as error:
        message = (
            f"data file {path!r} cannot be read as the table's columns: {error}. It is damaged, or no file of this "
            "table; restore it, or an older version of the table. `Table.check` names all such "
            "files."
        )
        raise StorageError(message, path=path) from error
