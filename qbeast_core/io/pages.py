"""Read single pages of data files: plan and fetch their bytes, and decode them through a small file in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.directory import PageDirectory, parse_directory
from qbeast_core.io.footer import MAGIC, PageCuts, PagesUnavailable
from qbeast_core.io.store import Range, Store, map_files, merge_ranges
from qbeast_core.io.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    ThriftError,
    field,
    read_struct,
    write_binary,
    write_list,
    write_zigzag,
)
from qbeast_core.space.values import F64Array, I64Array, distinct
from qbeast_core.support.sizing import sizing

_STOP = b"\x00"
_MAX_SIZE = 1 << 31


# The fetched bytes of a part of a file, for each leaf: its dictionary page, if any, and its data pages, in file order.
Buffers: TypeAlias = Sequence[Sequence[memoryview]]


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """Pages of one row group of a file."""

    directory: PageDirectory
    # Number of the row group.
    group: int
    # Numbers of the chosen leaf columns, ascending; all leaves of a top-level column or none.
    leaves: Sequence[int]
    # Rows in the chosen pages: the same pages in every leaf.
    rows: int
    # Per leaf: start and length of its dictionary page, if any, and its runs of pages, ascending.
    ranges: Sequence[Sequence[Range]]


def _schema_key(directory: PageDirectory, leaves: Sequence[int]) -> tuple[bytes, ...]:
    """Return a key that is equal for files whose pages fit into one mini file."""
    columns = dict.fromkeys(directory.leaves[leaf] for leaf in leaves)
    return tuple(element for column in columns for element in directory.schema[column])


def build_mini_file(parts: Sequence[FilePart], fetched: Iterable[Buffers]) -> bytes:
    """Build a Parquet file from pages."""
    pieces: list[bytes | memoryview] = [MAGIC]
    groups: list[bytes] = []
    at = len(MAGIC)
    for part, of_part in zip(parts, fetched, strict=True):
        chunks: list[bytes] = []
        start = at
        for leaf, buffers in zip(part.leaves, of_part, strict=True):
            chunks.append(_chunk(part, leaf, at, buffers))
            pieces += buffers
            at += sum(map(len, buffers))
        columns = field(1, LIST) + write_list(STRUCT, chunks)
        groups.append(columns + _long(at - start) + _long(part.rows) + _STOP)
    footer = _footer(parts, groups)
    return b"".join((*pieces, footer, len(footer).to_bytes(4, "little"), MAGIC))


def _footer(parts: Sequence[FilePart], groups: list[bytes]) -> bytes:
    first, leaves = parts[0].directory, parts[0].leaves
    top_level = {first.leaves[leaf] for leaf in leaves}
    root = field(4, BINARY) + write_binary(first.root) + field(1, I32) + write_zigzag(len(top_level))
    schema = [root + _STOP, *_schema_key(first, leaves)]
    return b"".join(
        (
            field(1, I32) + write_zigzag(first.version),
            field(1, LIST) + write_list(STRUCT, schema),
            _long(sum(part.rows for part in parts)),
            field(1, LIST) + write_list(STRUCT, groups),
            _STOP,
        )
    )


def _chunk(part: FilePart, leaf: int, at: int, buffers: Sequence[memoryview]) -> bytes:
    """Encode a ColumnChunk: its fields 2 and 3, with fields 1 to 7, 9 and (for a dictionary) 11 of ColumnMetaData."""
    stored, chunk, size = part.directory, (part.group, leaf), sum(map(len, buffers))
    dictionary = int(stored.dictionary_bytes[chunk])
    values = _num_values(buffers) if stored.repeated[leaf] else part.rows
    # Readers take it as a hint.
    uncompressed = -(-int(stored.uncompressed_bytes[chunk]) * size // int(stored.chunk_bytes[chunk]))
    places = _long(at + dictionary, step=2) + (_long(at, step=2) if dictionary else b"")
    constant = stored.constants[int(stored.constant_of[chunk])]
    meta = constant + _long(values) + _long(uncompressed) + _long(size) + places + _STOP
    return _long(at, step=2) + field(1, STRUCT) + meta + _STOP


def _long(value: int, *, step: int = 1) -> bytes:
    return field(step, I64) + write_zigzag(value)


def _num_values(buffers: Sequence[memoryview]) -> int:
    """Sum the values of the data pages: for lists, only the page headers have the counts."""
    data = b"".join(buffers)
    at = total = 0
    try:
        while at < len(data):
            header = read_struct(data, at)
            values = header.fields.get(5) or header.fields.get(8)  # data page of version 1 or 2
            total += _size(values.fields[1]) if values else 0
            at = header.end + _size(header.fields[3])
    except (ThriftError, LookupError, AttributeError, TypeError) as error:
        reason = f"a page header cannot be read ({error})"
        raise PagesUnavailable(reason) from error
    if at != len(data):
        reason = "the pages do not end where the page directory says"
        raise PagesUnavailable(reason)
    return total


def _size(number: int) -> int:
    """Raise if a size is out of range: a negative one would lead to an endless loop."""
    if not 0 <= number < _MAX_SIZE:
        message = f"a page of {number} bytes or values"
        raise ThriftError(message)
    return number


_COLUMNS_BYTES: Final = 20_000  # of a directory in memory, about, without the pages

# A budget of stored bytes allows for this many decompressed bytes per stored byte. Ordinary columns stay below it.
_EXPANSION: Final = 4


# First row and end; None: the end of the file.
Span: TypeAlias = tuple[int, int | None]


class PageReader:
    """Read pages of a table's data files; caches the page directories of files, which never change.

    Safe to share between threads.
    """

    def __init__(self, store: Store, *, cached_directories: int = 1024) -> None:
        self._store = store
        self._max_cached = cached_directories
        self._directories: OrderedDict[tuple[str, int, int, int], PageDirectory] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the cached directories."""
        with self._lock:
            pages = sum(directory.page_bytes.nbytes for directory in self._directories.values())
            return pages + len(self._directories) * _COLUMNS_BYTES

    def ranges(self, request: PageRequest, columns: Sequence[str]) -> tuple[list[Range], int]:
        """Return the ranges of dictionary and data pages that `read` needs, and their bytes with the page directory.

        Ranges ascend, and touching ones are merged.
        """
        ranges = merge_ranges(self._plan(columns, request).all_ranges)
        return ranges, sum(length for _, length in ranges) + request.directory_bytes

    def bytes_of(self, request: PageRequest, columns: Sequence[str]) -> int:
        """Return the number of bytes in `ranges`, which is slower; raises the same errors."""
        return _pages_bytes(self._directory(request)[0], request, columns) + request.directory_bytes

    def reads_whole(self, request: PageRequest) -> bool:
        """Return whether a first read fetches the whole file at once: another request takes longer than its bytes."""
        return self._store.local_root is None and request.size_bytes <= sizing().whole_file_bytes

    def read(
        self, requests: Sequence[PageRequest], columns: Sequence[str], schema: pl.Schema
    ) -> pl.DataFrame:
        """Read the rows of the requested pages."""
        return self._read(map_files(self._store, partial(self._plan, columns), requests), columns, schema)

    def read_batches(
        self, requests: Sequence[PageRequest], columns: Sequence[str], schema: pl.Schema, *, max_bytes: int
    ) -> Iterator[tuple[pl.DataFrame | None, list[PageRequest]]]:
        """Yield the rows of the requested pages in frames of limited size, in order, with the requests of each frame.

        Requests may be split. None: the pages of the request cannot be read, see `PageRequest.spans`.
        """
        batch: list[PagePlan] = []
        for request, plan in self._plans(requests, columns):
            for piece in _split_plan(plan, max_bytes) if plan else ():
                if batch and sum(p.cost for p in batch) + piece.cost > max_bytes:
                    yield from self._read_or_none(batch, columns, schema)
                    batch = []
                batch.append(piece)
            if plan is None:
                yield from self._read_or_none(batch, columns, schema)
                batch = []
                yield None, [request]
        yield from self._read_or_none(batch, columns, schema)

    def _plans(
        self, requests: Sequence[PageRequest], columns: Sequence[str]
    ) -> Iterator[tuple[PageRequest, PagePlan | None]]:
        plan = partial(self._plan_or_none, columns)
        step = sizing().tails_at_once
        for at in range(0, len(requests), step):
            window = requests[at : at + step]
            yield from zip(window, map_files(self._store, plan, window), strict=True)

    def _plan_or_none(self, columns: Sequence[str], request: PageRequest) -> PagePlan | None:
        try:
            return self._plan(columns, request)
        except PagesUnavailable:
            return None

    def _plan(self, columns: Sequence[str], request: PageRequest) -> PagePlan:
        directory, data = self._directory(request)
        return _plan_pages(directory, request, columns, data)

    def _directory(self, request: PageRequest) -> tuple[PageDirectory, bytes | None]:
        """Return the page directory of a file, and the file if this read it as a whole."""
        key = (request.path, request.size_bytes, request.tail_bytes, request.directory_bytes)
        with self._lock:
            if key in self._directories:
                self._directories.move_to_end(key)
                return self._directories[key], None
        start = request.size_bytes - request.tail_bytes
        if request.tail_bytes < request.directory_bytes or request.directory_bytes < 1 or start < 0:
            reason = "the table's log has no page directory for it"
            raise PagesUnavailable(reason, request.path)
        try:
            directory, data = self._read_directory(request, start)
        except PagesUnavailable as error:
            raise PagesUnavailable(error.reason, request.path) from error
        except StorageError as error:
            if self._store.size(request.path) == request.size_bytes:
                raise
            reason = f"the file does not have the {request.size_bytes} bytes that the table's log states"
            raise PagesUnavailable(reason, request.path) from error
        with self._lock:
            self._directories[key] = directory
            while len(self._directories) > self._max_cached:
                self._directories.popitem(last=False)
        return directory, data

    def _read_directory(self, request: PageRequest, start: int) -> tuple[PageDirectory, bytes | None]:
        length, data = request.directory_bytes, None
        if self.reads_whole(request):
            data = self._store.get_range(request.path, 0, request.size_bytes)
            stored = data[start : start + length]
        else:
            stored = self._store.get_range(request.path, start, length)
        return parse_directory(stored, tail_bytes=request.tail_bytes, size_bytes=request.size_bytes), data

    def _read_or_none(
        self, plans: list[PagePlan], columns: Sequence[str], schema: pl.Schema
    ) -> Iterator[tuple[pl.DataFrame | None, list[PageRequest]]]:
        if not plans:
            return
        frame = None
        with suppress(PagesUnavailable):
            frame = self._read(plans, columns, schema)
        if frame is not None or len(plans) == 1:
            yield frame, [plan.request for plan in plans]
            return
        for plan in plans:  # one by one, to find the plan that fails
            yield from self._read_or_none([plan], columns, schema)

    def _read(self, plans: list[PagePlan], columns: Sequence[str], schema: pl.Schema) -> pl.DataFrame:
        runs = [list(run) for _, run in groupby(plans, key=lambda plan: plan.schema)]
        frames = [_conform(self._read_alike(run), columns, schema) for run in runs]
        return pl.concat(frames) if frames else pl.DataFrame(schema={name: schema[name] for name in columns})

    def _read_alike(self, plans: list[PagePlan]) -> pl.DataFrame:
        rows = sum(plan.rows for plan in plans)
        if not plans[0].leaves:
            return pl.DataFrame(height=rows)
        path = plans[0].request.path if len(plans) == 1 else None
        parts = [part for plan in plans for part in plan.parts]
        fetched = chain.from_iterable(map_files(self._store, self._fetch, plans))
        try:
            frame = pl.read_parquet(build_mini_file(parts, fetched))
        except (PagesUnavailable, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            reason = f"the pages cannot be decoded ({error})"
            raise PagesUnavailable(reason, path) from error
        if frame.height != rows:
            reason = f"the pages hold {frame.height} rows instead of {rows}"
            raise PagesUnavailable(reason, path)
        return frame

    def _fetch(self, plan: PagePlan) -> list[Buffers]:
        if plan.data is None:
            buffers = iter(self._store.get_ranges(plan.request.path, plan.all_ranges))
        else:
            data = memoryview(plan.data)
            buffers = (data[start : start + length] for start, length in plan.all_ranges)
        return [[[next(buffers) for _ in ranges] for ranges in part.ranges] for part in plan.parts]


def _conform(frame: pl.DataFrame, columns: Sequence[str], schema: pl.Schema) -> pl.DataFrame:
    """Return the frame with exactly these columns and data types."""
    dtypes = frame.schema  # once: Polars builds it at each access
    if columns and list(dtypes) != list(columns):  # select([]) would drop the rows
        missing = [pl.lit(None, dtype=schema[name]).alias(name) for name in columns if name not in dtypes]
        frame = (frame.with_columns(missing) if missing else frame)[list(columns)]
        dtypes = frame.schema
    other = {name: schema[name] for name in columns if dtypes[name] != schema[name]}
    return frame.cast(other) if other else frame  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class PageRequest:
    """Pages to read from one file, with the facts about the file in the table's log."""

    path: str
    size_bytes: int
    # How the file is cut into pages, how many bytes before its end the page directory begins, and its length.
    cuts: PageCuts
    tail_bytes: int
    directory_bytes: int
    # int64, page numbers from 0, strictly ascending.
    pages: I64Array
    # Runs of rows to read instead if the pages cannot be read: first row and end; None: the end of the file. Parts of a
    # request share the rows of the file.
    spans: tuple[Span, ...] = ((0, None),)

    @property
    def page_rows(self) -> I64Array:
        """Number of rows in each page."""
        return np.diff(self.cuts.starts())[self.pages]

    @property
    def row_count(self) -> int:
        """Number of rows in the pages."""
        return int(self.page_rows.sum())

    def split(self, parts: Sequence[I64Array]) -> list[PageRequest]:
        """Return a request for each part of the pages."""
        starts = self.cuts.starts()
        firsts = [0, *(int(starts[part[0]]) for part in parts[1:])]
        bounds = zip(firsts, [*firsts[1:], None], strict=True)
        return [
            replace(self, pages=part, spans=_within(self.spans, *span))
            for part, span in zip(parts, bounds, strict=True)
        ]

    def at(self, positions: I64Array) -> PageRequest:
        """Return a request for some of the pages to read, by ascending positions. Others share the remaining rows."""
        starts = self.cuts.starts()[self.pages]
        breaks = np.flatnonzero(np.diff(positions) != 1)
        firsts = positions[np.concatenate(([0], breaks + 1))]
        after = positions[np.concatenate((breaks, [len(positions) - 1]))] + 1
        begins = np.where(firsts == 0, 0, starts[firsts]).tolist()
        ends = [int(starts[end]) if end < len(starts) else None for end in after]
        spans = [part for run in zip(begins, ends, strict=True) for part in _within(self.spans, *run)]
        return replace(self, pages=self.pages[positions], spans=tuple(spans))


def _within(spans: Sequence[Span], first: int, end: int | None) -> tuple[Span, ...]:
    """Return the rows of spans from `first` on and before `end`.

    >>> _within([(0, 10), (20, None)], 5, 25), _within([(0, 10), (20, None)], 22, None)
    (((5, 10), (20, 25)), ((22, None),))
    """
    ends = [min((e for e in (last, end) if e is not None), default=None) for _, last in spans]
    cut = zip((max(begin, first) for begin, _ in spans), ends, strict=True)
    return tuple((begin, last) for begin, last in cut if last is None or begin < last)


@dataclass(frozen=True, slots=True, eq=False)
class PagePlan:
    """A request with the byte ranges to read for it."""

    # The request, and the page directory of its file.
    request: PageRequest
    directory: PageDirectory
    # Numbers of the leaf columns to read, ascending.
    leaves: list[int]
    # One of each row group that has requested pages, ascending.
    parts: list[FilePart]
    # Rows in the pages.
    rows: int
    # Bytes to count against a limit: those of `data`, the stored bytes, or a quarter of the decompressed bytes,
    # whichever is most.
    cost: int
    # Equal for plans whose pages can lie in one mini file.
    schema: tuple[bytes, ...]
    # The file, if it was read as a whole.
    data: bytes | None

    @property
    def all_ranges(self) -> list[Range]:
        """The ranges of all row groups and leaves, ascending."""
        return [piece for part in self.parts for ranges in part.ranges for piece in ranges]


def _plan_pages(
    directory: PageDirectory, request: PageRequest, columns: Collection[str], data: bytes | None
) -> PagePlan:
    """Return the byte ranges of the requested pages."""
    _check(directory, request)
    leaves = _leaves_of(directory, columns)
    starts, page_rows = directory.page_starts(leaves), np.diff(directory.cuts.starts())
    parts = [
        FilePart(
            directory,
            group,
            leaves,
            int(page_rows[pages].sum()),
            _leaf_ranges(directory, group, leaves, starts, pages),
        )
        for group, pages in _by_group(directory, request.pages)
    ]
    return PagePlan(
        request=request,
        directory=directory,
        leaves=leaves,
        parts=parts,
        rows=sum(part.rows for part in parts),
        cost=max(int(_costs(directory, leaves, request.pages).sum()), len(data or b"")),
        schema=_schema_key(directory, leaves),
        data=data,
    )


def _pages_bytes(directory: PageDirectory, request: PageRequest, columns: Collection[str]) -> int:
    """Return the number of bytes of the requested pages and their dictionaries, without the ranges."""
    _check(directory, request)
    leaves, groups = _leaves_of(directory, columns), distinct(directory.page_groups[request.pages])
    dictionaries = int(directory.dictionary_bytes[groups][:, leaves].sum())
    return int(directory.page_bytes[leaves][:, request.pages].sum()) + dictionaries


def _split_plan(plan: PagePlan, max_bytes: int) -> list[PagePlan]:
    """Split a plan between pages into plans of about `max_bytes`, dictionaries aside, or of one page."""
    if plan.cost <= max_bytes or len(plan.request.pages) == 1:
        return [plan]
    pages = plan.request.pages
    group = np.maximum(np.cumsum(_costs(plan.directory, plan.leaves, pages)) - 1, 0) // max_bytes
    columns = {plan.directory.leaves[leaf] for leaf in plan.leaves}
    parts = np.split(pages, np.flatnonzero(np.diff(group)) + 1)
    return [_plan_pages(plan.directory, part, columns, plan.data) for part in plan.request.split(parts)]


def _check(directory: PageDirectory, request: PageRequest) -> None:
    """Raise if a request does not match the file, or has no pages."""
    pages = request.pages
    if directory.cuts != request.cuts:
        reason = "the file's rows or pages differ from the table's log"
        # Another writer replaced the file. Its pages are cut at other rows: reading them would return wrong rows.
        raise PagesUnavailable(reason, request.path)
    if len(pages) == 0 or pages[0] < 0 or pages[-1] >= directory.pages or (pages[1:] <= pages[:-1]).any():
        reason = f"the requested pages are not ascending numbers from 0 to {directory.pages - 1}"
        raise PagesUnavailable(reason, request.path)


def _leaves_of(directory: PageDirectory, columns: Collection[str]) -> list[int]:
    names = set(columns)
    return [number for number, column in enumerate(directory.leaves) if column in names]


def _by_group(directory: PageDirectory, pages: I64Array) -> Iterator[tuple[int, I64Array]]:
    """Yield the row groups of some pages, and their pages."""
    groups = directory.page_groups[pages]
    for part in np.split(np.arange(len(pages)), np.flatnonzero(np.diff(groups)) + 1):
        yield int(groups[part[0]]), pages[part]


def _costs(directory: PageDirectory, leaves: list[int], pages: I64Array) -> F64Array:
    """Return the cost of each page in bytes: some columns decompress to a thousand times their size."""
    expansion = directory.uncompressed_bytes[:, leaves] / directory.chunk_bytes[:, leaves]
    costs = np.maximum(expansion / _EXPANSION, 1.0)[directory.page_groups[pages]]
    total: F64Array = (costs.T * directory.page_bytes[leaves][:, pages]).sum(axis=0)
    return total


def _leaf_ranges(
    directory: PageDirectory, group: int, leaves: list[int], starts: I64Array, pages: I64Array
) -> list[list[Range]]:
    """Return the ranges of some pages of a row group. `starts` are those of all pages of the leaves."""
    # Consecutive pages of a row group are adjacent in the file, so each run of them is one range.
    breaks = np.flatnonzero(np.diff(pages) != 1)
    first = pages[np.concatenate(([0], breaks + 1))]
    last = pages[np.concatenate((breaks, [len(pages) - 1]))]
    lengths = starts[:, last] + directory.page_bytes[leaves][:, last] - starts[:, first]
    chunks = (
        directory.chunk_starts[group, leaves].tolist(),
        directory.dictionary_bytes[group, leaves].tolist(),
    )
    ranges: list[list[Range]] = []
    for chunk, dictionary, *runs in zip(*chunks, starts[:, first].tolist(), lengths.tolist(), strict=True):
        merged = list(zip(*runs, strict=True))
        # Every page of the chunk needs its dictionary.
        ranges.append(merge_ranges([(chunk, dictionary), *merged]) if dictionary else merged)
    return ranges
