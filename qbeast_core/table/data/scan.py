"""Data files to read, and their rows as rows of the table: names, ids, types, partition values. Picklable."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError, UnsupportedTableError
from qbeast_core.io.catalog.lent import LentOptions
from qbeast_core.io.footer import Unreadable, read_footer_bytes
from qbeast_core.io.location import Location
from qbeast_core.io.other_writers import (
    OldCalendar,
    arrow_schema,
    has_times,
    parts_apart,
    scan_by_arrow,
    stored_type,
)
from qbeast_core.io.pages import PageReader, PageRequest
from qbeast_core.io.store import Store, map_files
from qbeast_core.log.columns import COLUMN_ID, NESTED_IDS, StoredColumns, physical_name
from qbeast_core.log.rebase import RowIdsOfFile
from qbeast_core.log.schema import VOID
from qbeast_core.log.values import PartitionTexts, typed_values
from qbeast_core.plan.weights import FileDraw
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.support.frames import own_column
from qbeast_core.table.data.frames import query_batches

if TYPE_CHECKING:
    from qbeast_core.io.encode import EncodedFile
    from qbeast_core.io.footer import PageCuts
    from qbeast_core.space.values import I32Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileScan:
    """The rows to read of one file."""

    # Decoded path.
    path: str
    size_bytes: int
    # Whether the types of its columns may differ from the types of the table. Then its footer is read first.
    may_differ: bool = True
    # Pages to read. None: the whole file.
    pages: PageRequest | None = None
    # Indexes of deleted rows, ascending. None: there are none.
    hidden: I64Array | None = None
    # Indexes of the only rows to read, ascending; deleted rows are not among them. None: all rows.
    only: I64Array | None = None
    # Rows with their own weights. Only for reads of pages.
    draw: FileDraw | None = None
    # Columns whose hash is the weight of a row, if they differ from the columns of the newest revision.
    hashed: tuple[str, ...] | None = None
    # Texts of the values of the partition columns.
    partition: PartitionTexts = ()
    # Ids of rows, if a read returns the hidden columns of row tracking.
    row_ids: RowIdsOfFile | None = None

    @property
    def needs_places(self) -> bool:
        """Whether a read needs the index of each row in the file."""
        parts = self.hidden, self.only, self.draw, self.row_ids
        return any(part is not None for part in parts)

    def shown(self, rows: I64Array) -> BoolArray:
        """Return which rows of the file to read. `rows` are their indexes, ascending."""
        if self.only is not None:
            return _are_listed(rows, self.only)
        return np.ones(len(rows), np.bool_) if self.hidden is None else ~_are_listed(rows, self.hidden)

    def split(self, count: int) -> list[FileScan]:
        """Return parts with about the same number of pages."""
        if self.pages is None or count == 1:
            return [self]
        return [
            replace(
                self,
                pages=part,
                hidden=None
                if self.hidden is None
                else _within(self.hidden, part.spans[0][0], part.spans[-1][1]),
                only=None if self.only is None else _within(self.only, part.spans[0][0], part.spans[-1][1]),
            )
            for part in self.pages.split(np.array_split(self.pages.pages, count))
        ]


def _are_listed(rows: I64Array, listed: I64Array) -> BoolArray:
    """Return which rows are in another array. Both are ascending and without duplicates."""
    if not len(listed) or not len(rows):
        return np.zeros(len(rows), np.bool_)
    if len(rows) > len(listed):  # search the longer array
        found = np.zeros(len(rows), np.bool_)
        found[np.searchsorted(rows, listed[_are_listed(listed, rows)])] = True
        return found
    places = np.minimum(np.searchsorted(listed, rows), len(listed) - 1)
    return np.equal(listed[places], rows)


def _within(rows: I64Array, first: int, end: int | None) -> I64Array:
    return rows[np.searchsorted(rows, first) : None if end is None else np.searchsorted(rows, end)]


@dataclass(frozen=True, slots=True, eq=False)
class TableFiles:
    """Access to the data files of a table. Picklable: another process opens its own store."""

    location: Location
    pages: PageReader
    # How files store the columns of the table.
    columns: StoredColumns

    @property
    def store(self) -> Store:
        """Store of the table."""
        return self.location.store

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the arguments of `open_files`."""
        return open_files, (self.location, self.columns)


def open_files(location: Location, columns: StoredColumns) -> TableFiles:
    """Return access to the data files of a table, with an empty cache."""
    return TableFiles(location, PageReader(location.store), columns)


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class RowCodec:
    """The rows of files as rows of a table."""

    columns: StoredColumns
    # Names of the columns in the table, and types of at least these.
    names: Sequence[str]
    schema: pl.Schema

    @cached_property
    def stored_schema(self) -> pl.Schema:
        """Columns to read from files, with their types there."""
        columns = {} if self.columns.mode == "none" else self.columns.columns
        found = ((columns.get(name), name) for name in self._from_files)
        return pl.Schema(
            (name, self.schema[name]) if column is None else (column.stored_name, column.stored_type)
            for column, name in found
        )

    @cached_property
    def constant_names(self) -> list[str]:
        """Partition columns, whose values are in the log."""
        of_files = set(self._from_files)
        return [name for name in self.names if name not in of_files]

    def rows(self, stored: pl.DataFrame, scans: Sequence[FileScan], counts: Sequence[int]) -> pl.DataFrame:
        """Return rows of the table. The files and their numbers of rows are in the order of rows.

        The numbers are needed only if there are partition columns.
        """
        if self.columns.is_plain:
            return stored
        renamed = [self._renamed(series, name) for series, name in zip(stored, self._from_files, strict=True)]
        frame = pl.DataFrame(renamed) if renamed else pl.DataFrame(height=stored.height)
        if self.constant_names:
            numbers = np.repeat(np.arange(len(scans)), counts)
            frame = frame.hstack(self._constants(scans)[pl.Series(numbers)])
        return frame.select(self.names)

    def columns_of(self, values: Sequence[pl.Expr]) -> list[pl.Expr]:
        """Return the columns of the table that files have as expressions, from the columns of `stored_schema`."""
        if self.columns.is_plain:
            return list(values)
        return [self._named(value, name) for value, name in zip(values, self._from_files, strict=True)]

    def constants_of(self, scans: Sequence[FileScan], number: pl.Expr) -> list[pl.Expr]:
        """Return the partition columns as expressions, given the number of the file of a row."""
        return [pl.lit(column).gather(number).alias(column.name) for column in self._constants(scans)]

    @cached_property
    def _from_files(self) -> list[str]:
        return self.columns.read_from_files(self.names)

    def _renamed(self, values: pl.Series, name: str) -> pl.Series:
        column = self.columns.columns.get(name)
        named = values.alias(name)
        same = column is None or column.stored_type == column.dtype
        return named if same else _with_field_names(named, self.schema[name])

    def _named(self, values: pl.Expr, name: str) -> pl.Expr:
        column = self.columns.columns.get(name)
        if column is None or column.stored_type == column.dtype:
            return values.alias(name)
        rename = partial(_with_field_names, dtype=column.dtype)
        return values.map_batches(rename, return_dtype=column.dtype, is_elementwise=True).alias(name)

    def _constants(self, scans: Sequence[FileScan]) -> pl.DataFrame:
        """Return the values of the partition columns, one row per file."""
        columns: list[pl.Series] = []
        for name in self.constant_names:
            at = self.columns.partitions.index(name)
            texts = pl.Series(name, [scan.partition[at] for scan in scans], dtype=pl.String)
            columns.append(typed_values(texts, self.columns.columns[name].dtype))
        return pl.DataFrame(columns)


def encode_rows(
    rows: pl.DataFrame,
    columns: StoredColumns,
    *,
    weights: I32Array | None,
    cuts: PageCuts,
    statistics: Sequence[str] = (),
    dictionary: Sequence[str] = (),
    levels: Mapping[str, int] | None = None,
    codec: str = "zstd",
    values: Mapping[str, pl.Series] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> EncodedFile:
    """Return a data file of rows without columns that files do not have. Columns have their names in the table."""
    from qbeast_core.io.encode import encode_data_file  # noqa: PLC0415 - for writes alone

    name = columns.stored_name
    return encode_data_file(
        rows.rename(name) if columns.is_mapped else rows,
        weights=weights,
        cuts=cuts,
        statistics=[*map(name, statistics)],
        dictionary=[*map(name, dictionary)],
        codec=codec,
        levels={name(column): level for column, level in (levels or {}).items()},
        values={name(column): distinct for column, distinct in (values or {}).items()},
        special_types=columns.stored_special_types,
        stored=partial(_as_stored, columns=columns) if columns.is_mapped else None,
        metadata=metadata,
    )


def _with_field_names(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return values of structs with the names of fields of another type, which is the same otherwise.

    >>> _with_field_names(pl.Series([{"a": 1}, None]), pl.Struct({"b": pl.Int64})).to_list()
    [{'b': 1}, None]
    """
    array = values.to_arrow(compat_level=pl.CompatLevel.newest())
    return pl.Series(values.name, _retyped(array, _arrow_type(array.type, dtype)), dtype=dtype)


def _retyped(array: Any, arrow_type: Any) -> Any:
    """Return an Arrow array with other names and metadata of fields; nothing is copied."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and most reads do without

    return pa.array(_Retyped(array, arrow_type))


@dataclass(frozen=True, slots=True)
class _Retyped:
    """An array of the Arrow C interface with another schema."""

    array: Any
    arrow_type: Any

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        del requested_schema
        return self.arrow_type.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


def _arrow_type(found: Any, dtype: Any) -> Any:
    """Return an Arrow type with the names of fields of a type."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    match dtype:
        case pl.Struct():
            fields = zip(found.fields, dtype.fields, strict=True)
            return pa.struct([pa.field(new.name, _arrow_type(old.type, new.dtype)) for old, new in fields])
        case pl.List():
            return _list_like(found, pa.field("item", _arrow_type(found.value_type, dtype.inner)))
        case pl.Map():
            return pa.map_(_arrow_type(found.key_type, dtype.key), _arrow_type(found.item_type, dtype.value))
        case _:
            return found


def _list_like(found: Any, item: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.large_list(item) if pa.types.is_large_list(found) else pa.list_(item)


def _as_stored(table: Any, columns: StoredColumns) -> Any:
    """Return an Arrow table of columns by their names in files, with the names and ids of all fields.

    Columns that the table does not have stay as they are.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    for at, name in enumerate(table.column_names):
        column = columns.columns.get(columns.name(name))
        if column is None or columns.mode == "none":
            continue
        found = table.column(at)
        ids = (column.field.get("metadata") or {}).get(NESTED_IDS) or {}
        field = _stored_field(pa.field(name, found.type), column.field, ids, (column.stored_name,))
        chunks = (
            [_retyped(chunk, field.type) for chunk in found.chunks]
            if field.type != found.type
            else found.chunks
        )
        table = table.set_column(at, field, pa.chunked_array(chunks, type=field.type))
    return table


def _stored_field(found: Any, field: Mapping[str, Any], ids: Mapping[str, int], path: tuple[str, ...]) -> Any:
    stored = _stored_arrow(found.type, field["type"], ids, path)
    number = (field.get("metadata") or {}).get(COLUMN_ID)
    return _with_id(found.with_type(stored).with_name(physical_name(field)), number)


def _stored_arrow(found: Any, dtype: Any, ids: Mapping[str, int], path: tuple[str, ...]) -> Any:
    """Return an Arrow type with the names and ids of fields in files. Ids of elements are for Iceberg."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    if not isinstance(dtype, Mapping) or dtype.get("type") not in ("struct", "array", "map"):
        return found

    def part(name: str, found: Any) -> Any:
        below = (*path, name)
        arrow_type = _stored_arrow(
            found, dtype["elementType" if name == "element" else f"{name}Type"], ids, below
        )
        return _with_id(pa.field(name, arrow_type, nullable=name != "key"), ids.get(".".join(below)))

    if dtype["type"] == "struct":
        fields = [field for field in dtype["fields"] if field["type"] != VOID]  # files do not have these
        pairs = zip(found.fields, fields, strict=True)
        return pa.struct(
            [_stored_field(old, new, _ids_of(new, ids), _path_of(new, path)) for old, new in pairs]
        )
    if dtype["type"] == "array":
        return _list_like(found, part("element", found.value_type))
    return pa.map_(part("key", found.key_type), part("value", found.item_type))


def _ids_of(field: Mapping[str, Any], above: Mapping[str, int]) -> Mapping[str, int]:
    return (field.get("metadata") or {}).get(NESTED_IDS) or above


def _path_of(field: Mapping[str, Any], above: tuple[str, ...]) -> tuple[str, ...]:
    own = (field.get("metadata") or {}).get(NESTED_IDS)
    return (physical_name(field),) if own else (*above, physical_name(field))


def _with_id(field: Any, number: int | None) -> Any:
    return field if number is None else field.with_metadata({"PARQUET:field_id": str(number)})


def _names_by_id(schema: Any) -> dict[int, str]:
    """Return the names of the fields of an Arrow schema of a Parquet file, by their ids."""
    names: dict[int, str] = {}
    waiting = list(schema)
    while waiting:
        field = waiting.pop()
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            names[int(number)] = field.name
        waiting += [field.type.field(at) for at in range(field.type.num_fields)]
    return names


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
    at_once: bool = False,
) -> Iterator[pl.DataFrame]:
    """Yield all rows of a scan of files, in frames of bounded size and in order, or raise an error that names a file.

    `again` yields the rows if the query fails although each file can be read. `at_once`: in one frame, which takes less
    time.
    """
    rows = 0
    try:
        for batch in [lazy.collect(engine="streaming")] if at_once else query_batches(lazy):
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
        **store_arguments(files.location.storage_options),
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

    return tuple(sorted(_names_by_id(pq.read_schema(io.BytesIO(footer))).items()))


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


# What Polars calls credentials that a function returns, if not as options of a store.
_POLARS_NAMES: Final = {
    "azure_storage_sas_token": "sas_token",
    "azure_storage_token": "bearer_token",
    "google_bearer_token": "bearer_token",
}


def store_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments of a scan. Credentials of a catalog are requested when the scan needs them, and again later."""
    others = options.others if isinstance(options, LentOptions) else options
    # Options of deltalake are all texts: Polars wants this one as a number.
    numbers = {key: int(text) for key, text in others.items() if key.lower() == "max_retries"}
    chosen: dict[str, Any] = {"storage_options": {**others, **numbers} or None}
    if not isinstance(options, LentOptions):
        return chosen

    def credentials() -> tuple[dict[str, str], int | None]:
        lent, due_ms = options.lent()
        named = {_POLARS_NAMES.get(key, key): value for key, value in lent.items()}
        return named, None if due_ms is None else due_ms // 1000

    return {**chosen, "credential_provider": credentials}


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
