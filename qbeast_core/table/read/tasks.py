"""A part of a read: files, the pages with matching rows, and a filter of rows. Picklable, without the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import QbeastError, StorageError
from qbeast_core.io.location import Location
from qbeast_core.io.pages import PageRequest
from qbeast_core.io.store import Store
from qbeast_core.log.columns import StoredColumns
from qbeast_core.plan.nodes import named_columns
from qbeast_core.plan.weights import KeyChoice, WeightRange
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.support.frames import own_column
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.frames import has_any_width
from qbeast_core.table.data.scan import FileScan, RowCodec, TableFiles, open_files, scan_files, whole_batches
from qbeast_core.tree.grid import frame_weights

# Column with the weights of drawn rows.
_DRAWN: Final = own_column("drawn")

# Columns of a filter are read first if this many times more columns are needed.
_READ_FIRST: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class RowFilter:
    """Rows and columns that a read returns."""

    # Columns to return, in order, at least one.
    columns: tuple[str, ...]
    # Types of at least the columns in `needed`.
    schema: pl.Schema
    # Columns of the newest revision. Their hash is the weight, except in files with `FileScan.hashed`.
    indexed: tuple[str, ...]
    weights: WeightRange
    predicate: pl.Expr | None = None
    # Also return the weights of rows, in a column of this name.
    weight_column: str | None = None
    # Also return the index of each row in its file, in a column of this name.
    place_column: str | None = None
    # Whether the predicate only compares values. Then row groups of whole files may be skipped by their bounds.
    compares_values: bool = False
    # Whether few rows match the filter.
    matches_few: bool = False
    # Keys to return, or to leave out. None: all.
    keys: KeyChoice | None = None

    @property
    def hashes_rows(self) -> bool:
        """Whether the weights of rows are needed."""
        return not self.weights.is_full or self.weight_column is not None or self.keys is not None

    @property
    def needed(self) -> list[str]:
        """Columns to read: the columns to return, and the columns of the filter and the sample."""
        hashed = self.indexed if self.hashes_rows else ()
        return list(dict.fromkeys([*self.columns, *self.filtered, *hashed]))

    @property
    def filtered(self) -> list[str]:
        """Columns of the filter."""
        return named_columns(self.predicate)

    @property
    def empty(self) -> pl.DataFrame:
        """A frame of no rows, with the columns to return and the places."""
        places = {} if self.place_column is None else {self.place_column: pl.Int64}
        return pl.DataFrame(schema={**{name: self.schema[name] for name in self.columns}, **places})

    @property
    def filters_first(self) -> bool:
        """Whether the columns of the filter are read first, and other columns of pages with a match."""
        return self.matches_few and _READ_FIRST * len(self.filtered) <= len(self.needed)

    def hashing(self, indexed: tuple[str, ...] | None) -> RowFilter:
        """Return the filter for files whose weights are the hash of other columns. None: of the same columns."""
        return self if indexed is None else replace(self, indexed=indexed)

    def finish(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the sample and the filter, with the columns to return.

        A column `_DRAWN` has the weights of drawn rows, null where the weight is the hash.
        """
        columns = [*self.columns, *([] if self.place_column is None else [self.place_column])]
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
class ScanTask:
    """A part of a read of one version, made by `Read.tasks`.

    It can be pickled and needs no log: any process with the same version of this library and access to the files can
    read it.

    Attributes
    ----------
    uri : str
        URI of the table. Local tables have absolute paths.
    version : int
        Version to read.
    parts : tuple of FileScan
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
    parts: tuple[FileScan, ...] = field(repr=False)
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
        return tuple(dict.fromkeys(scan.path for scan in self.parts))

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
        location = Location(self.uri, self.storage_options, self.allow_absolute_paths)
        files = open_files(location, self.columns)
        frame = None
        for frame in read_scans(self.parts, self.keep, files):
            yield frame
        if frame is None:
            yield self.schema.to_frame()


def read_scans(
    scans: Iterable[FileScan], keep: RowFilter, files: TableFiles, *, limit: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the filtered rows of files and pages, in frames of bounded size. The limit is only a hint."""
    by_hash: dict[tuple[str, ...] | None, list[FileScan]] = {None: []}
    for scan in scans:
        by_hash.setdefault(scan.hashed, []).append(scan)
    for hashed, alike in by_hash.items():
        try:
            yield from _read(alike, keep.hashing(hashed), files, limit)
        except QbeastError:
            raise
        except (OSError, pl.exceptions.PolarsError) as error:
            _refuse_missing(files.store, alike, error)
            raise


def _refuse_missing(store: Store, scans: Iterable[FileScan], cause: Exception) -> None:
    """Raise a `StorageError` that names the first missing file, if there is one."""
    for scan in scans:
        try:
            store.size(scan.path)
        except FileNotFoundError:
            message = (
                f"{scan.path!r} of {store.uri!r} is missing, and the log of the table names it: a vacuum removed it "
                "from an old version, or somebody deleted it. Load the table again, or restore the file or an older "
                "version: Table.versions() lists the readable ones, and Table.check() all missing files."
            )
            raise StorageError(message, path=scan.path) from cause


def _read(
    scans: Sequence[FileScan], keep: RowFilter, files: TableFiles, limit: int | None
) -> Iterator[pl.DataFrame]:
    by_pages = [scan for scan in scans if scan.pages is not None]
    if keep.predicate is not None and keep.filters_first:
        by_pages = _matching_pages(by_pages, keep.predicate, keep.schema, files)
    if by_pages:
        yield from map(keep.finish, _rows_of_pages(by_pages, keep, files))
    whole = [scan for scan in scans if scan.pages is None]
    numbers = keep.place_column is not None
    together = [scan for scan in whole if not (numbers or scan.needs_places)]
    alone = [[scan] for scan in whole if numbers or scan.needs_places]  # the places of rows take memory
    filtered = replace(keep, predicate=None)
    for some in ([together] if together else []) + alone:
        yield from map(filtered.finish, _rows_of_files(some, keep, files, limit))


def _rows_of_pages(scans: Sequence[FileScan], keep: RowFilter, files: TableFiles) -> Iterator[pl.DataFrame]:
    """Yield the rows of pages. A file whose pages cannot be read is read as a whole."""
    codec, place_column = RowCodec(files.columns, keep.needed, keep.schema), keep.place_column
    requests = [scan.pages for scan in scans if scan.pages is not None]
    scan_of = _by_path(scans)
    frames = files.pages.read_batches(
        requests, list(codec.stored_schema), codec.stored_schema, max_bytes=sizing().batch_bytes
    )
    for stored, read in frames:
        parts = [scan_of[request.path] for request in read]
        if stored is None:
            every = _every_row(parts[0], keep, files)
            rows = np.concatenate([np.arange(every.height)[first:end] for first, end in read[0].spans])
            yield _placed(every[rows], parts[0], rows, place_column)
            continue
        needs_places = place_column is not None or any(scan.needs_places for scan in parts)
        counts = [request.row_count for request in read] if needs_places or codec.constant_names else []
        frame = codec.rows(stored, parts, counts)
        if not needs_places:
            yield frame
            continue
        ends = np.cumsum(counts).tolist()
        yield pl.concat(
            [
                _placed(frame[end - count : end], scan, request.cuts.rows_in(request.pages), place_column)
                for scan, request, count, end in zip(parts, read, counts, ends, strict=True)
            ],
            how="diagonal",  # a file with drawn rows has a column with their weights
        )


def _by_path(scans: Sequence[FileScan]) -> dict[str, FileScan]:
    """Return a scan of each path. Parts of a file differ in their pages, and in the deleted rows around these."""
    found: dict[str, FileScan] = {}
    for scan in scans:
        before = found.get(scan.path)
        found[scan.path] = scan if before is None else _joined(before, scan)
    return found


def _joined(first: FileScan, second: FileScan) -> FileScan:
    """Return the second of two parts of a file, with the listed rows of both."""
    hidden, only = (
        None if one is None or other is None else np.concatenate([one, other])
        for one, other in ((first.hidden, second.hidden), (first.only, second.only))
    )
    return replace(second, hidden=hidden, only=only)


def _placed(frame: pl.DataFrame, scan: FileScan, rows: I64Array, place_column: str | None) -> pl.DataFrame:
    """Return the rows of a file to read, with row ids, and with the weights of drawn rows.

    `rows` are their indexes in the file.
    """
    shown = scan.shown(rows)
    if scan.draw is not None:
        is_read, is_drawn, weights = scan.draw.of(rows)
        frame = frame.with_columns(pl.Series(_DRAWN, weights).set(pl.Series(~is_drawn), None))
        shown &= is_read
    if scan.row_ids is not None:
        frame = frame.with_columns(scan.row_ids.filled(pl.lit(pl.Series(rows)), frame.columns))
    if place_column is not None:
        frame = frame.with_columns(pl.Series(place_column, rows))
    return frame if shown.all() else frame.filter(pl.Series(shown))


def _every_row(scan: FileScan, keep: RowFilter, files: TableFiles) -> pl.DataFrame:
    """Return all rows of a file, also hidden ones."""
    whole = replace(scan, pages=None, hidden=None, only=None, draw=None, row_ids=None)
    lazy = scan_files(files, [whole], keep.needed, keep.schema, use_bounds=keep.compares_values)
    empty = pl.DataFrame(schema=lazy.collect_schema())
    return pl.concat([empty, *whole_batches(lazy, [whole], lambda _: lazy)])


def _rows_of_files(
    scans: Sequence[FileScan], keep: RowFilter, files: TableFiles, limit: int | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows of whole files. The filter and the limit are passed to the reader of Polars if possible."""
    predicate = keep.predicate

    def scan(some: Sequence[FileScan]) -> pl.LazyFrame:
        return scan_files(
            files,
            some,
            keep.needed,
            keep.schema,
            use_bounds=keep.compares_values,
            place_column=keep.place_column,
        )

    def filtered_here() -> Iterator[pl.DataFrame]:
        for frame in whole_batches(lazy, scans, scan):
            yield frame if predicate is None else frame.lazy().filter(predicate).collect()

    lazy = scan(scans)
    if predicate is not None and not _reader_filters(predicate):
        yield from filtered_here()
        return
    query, at_once = lazy, False
    if predicate is not None and _decodes_faster(scans, keep):
        query = lazy.with_columns(predicate.alias(_MATCHES)).filter(_MATCHES)
        at_once = len(scans) == 1 and scans[0].size_bytes <= sizing().batch_bytes
    elif predicate is not None:
        query = lazy.filter(predicate)
    if limit is not None and keep.weights.is_full:
        query = query.head(limit)
    again = None if predicate is None else filtered_here
    yield from whole_batches(query, scans, scan, again=again, at_once=at_once)


def _reader_filters(predicate: pl.Expr) -> bool:
    """Return whether the file reader of Polars supports a filter: it panics on `is_in` with equal nulls."""
    try:
        return '"nulls_equal":true' not in predicate.meta.serialize(format="json")
    except pl.exceptions.PolarsError:  # a Python function cannot be serialized
        return True


def _decodes_faster(scans: Sequence[FileScan], keep: RowFilter) -> bool:
    """Return whether Polars reads files faster without a filter in its decoder.

    The filter saves nothing if it looks at all columns, and takes longer than decoding numbers. The row groups of our
    files are ranges of weights, so their bounds exclude few of them.
    """
    fixed = not any(has_any_width(keep.schema[name]) for name in keep.needed)
    return fixed and set(keep.needed) == set(keep.filtered) and not any(scan.may_differ for scan in scans)


_MATCHES: Final = own_column("matches")

# Every 16th page is tried first.
_TRIED: Final = 16


def _matching_pages(
    scans: Sequence[FileScan], predicate: pl.Expr, schema: pl.Schema, files: TableFiles
) -> list[FileScan]:
    """Return the scans of pages that have a matching row, deleted rows included, and of pages that cannot be read.

    All scans are returned where a search takes longer than it saves: of few pages; of files that one request fetches as
    a whole; and on a local disk, where some pages are tried first, if many of them match.
    """
    at_once, searched = list[FileScan](), list[FileScan]()
    for scan in scans:
        is_whole = scan.pages is not None and files.pages.reads_whole(scan.pages)
        (at_once if is_whole else searched).append(scan)
    if _pages_in(searched) < sizing().min_searched_pages:
        return list(scans)
    codec = RowCodec(files.columns, named_columns(predicate), schema)
    if files.store.local_root is not None:
        tried = list(_every(_TRIED, searched))
        if _pages_in(_with_match(tried, predicate, codec, files)) > sizing().max_matching * _pages_in(tried):
            return list(scans)
    return at_once + _with_match(searched, predicate, codec, files)


def _with_match(
    scans: Sequence[FileScan], predicate: pl.Expr, codec: RowCodec, files: TableFiles
) -> list[FileScan]:
    """Return the scans of pages that have a matching row."""
    found: dict[str, list[I64Array]] = defaultdict(list)
    scan_of = {scan.path: scan for scan in scans}
    requests = [scan.pages for scan in scans if scan.pages]
    stored_schema = codec.stored_schema
    for stored, read in files.pages.read_batches(
        requests, list(stored_schema), stored_schema, max_bytes=sizing().batch_bytes
    ):
        if stored is None:
            found[read[0].path].append(read[0].pages)
            continue
        parts, counts = [scan_of[part.path] for part in read], [part.row_count for part in read]
        rows = codec.rows(stored, parts, counts).with_columns(predicate.alias(_MATCHES))
        for path, pages in _pages_with(rows[_MATCHES].fill_null(value=False).to_numpy(), read):
            found[path].append(pages)
    pages_of = {path: np.concatenate(pages) for path, pages in found.items()}
    return [
        replace(scan, pages=scan.pages.at(positions))
        for scan in scans
        if scan.pages and len(positions := np.flatnonzero(np.isin(scan.pages.pages, pages_of[scan.path])))
    ]


def _pages_with(matches: BoolArray, read: Sequence[PageRequest]) -> Iterator[tuple[str, I64Array]]:
    """Yield the pages of each request that have a matching row; `matches` has a value for each of its rows."""
    rows = [request.page_rows for request in read]
    firsts = np.cumsum(np.concatenate([[0], *rows]))[:-1]
    has_match = np.split(
        np.logical_or.reduceat(matches, firsts), np.cumsum([len(part) for part in rows])[:-1]
    )
    for request, chosen in zip(read, has_match, strict=True):
        yield request.path, request.pages[chosen]


def _every(step: int, scans: Sequence[FileScan]) -> Iterator[FileScan]:
    """Yield the scans of every `step`-th page."""
    before = 0
    for scan in scans:
        if scan.pages is None:
            continue
        positions = np.arange(-before % step, len(scan.pages.pages), step)
        before += len(scan.pages.pages)
        if len(positions):
            yield replace(scan, pages=scan.pages.at(positions))


def _pages_in(scans: Sequence[FileScan]) -> int:
    return sum(len(scan.pages.pages) for scan in scans if scan.pages)
