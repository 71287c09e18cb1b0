"""Read whole data files with Polars' own reader: full reads, files of other writers, deletion vectors."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.parquet.old_calendar import OldCalendar, has_times
from qbeast_core.io.parquet.stored_types import stored_type
from qbeast_core.io.stores.store import Store, map_files
from qbeast_core.log.domains.row_ids import RowIdsOfFile
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
    row_ids: Mapping[str, RowIdsOfFile] | None = None,
) -> pl.LazyFrame:
    """Return a scan of whole files in the table's types, without `dropped` rows; missing columns are null.

    `row_ids` fills the hidden columns of row tracking, by path.
    """
    wanted = {name: schema[name] for name in columns}
    row_ids = row_ids or {}
    alike: dict[tuple[_Stored, RowIdsOfFile | None], list[str]] = {}
    for path, stored in zip(paths, _looked_up(store, paths, wanted, sizes), strict=True):
        alike.setdefault((stored, row_ids.get(path)), []).append(store.locate(path))
    scans = [
        pl.scan_parquet(
            located,
            schema=wanted | dict(stored.types),
            missing_columns="insert",
            extra_columns="ignore",
            cast_options=_CASTS,
            storage_options=_as_polars_takes_them(storage_options or {}),
            glob=False,
            hive_partitioning=False,
            row_index_name=_ROW if row_ids or dropped is not None else None,
            use_statistics=use_bounds,
        )
        .select(
            *(stored.column(name, dtype) for name, dtype in wanted.items()),
            *([] if dropped is None and ids is None else [_ROW]),
        )
        .with_columns([] if ids is None else ids.filled(pl.col(_ROW)))
        .drop([_ROW] if dropped is None and ids is not None else [])
        for (stored, ids), located in alike.items()
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
            stored = pl.read_parquet_schema(io.BytesIO(footer))
            calendar = OldCalendar.of(pl.read_parquet_metadata(io.BytesIO(footer))) if timed else None
        except (Unreadable, StorageError, OSError, *SCAN_ERRORS):
            return _Stored()
        read = {name: stored_type(stored[name], dtype) for name, dtype in wanted.items() if name in stored}
        types = tuple((name, dtype) for name, dtype in read.items() if dtype != wanted[name])
        if calendar is None:
            return _Stored(types)
        return _Stored(types, tuple((name, stored[name]) for name in timed if name in stored), calendar)

    return map_files(store, of_file, paths)


def _as_polars_takes_them(storage_options: Mapping[str, str]) -> dict[str, Any] | None:
    """Translate options of `deltalake`, which are all texts: Polars wants this one as a number."""
    numbers = {key: int(text) for key, text in storage_options.items() if key.lower() == "max_retries"}
    return {**storage_options, **numbers} or None
