"""Read whole data files with Polars' own reader: full reads, files of other writers, deletion vectors."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from qbeast_core.errors import StorageError, UnsupportedTableError
from qbeast_core.io.parquet.old_calendar import OldCalendar, has_times
from qbeast_core.io.parquet.other_reader import arrow_schema, scan_by_arrow
from qbeast_core.io.parquet.stored_types import parts_apart, stored_type
from qbeast_core.io.stores.store import Store, map_files
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.own_column import own_column
from qbeast_core.table.data.footers import Unreadable, read_footer_bytes
from qbeast_core.table.data.whole_batches import SCAN_ERRORS

_ROW: Final = own_column("row")
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
) -> pl.LazyFrame:
    """Return a scan of whole files in the table's types, without `dropped` rows; missing columns are null."""
    wanted = {name: schema[name] for name in columns}
    alike: dict[_Stored, list[str]] = {}
    for path, stored in zip(paths, _looked_up(store, paths, wanted, sizes), strict=True):
        alike.setdefault(stored, []).append(path)

    def scan(stored: _Stored, group: Sequence[str]) -> pl.LazyFrame:
        if stored.by_arrow is not None:
            present = {name: dtype for name, dtype in stored.by_arrow if name in wanted}
            lazy = pl.concat(
                [scan_by_arrow(store, path, present or dict(stored.by_arrow[:1])) for path in group]
            )
            missing = [
                pl.lit(None, dtype).alias(name) for name, dtype in wanted.items() if name not in present
            ]
            lazy = lazy.with_columns(missing)
            return lazy if dropped is None else lazy.with_row_index(_ROW)
        return pl.scan_parquet(
            [store.locate(path) for path in group],
            schema=wanted | dict(stored.types),
            missing_columns="insert",
            extra_columns="ignore",
            cast_options=_CASTS,
            storage_options=_as_polars_takes_them(storage_options or {}),
            glob=False,
            hive_partitioning=False,
            row_index_name=None if dropped is None else _ROW,
            use_statistics=use_bounds,
        )

    rest = [] if dropped is None else [_ROW]
    scans = [
        scan(stored, group).select(*(stored.column(name, dtype) for name, dtype in wanted.items()), *rest)
        for stored, group in alike.items()
    ]
    lazy = scans[0] if len(scans) == 1 else pl.concat(scans)
    if dropped is None:
        return lazy
    gone = pl.Series(dropped, dtype=pl.get_index_type())
    return lazy.filter(~pl.col(_ROW).is_in(gone.implode())).drop(_ROW)


@dataclass(frozen=True, slots=True)
class _Stored:
    """How the columns of a file differ from the table's."""

    # Columns that are cast when they have been read, with their types in the file.
    types: tuple[tuple[str, pl.DataType], ...] = ()
    # Columns that may hold old dates and times, with their types in the file.
    times: tuple[tuple[str, pl.DataType], ...] = ()
    # Of these; None: the one of today.
    calendar: OldCalendar | None = None
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


def _looked_up(
    store: Store, paths: Sequence[str], wanted: Mapping[str, pl.DataType], sizes: Mapping[str, int] | None
) -> list[_Stored]:
    """Look at the footers of files; what cannot be read differs in nothing, so that its scan says why it fails."""
    timed = [name for name, dtype in wanted.items() if has_times(dtype)]

    def of_file(path: str) -> _Stored:
        if sizes is not None and path not in sizes:
            return _Stored()
        try:
            size = store.size(path) if sizes is None else sizes[path]
            footer = read_footer_bytes(store, path, size)
        except (Unreadable, StorageError, OSError):
            return _Stored()
        try:
            stored: Mapping[str, pl.DataType] = pl.read_parquet_schema(io.BytesIO(footer))
            calendar = OldCalendar.of(pl.read_parquet_metadata(io.BytesIO(footer))) if timed else None
        except SCAN_ERRORS:
            by_arrow = arrow_schema(footer)
            if by_arrow is None:
                return _Stored()
            _refuse_parts_apart(store, path, by_arrow, wanted)
            types = tuple((name, by_arrow[name]) for name in wanted if name in by_arrow)
            return _Stored(types, by_arrow=tuple(by_arrow.items()))
        _refuse_parts_apart(store, path, stored, wanted)
        read = {name: stored_type(stored[name], dtype) for name, dtype in wanted.items() if name in stored}
        types = tuple((name, dtype) for name, dtype in read.items() if dtype != wanted[name])
        if calendar is None:
            return _Stored(types)
        return _Stored(types, tuple((name, stored[name]) for name in timed if name in stored), calendar)

    return map_files(store, of_file, paths)


def _refuse_parts_apart(
    store: Store, path: str, stored: Mapping[str, pl.DataType], wanted: Mapping[str, pl.DataType]
) -> None:
    """Raise if the file has variants that are shredded: their values are incomplete without the other parts."""
    names = [name for name, dtype in wanted.items() if name in stored and parts_apart(stored[name], dtype)]
    if not names:
        return
    message = (
        f"{path!r} of {store.uri!r} stores parts of variants apart (variantShredding), which qbeast does not read: "
        f"{', '.join(names)}. Nothing was changed. Read other columns, or let Spark read them: "
        f"qbeast_spark_bridge.read_table(spark, {store.uri!r})."
    )
    raise UnsupportedTableError(message, path=store.uri, feature="variantShredding")


def _as_polars_takes_them(storage_options: Mapping[str, str]) -> dict[str, Any] | None:
    """Translate options of `deltalake`, which are all texts: Polars wants this one as a number."""
    numbers = {key: int(text) for key, text in storage_options.items() if key.lower() == "max_retries"}
    return {**storage_options, **numbers} or None
