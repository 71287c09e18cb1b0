"""A part of a read: files, pages, and a filter of rows. It can be pickled and needs no log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import QbeastError, StorageError
from qbeast_core.io.parquet.page_plan import PageRequest
from qbeast_core.io.parquet.pages import PageReader
from qbeast_core.io.stores.location import open_store
from qbeast_core.io.stores.store import Store
from qbeast_core.log.columns.file_values import PartitionTexts
from qbeast_core.log.columns.stored import StoredColumns
from qbeast_core.log.domains import RowIdsOfFile
from qbeast_core.query.plan.draws import FileDraw
from qbeast_core.query.plan.weight_range import KeyChoice, WeightRange
from qbeast_core.space.arrays import I64Array
from qbeast_core.support.joins import own_column
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.parquet_scan import scan_files
from qbeast_core.table.data.stored_frames import FilesView
from qbeast_core.table.data.whole_batches import whole_batches
from qbeast_core.tree.space.index_values import frame_weights

_Scan: TypeAlias = Callable[[list[str]], pl.LazyFrame]

# Column with the weights of drawn rows.
_DRAWN: Final = own_column("drawn")


@dataclass(frozen=True, slots=True, eq=False)
class RowFilter:
    """Rows and columns that a read returns."""

    # Columns to return, in order, at least one.
    columns: tuple[str, ...]
    # Types of at least the columns in `needed`.
    schema: pl.Schema
    # Columns of the newest revision. Their hash is the weight, except in files with `FileParts.indexed`.
    indexed: tuple[str, ...]
    weights: WeightRange
    predicate: pl.Expr | None = None
    # Also return the weights of rows, in a column of this name.
    weight_column: str | None = None
    # Whether the predicate only compares values. Then row groups of whole files may be skipped by their bounds.
    compares_values: bool = False
    # Keys to return, or to leave out. None: all.
    keys: KeyChoice | None = None

    @property
    def hashes_rows(self) -> bool:
        """Whether the weights of rows are needed."""
        return not self.weights.is_full or self.weight_column is not None or self.keys is not None

    @property
    def needed(self) -> list[str]:
        """Columns to read: the columns to return, and the columns of the filter and the sample."""
        filtered = [] if self.predicate is None else self.predicate.meta.root_names()
        hashed = self.indexed if self.hashes_rows else ()
        return list(dict.fromkeys([*self.columns, *filtered, *hashed]))

    def hashing(self, indexed: tuple[str, ...] | None) -> RowFilter:
        """Return the filter for files whose weights are the hash of other columns. None: of the same columns."""
        return self if indexed is None else replace(self, indexed=indexed)

    def finish(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the sample and the filter, with the columns to return.

        A column `_DRAWN` has the weights of drawn rows, null where the weight is the hash.
        """
        columns = list(self.columns)
        hashed = self.hashes_rows
        if self.predicate is not None:  # filter first: hashing takes longer than most filters
            needed = dict.fromkeys([*columns, *self.indexed]) if hashed else columns
            drawn = [_DRAWN] if _DRAWN in frame.columns else []
            frame = frame.lazy().filter(self.predicate).select(*needed, *drawn).collect()
        if hashed:
            weights = frame_weights(frame, self.indexed)
            chosen = None if self.keys is None else self.keys.mask(weights)
            if _DRAWN in frame.columns:
                weights = frame[_DRAWN].fill_null(pl.Series(weights)).to_numpy()
            if self.weight_column is not None:
                frame = frame.with_columns(pl.Series(self.weight_column, weights))
                columns.append(self.weight_column)
            if not self.weights.is_full:
                inside = (weights >= self.weights.from_) & (weights <= self.weights.last)
                chosen = inside if chosen is None else chosen & inside
            if chosen is not None:
                return frame.lazy().filter(pl.lit(pl.Series(chosen))).select(columns).collect()
        return frame if frame.columns == columns else frame.select(columns)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnPages:
    """Pages of a file with drawn rows, which have their own weights."""

    request: PageRequest
    draw: FileDraw
    # Rows of the file that reads skip, ascending.
    hidden: I64Array


@dataclass(frozen=True, slots=True, eq=False)
class FileParts:
    """Files and pages to read."""

    pages: tuple[PageRequest, ...] = ()
    # Decoded paths of whole files.
    whole: tuple[str, ...] = ()
    # Whole files without some rows: path and indexes of these rows.
    hiding: tuple[tuple[str, I64Array], ...] = ()
    # Sizes of the files in `whole` and `hiding` that other writers made. Their types may differ, so footers are read.
    others: Mapping[str, int] = field(default_factory=dict[str, int])
    # Row ids of the files in `whole` and `hiding`, if a read returns the hidden columns of row tracking.
    row_ids: Mapping[str, RowIdsOfFile] = field(default_factory=dict[str, RowIdsOfFile])
    # Pages of files with drawn rows.
    drawn: tuple[DrawnPages, ...] = ()
    # Columns of the revision of these files, if they differ from the columns of the newest revision.
    indexed: tuple[str, ...] | None = None
    # Values of the partition columns by path; None: the table has no partitions.
    partitions: Mapping[str, PartitionTexts] | None = None
    # Files of revisions with other columns.
    older: tuple[FileParts, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TableFiles:
    """Access to the data files of a table. Picklable: another process opens its own store."""

    store: Store
    pages: PageReader
    # How files store the columns of the table.
    columns: StoredColumns
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the arguments of `open_files`."""
        absolute = self.store.allow_absolute_paths
        opened = partial(open_files, allow_absolute_paths=absolute)
        return opened, (self.store.uri, dict(self.storage_options), self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class ScanTask:
    """A part of a read of one version, made by `Table.scan_tasks`.

    It can be pickled and needs no log: any process with the same version of this library and access to the files can
    read it.

    Attributes
    ----------
    uri : str
        URI of the table. Local tables have absolute paths.
    version : int
        Version to read.
    parts : FileParts
        Files and pages to read.
    keep : RowFilter
        Rows and columns to return.
    columns : StoredColumns
        How the files store the columns of the table.
    storage_options : Mapping
        Options of the store. They are part of the pickle, including secrets, and are not printed.
    allow_absolute_paths : bool
        Whether the log may name files by absolute paths.
    """

    uri: str
    version: int
    parts: FileParts = field(repr=False)
    keep: RowFilter = field(repr=False)
    columns: StoredColumns = field(repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow_absolute_paths: bool = False

    @property
    def schema(self) -> pl.Schema:
        """Columns and types of the rows that `read` returns."""
        return pl.Schema({name: self.keep.schema[name] for name in self.keep.columns})

    @property
    def paths(self) -> tuple[str, ...]:
        """Decoded paths of the files to open. Other tasks may open the same files."""
        return tuple(_paths(self.parts))

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows of the task in frames of bounded size.

        Yields
        ------
        polars.DataFrame
            A frame with `schema`. There is at least one frame; it may have no rows.

        Raises
        ------
        StorageError
            If a file is missing, damaged or cannot be read.
        UnsupportedTableError
            If a path is outside the table.
        """
        absolute = self.allow_absolute_paths
        files = open_files(self.uri, self.storage_options, self.columns, allow_absolute_paths=absolute)
        frame = None
        for frame in read_parts(self.parts, self.keep, files):
            yield frame
        if frame is None:
            yield self.schema.to_frame()


def open_files(
    uri: str,
    storage_options: Mapping[str, str],
    columns: StoredColumns,
    *,
    allow_absolute_paths: bool = False,
) -> TableFiles:
    """Return access to the data files of a table, with an empty cache."""
    store = open_store(uri, storage_options, allow_absolute_paths=allow_absolute_paths)
    return TableFiles(store, PageReader(store), columns, storage_options)


def read_parts(
    parts: FileParts, keep: RowFilter, files: TableFiles, *, limit: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the filtered rows of files and pages, in frames of bounded size."""
    for part in (parts, *parts.older):
        try:
            yield from _read(part, keep.hashing(part.indexed), files, limit)
        except QbeastError:
            raise
        except (OSError, pl.exceptions.PolarsError) as error:
            _refuse_missing(files.store, _paths(part), error)
            raise


def _refuse_missing(store: Store, paths: Iterable[str], cause: Exception) -> None:
    """Raise a `StorageError` that names the first missing file, if there is one."""
    for path in paths:
        try:
            store.size(path)
        except FileNotFoundError:
            message = (
                f"{path!r} of {store.uri!r} is missing, and the log of the table names it: a vacuum removed it from "
                "an old version, or somebody deleted it. Load the table again, restore the file, or an older version; "
                "Table.check() lists all missing files."
            )
            raise StorageError(message, path=path) from cause


def _paths(parts: FileParts) -> Iterator[str]:
    yield from (request.path for request in parts.pages)
    yield from parts.whole
    yield from (path for path, _ in parts.hiding)
    yield from (pages.request.path for pages in parts.drawn)


def _read(parts: FileParts, keep: RowFilter, files: TableFiles, limit: int | None) -> Iterator[pl.DataFrame]:
    options, all_values = dict(files.storage_options), parts.partitions
    view = FilesView(keep.needed, keep.schema, files.columns, parts.partitions)

    def scan(paths: list[str], dropped: I64Array | None = None) -> pl.LazyFrame:
        return scan_files(
            files.store,
            paths,
            keep.needed,
            keep.schema,
            storage_options=options,
            use_bounds=keep.compares_values,
            sizes=parts.others,
            dropped=dropped,
            stored=files.columns,
            partitions=None if all_values is None else {path: all_values[path] for path in paths},
            row_ids=parts.row_ids,
        )

    if parts.pages:
        frames = files.pages.read_batches(
            parts.pages,
            list(view.stored_schema),
            view.stored_schema,
            max_bytes=sizing().batch_bytes,
            fallback=lambda request: pl.concat(_every_row(scan([request.path]), [request.path], scan)),
            convert=view.frame,
        )
        yield from map(keep.finish, frames)
    if parts.whole:
        yield from _collected(scan(list(parts.whole)), keep, limit, parts.whole, scan)
    for path, rows in parts.hiding:
        yield from _collected(scan([path], rows), keep, limit, [path], scan)
    for drawn in parts.drawn:
        yield from _read_drawn(drawn, keep, view, files.pages, scan)


def _read_drawn(
    drawn: DrawnPages, keep: RowFilter, view: FilesView, pages: PageReader, scan: _Scan
) -> Iterator[pl.DataFrame]:
    """Read pages of one file, and select drawn rows by their indexes in the file."""

    def fallback(request: PageRequest) -> pl.DataFrame:
        return pl.concat(_every_row(scan([request.path]), [request.path], scan))[
            pl.Series(request.cuts.rows_in(request.pages))
        ]

    indexes, start = drawn.request.cuts.rows_in(drawn.request.pages), 0
    frames = pages.read_batches(
        [drawn.request],
        list(view.stored_schema),
        view.stored_schema,
        max_bytes=sizing().batch_bytes,
        fallback=fallback,
        convert=view.frame,
    )
    for frame in frames:
        rows = indexes[start : start + frame.height]
        start += frame.height
        is_read, is_drawn, weights = drawn.draw.of(rows)
        drawn_weights = pl.Series(_DRAWN, weights).set(pl.Series(~is_drawn), None)
        is_shown = pl.Series(is_read & ~np.isin(rows, drawn.hidden))
        yield keep.finish(frame.with_columns(drawn_weights).filter(is_shown))


def _every_row(lazy: pl.LazyFrame, paths: Sequence[str], scan: _Scan) -> Iterator[pl.DataFrame]:
    yield pl.DataFrame(schema=lazy.collect_schema())
    yield from whole_batches(lazy, paths, lambda path: scan([path]))


def _collected(
    lazy: pl.LazyFrame, keep: RowFilter, limit: int | None, paths: Sequence[str], scan: _Scan
) -> Iterator[pl.DataFrame]:
    """Run a scan of whole files. The filter and the limit are passed to the reader of Polars if possible."""
    predicate = keep.predicate

    def alone(path: str) -> pl.LazyFrame:
        return scan([path])

    def filtered_here() -> Iterator[pl.DataFrame]:
        for frame in whole_batches(lazy, paths, alone):
            yield frame if predicate is None else frame.lazy().filter(predicate).collect()

    if predicate is not None and not _reader_filters(predicate):
        yield from map(keep.finish, filtered_here())
        return
    query = lazy if predicate is None else lazy.filter(predicate)
    if limit is not None and keep.weights.is_full:
        query = query.head(limit)
    again = None if predicate is None else filtered_here
    yield from map(keep.finish, whole_batches(query, paths, alone, again=again))


def _reader_filters(predicate: pl.Expr) -> bool:
    """Return whether the file reader of Polars supports a filter: it panics on `is_in` with equal nulls."""
    try:
        return '"nulls_equal":true' not in predicate.meta.serialize(format="json")
    except pl.exceptions.PolarsError:  # a Python function cannot be serialized
        return True
