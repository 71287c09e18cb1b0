"""A part of a read that needs no log: files, pages, and what to keep of their rows. It pickles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import QbeastError, StorageError
from qbeast_core.io.parquet.page_plan import PageRequest
from qbeast_core.io.parquet.pages import PageReader
from qbeast_core.io.stores.store import Store, open_store
from qbeast_core.query.plan.drawn import FileDraw
from qbeast_core.query.plan.weights import WeightRange
from qbeast_core.space.arrays import I64Array
from qbeast_core.table.data.parquet_scan import scan_files
from qbeast_core.table.data.whole_batches import whole_batches
from qbeast_core.tree.space.columns import frame_weights

_Scan: TypeAlias = Callable[[list[str]], pl.LazyFrame]

# Stored bytes of pages that are decoded at once.
BATCH_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class RowFilter:
    """What a read returns of the rows it meets."""

    # Columns to return, in order, at least one.
    columns: tuple[str, ...]
    # The table's types, of the columns in `needed` at least.
    schema: pl.Schema
    # The table's indexed columns, whose hash is the weight.
    indexed: tuple[str, ...]
    weights: WeightRange
    predicate: pl.Expr | None = None
    # Return the rows' weights besides, in a column of this name.
    weight_column: str | None = None
    # Whether the predicate does nothing else, so that row groups of whole files may be left out by their
    # bounds.
    compares_values: bool = False

    @property
    def needed(self) -> list[str]:
        """Columns to read: those wanted, and those the filter and the sample look at."""
        asked = [] if self.predicate is None else self.predicate.meta.root_names()
        hashed = () if self.weights.is_full and self.weight_column is None else self.indexed
        return list(dict.fromkeys([*self.columns, *asked, *hashed]))

    def finish(self, frame: pl.DataFrame, given: pl.Series | None = None) -> pl.DataFrame:
        """Keep exactly the rows that sample and filter want, and the columns asked for."""
        columns = list(self.columns)
        hashed = not self.weights.is_full or self.weight_column is not None
        if self.predicate is not None:  # before rows are hashed, which costs more than most filters
            needed = list(dict.fromkeys([*columns, *self.indexed])) if hashed else columns
            if given is not None:
                given = given.alias(f"{max(frame.columns, key=len)}_")  # which no column is called
                frame, needed = frame.with_columns(given), [*needed, given.name]
            frame = frame.lazy().filter(self.predicate).select(needed).collect()
            if given is not None:
                given = frame.drop_in_place(given.name)
        if hashed:
            weights = frame_weights(frame, self.indexed)
            if given is not None:
                weights = given.fill_null(pl.Series(weights)).to_numpy()
            if self.weight_column is not None:
                frame = frame.with_columns(pl.Series(self.weight_column, weights))
                columns.append(self.weight_column)
            if not self.weights.is_full:
                inside = (weights >= self.weights.from_) & (weights <= self.weights.last)
                return frame.lazy().filter(pl.lit(pl.Series(inside))).select(columns).collect()
        return frame if frame.columns == columns else frame.select(columns)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnPages:
    """Pages of a file some of whose rows are drawn one by one, by weights of their own."""

    request: PageRequest
    draw: FileDraw
    # Rows of the file that no read returns, ascending.
    hidden: I64Array


@dataclass(frozen=True, slots=True, eq=False)
class FileParts:
    """Files, and pages of files, to read."""

    pages: tuple[PageRequest, ...] = ()
    # Decoded paths of files to read from end to end.
    whole: tuple[str, ...] = ()
    # Files to read whole but for some rows, counted from 0 in the file.
    hiding: tuple[tuple[str, I64Array], ...] = ()
    # Files of `whole` and `hiding` that other writers made, with their bytes: what types they hold is looked
    # up.
    others: Mapping[str, int] = field(default_factory=dict[str, int])
    # Chosen pages of files in which rows are drawn one by one.
    drawn: tuple[DrawnPages, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TableFiles:
    """Where the files are. It pickles: another process opens its own store."""

    store: Store
    pages: PageReader
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what `open_files` needs."""
        opened = partial(open_files, allow_absolute_paths=self.store.allow_absolute_paths)
        return opened, (self.store.uri, dict(self.storage_options))


@dataclass(frozen=True, slots=True, eq=False)
class ScanTask:
    """A part of a read of one version, made by `Table.scan_tasks`.

    It pickles and needs no log: any process of this library's version that reaches the files can read it.

    Attributes
    ----------
    uri : str
        The table; local ones as absolute paths.
    version : int
        The version that is read.
    parts : FileParts
        What is opened.
    keep : RowFilter
        Which rows and columns are returned.
    storage_options : Mapping
        For the store; part of the pickle, secrets included, and never shown.
    allow_absolute_paths : bool
        Whether files may be named by absolute paths.
    """

    uri: str
    version: int
    parts: FileParts = field(repr=False)
    keep: RowFilter = field(repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow_absolute_paths: bool = False

    @property
    def schema(self) -> pl.Schema:
        """Columns that `read` returns, and their types."""
        return pl.Schema({name: self.keep.schema[name] for name in self.keep.columns})

    @property
    def paths(self) -> tuple[str, ...]:
        """Decoded paths of the files that are opened, as the table names them; other tasks may open them too."""
        return tuple(_paths(self.parts))

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield exactly the rows of the task, in frames of bounded size.

        Yields
        ------
        polars.DataFrame
            Of `schema`; at least one, perhaps without rows.

        Raises
        ------
        StorageError
            If a file cannot be read, or is gone or damaged.
        UnsupportedTableError
            If a path leads out of the table.
        """
        files = open_files(self.uri, self.storage_options, allow_absolute_paths=self.allow_absolute_paths)
        frame = None
        for frame in read_parts(self.parts, self.keep, files):
            yield frame
        if frame is None:
            yield self.schema.to_frame()


def open_files(
    uri: str, storage_options: Mapping[str, str], *, allow_absolute_paths: bool = False
) -> TableFiles:
    """Return where the files of a table are, with nothing remembered of them."""
    store = open_store(uri, storage_options, allow_absolute_paths=allow_absolute_paths)
    return TableFiles(store, PageReader(store), storage_options)


def read_parts(
    parts: FileParts, keep: RowFilter, files: TableFiles, *, limit: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield exactly the rows that are wanted of these files and pages, in frames of bounded size."""
    try:
        yield from _read(parts, keep, files, limit)
    except QbeastError:
        raise
    except (OSError, pl.exceptions.PolarsError) as error:
        _refuse_missing(files.store, _paths(parts), error)
        raise


def _refuse_missing(store: Store, paths: Iterable[str], cause: Exception) -> None:
    """Raise a `StorageError` that names the first of some files that is not there; return if all are."""
    for path in paths:
        try:
            store.size(path)
        except FileNotFoundError:
            message = (
                f"{path!r} of {store.uri!r} is gone, and the table's log names it: a vacuum took it away from an old "
                "version, or somebody else did. Load the table again, restore the file, or an older version; "
                "Table.check() lists all missing files."
            )
            raise StorageError(message, path=path) from cause


def _paths(parts: FileParts) -> Iterator[str]:
    yield from (request.path for request in parts.pages)
    yield from parts.whole
    yield from (path for path, _ in parts.hiding)
    yield from (one.request.path for one in parts.drawn)


def _read(parts: FileParts, keep: RowFilter, files: TableFiles, limit: int | None) -> Iterator[pl.DataFrame]:
    options = dict(files.storage_options)

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
        )

    if parts.pages:
        frames = files.pages.read_batches(
            parts.pages,
            keep.needed,
            keep.schema,
            max_bytes=BATCH_BYTES,
            fallback=lambda request: pl.concat(_every_row(scan([request.path]), [request.path], scan)),
        )
        yield from map(keep.finish, frames)
    if parts.whole:
        yield from _collected(scan(list(parts.whole)), keep, limit, parts.whole, scan)
    for path, rows in parts.hiding:
        yield from _collected(scan([path], rows), keep, limit, [path], scan)
    for one in parts.drawn:
        yield from _read_drawn(one, keep, files, scan)


def _read_drawn(drawn: DrawnPages, keep: RowFilter, files: TableFiles, scan: _Scan) -> Iterator[pl.DataFrame]:
    """Read pages of one file, whose rows are known by their numbers."""

    def rows_of(request: PageRequest) -> I64Array:
        rows = (request.pages[:, None] * request.page_rows + np.arange(request.page_rows)).ravel()
        return rows[rows < request.num_rows]

    def fallback(request: PageRequest) -> pl.DataFrame:
        return pl.concat(_every_row(scan([request.path]), [request.path], scan))[pl.Series(rows_of(request))]

    numbers, at = rows_of(drawn.request), 0
    for frame in files.pages.read_batches(
        [drawn.request], keep.needed, keep.schema, max_bytes=BATCH_BYTES, fallback=fallback
    ):
        rows = numbers[at : at + frame.height]
        at += frame.height
        is_read, is_given, weights = drawn.draw.of(rows)
        shown = pl.Series(is_read & ~np.isin(rows, drawn.hidden))
        given = pl.Series(weights).set(pl.Series(~is_given), None)
        yield keep.finish(frame.filter(shown), given.filter(shown))


def _every_row(lazy: pl.LazyFrame, paths: Sequence[str], scan: _Scan) -> Iterator[pl.DataFrame]:
    yield pl.DataFrame(schema=lazy.collect_schema())
    yield from whole_batches(lazy, paths, lambda path: scan([path]))


def _collected(
    lazy: pl.LazyFrame, keep: RowFilter, limit: int | None, paths: Sequence[str], scan: _Scan
) -> Iterator[pl.DataFrame]:
    """Run a scan of whole files; Polars' reader filters where it can, and cuts where no sample comes after."""
    predicate = keep.predicate

    def alone(path: str) -> pl.LazyFrame:
        return scan([path])

    def filtered_here() -> Iterator[pl.DataFrame]:
        for frame in whole_batches(lazy, paths, alone):
            yield frame if predicate is None else frame.lazy().filter(predicate).collect()

    if predicate is not None and not _reader_filters(predicate):
        yield from map(keep.finish, filtered_here())
        return
    asked = lazy if predicate is None else lazy.filter(predicate)
    if limit is not None and keep.weights.is_full:
        asked = asked.head(limit)
    again = None if predicate is None else filtered_here
    yield from map(keep.finish, whole_batches(asked, paths, alone, again=again))


def _reader_filters(predicate: pl.Expr) -> bool:
    """Return whether Polars' file reader supports a filter: it panics on lists that match null."""
    try:
        return '"nulls_equal":true' not in predicate.meta.serialize(format="json")
    except pl.exceptions.PolarsError:  # holds a Python function
        return True
