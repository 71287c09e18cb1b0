"""Read whole data files with Polars' own reader: full reads, files of other writers, deletion vectors."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from qbeast_core.errors import StorageError, UnsupportedTableError
from qbeast_core.io.parquet.old_calendar import OldCalendar, has_times
from qbeast_core.io.parquet.other_reader import arrow_schema, scan_by_arrow
from qbeast_core.io.parquet.stored_types import parts_apart, stored_type
from qbeast_core.io.stores.store import Store, map_files
from qbeast_core.log.columns.file_values import PartitionTexts
from qbeast_core.log.columns.stored import PLAIN, StoredColumns
from qbeast_core.log.domains import RowIdsOfFile
from qbeast_core.space.arrays import I64Array
from qbeast_core.support.joins import own_column
from qbeast_core.table.data.footers import Unreadable, read_footer_bytes
from qbeast_core.table.data.stored_frames import FilesView, names_by_id
from qbeast_core.table.data.whole_batches import SCAN_ERRORS

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
    store: Store,
    paths: Sequence[str],
    columns: Sequence[str],
    schema: pl.Schema,
    *,
    storage_options: dict[str, str] | None = None,
    use_bounds: bool = True,
    sizes: Mapping[str, int] | None = None,
    dropped: I64Array | None = None,
    stored: StoredColumns = PLAIN,
    partitions: Mapping[str, PartitionTexts] | None = None,
    row_ids: Mapping[str, RowIdsOfFile] | None = None,
) -> pl.LazyFrame:
    """Return a scan of whole files in the table's types, without `dropped` rows; missing columns are null.

    `row_ids` fills the hidden columns of row tracking, by path.
    """
    view, row_ids = FilesView(columns, schema, stored, partitions), row_ids or {}
    alike: dict[tuple[_Stored, RowIdsOfFile | None], list[str]] = {}
    for path, of_file in zip(paths, _looked_up(store, paths, view, sizes), strict=True):
        alike.setdefault((of_file, row_ids.get(path)), []).append(path)
    options = _as_polars_takes_them(storage_options or {})
    scans: list[pl.LazyFrame] = []
    for (of_file, ids), same in alike.items():
        seen, counts = of_file.view(view), dropped is not None or ids is not None
        if of_file.by_arrow is None:
            types = seen.stored_schema | dict(of_file.types)
            scan = _scan_by_polars(store, same, types, seen, options, counts=counts, use_bounds=use_bounds)
        else:
            scan = _scan_by_arrow(store, same, dict(of_file.by_arrow), seen, counts=counts)
        values = [of_file.column(name, dtype) for name, dtype in seen.stored_schema.items()]
        constants = seen.constants(same, _number(store, same)) if seen.constant_names else []
        rows = scan.select(*seen.renamed(values), *constants, *([_ROW] if counts else []))
        scans.append(rows if ids is None else rows.with_columns(ids.filled(pl.col(_ROW))))
    lazy = scans[0] if len(scans) == 1 else pl.concat(scans)
    if dropped is not None:
        gone = pl.Series(dropped, dtype=pl.get_index_type())
        lazy = lazy.filter(~pl.col(_ROW).is_in(gone.implode()))
    return lazy if stored.is_plain and dropped is None and not row_ids else lazy.select(columns)


def _scan_by_polars(
    store: Store,
    paths: Sequence[str],
    types: dict[str, pl.DataType],
    view: FilesView,
    options: dict[str, Any] | None,
    *,
    counts: bool,
    use_bounds: bool,
) -> pl.LazyFrame:
    """Return a scan of files with the same types, with indexes of rows if `counts`, and paths if needed."""
    return pl.scan_parquet(
        [store.locate(path) for path in paths],
        schema=types,
        missing_columns="insert",
        extra_columns="ignore",
        cast_options=_CASTS,
        storage_options=options,
        glob=False,
        hive_partitioning=False,
        row_index_name=_ROW if counts else None,
        include_file_paths=_PATH if view.constant_names else None,
        use_statistics=use_bounds,
    )


def _number(store: Store, paths: Sequence[str]) -> pl.Expr:
    """Return the number of the file of each row."""
    located = pl.Series([store.locate(path) for path in paths])
    return pl.col(_PATH).replace_strict(located, pl.Series(range(len(paths)), dtype=pl.UInt32))


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

    def view(self, view: FilesView) -> FilesView:
        """Return the view of this file."""
        return replace(view, columns=view.columns.with_names(dict(self.names))) if self.names else view


def _looked_up(
    store: Store, paths: Sequence[str], view: FilesView, sizes: Mapping[str, int] | None
) -> list[_Stored]:
    """Look at the footers of files; what cannot be read differs in nothing, so that its scan says why it fails."""

    def of_file(path: str) -> _Stored:
        if sizes is not None and path not in sizes:
            return _Stored()
        try:
            size = store.size(path) if sizes is None else sizes[path]
            footer = read_footer_bytes(store, path, size)
            named = _Stored(names=_names_by_id(footer) if view.columns.mode == "id" else ())
        except (Unreadable, StorageError, OSError):
            return _Stored()
        wanted = named.view(view).stored_schema
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

    return map_files(store, of_file, paths)


def _names_by_id(footer: bytes) -> tuple[tuple[int, str], ...]:
    from pyarrow import parquet as pq  # noqa: PLC0415 - slow to load, and few tables need it

    return tuple(sorted(names_by_id(pq.read_schema(io.BytesIO(footer))).items()))


def _scan_by_arrow(
    store: Store, paths: Sequence[str], found: dict[str, pl.DataType], view: FilesView, *, counts: bool
) -> pl.LazyFrame:
    """Return a scan of files that Polars refuses, with the same columns as its own scan."""
    present = {name: dtype for name, dtype in found.items() if name in view.stored_schema}
    first = dict(list(found.items())[:1])
    missing = [
        pl.lit(None, dtype).alias(name) for name, dtype in view.stored_schema.items() if name not in present
    ]
    scans: list[pl.LazyFrame] = []
    for path in paths:
        place = [pl.lit(store.locate(path)).alias(_PATH)] if view.constant_names else []
        scans.append(scan_by_arrow(store, path, present or first).with_columns(*missing, *place))
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
