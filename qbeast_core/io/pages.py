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
from qbeast_core.io.footer import (
    MAGIC,
    ColumnChunk,
    FileFooter,
    FileTail,
    PageCuts,
    PagesUnavailable,
    parse_tail,
)
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

    footer: FileFooter
    # Number of the row group.
    group: int
    # Numbers of the chosen leaf columns, ascending; all leaves of a top-level column or none.
    leaves: Sequence[int]
    # Rows in the chosen pages: the same pages in every leaf.
    rows: int
    # Per leaf: start and length of its dictionary page, if any, and its runs of pages, ascending.
    ranges: Sequence[Sequence[Range]]


def _schema_key(footer: FileFooter, leaves: Sequence[int]) -> tuple[bytes, ...]:
    """Return a key that is equal for files whose pages fit into one mini file."""
    columns = dict.fromkeys(footer.leaves[leaf] for leaf in leaves)
    return tuple(element for column in columns for element in footer.schema[column])


def build_mini_file(parts: Sequence[FilePart], fetched: Iterable[Buffers]) -> bytes:
    """Build a Parquet file from pages."""
    pieces: list[bytes | memoryview] = [MAGIC]
    groups: list[bytes] = []
    at = len(MAGIC)
    for part, of_part in zip(parts, fetched, strict=True):
        chunks: list[bytes] = []
        start = at
        for leaf, buffers in zip(part.leaves, of_part, strict=True):
            size = sum(map(len, buffers))
            chunk = part.footer.groups[part.group].chunks[leaf]
            chunks.append(_chunk(chunk, at, size, part.rows, buffers))
            pieces += buffers
            at += size
        columns = field(1, LIST) + write_list(STRUCT, chunks)
        groups.append(columns + _long(at - start) + _long(part.rows) + _STOP)
    footer = _footer(parts, groups)
    return b"".join((*pieces, footer, len(footer).to_bytes(4, "little"), MAGIC))


def _footer(parts: Sequence[FilePart], groups: list[bytes]) -> bytes:
    first = parts[0]
    top_level = {first.footer.leaves[leaf] for leaf in first.leaves}
    root = field(4, BINARY) + write_binary(first.footer.root) + field(1, I32) + write_zigzag(len(top_level))
    schema = [root + _STOP, *_schema_key(first.footer, first.leaves)]
    return b"".join(
        (
            field(1, I32) + write_zigzag(first.footer.version),
            field(1, LIST) + write_list(STRUCT, schema),
            _long(sum(part.rows for part in parts)),
            field(1, LIST) + write_list(STRUCT, groups),
            _STOP,
        )
    )


def _chunk(chunk: ColumnChunk, at: int, size: int, rows: int, buffers: Sequence[memoryview]) -> bytes:
    """Encode a ColumnChunk: its fields 2 and 3, with fields 1 to 7, 9 and (for a dictionary) 11 of ColumnMetaData."""
    dictionary = chunk.data_start - chunk.start
    values = _num_values(buffers) if chunk.repeated else rows
    uncompressed = -(-chunk.uncompressed * size // chunk.size)  # readers take it as a hint
    places = _long(at + dictionary, step=2) + (_long(at, step=2) if dictionary else b"")
    meta = chunk.constant + _long(values) + _long(uncompressed) + _long(size) + places + _STOP
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


_FOOTER_BYTES: Final = 20_000  # in memory, about, without the pages

# A budget of stored bytes allows for this many decompressed bytes per stored byte. Ordinary columns stay below it.
_EXPANSION: Final = 4


# First row and end; None: the end of the file.
Span: TypeAlias = tuple[int, int | None]


class PageReader:
    """Read pages of a table's data files; caches the tails of files, which never change.

    Safe to share between threads.
    """

    def __init__(self, store: Store, *, cached_tails: int = 1024) -> None:
        self._store = store
        self._cached_tails = cached_tails
        self._tails: OrderedDict[tuple[str, int, int], FileTail] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the cached tails."""
        with self._lock:
            pages = sum(tail.page_starts.nbytes + tail.page_sizes.nbytes for tail in self._tails.values())
            return pages + len(self._tails) * _FOOTER_BYTES

    def ranges(self, request: PageRequest, columns: Sequence[str]) -> tuple[list[Range], int]:
        """Return the ranges of dictionary and data pages that `read` fetches, and the bytes of these and the tail.

        Ranges ascend, and touching ones are merged.
        """
        ranges = merge_ranges(self._plan(columns, request).all_ranges)
        return ranges, sum(length for _, length in ranges) + request.tail_bytes

    def bytes_of(self, request: PageRequest, columns: Sequence[str]) -> int:
        """Return the number of bytes in `ranges`, which is slower; raises the same errors."""
        return _pages_bytes(self._tail(request), request, columns) + request.tail_bytes

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
        return _plan_pages(self._tail(request), request, columns)

    def _tail(self, request: PageRequest) -> FileTail:
        key = (request.path, request.size_bytes, request.tail_bytes)
        with self._lock:
            if key in self._tails:
                self._tails.move_to_end(key)
                return self._tails[key]
        start = request.size_bytes - request.tail_bytes
        if request.tail_bytes < 1 or start < 0:
            reason = "the table's log has no page directory for it"
            raise PagesUnavailable(reason, request.path)
        try:
            tail = parse_tail(self._store.get_range(request.path, start, request.tail_bytes))
        except PagesUnavailable as error:
            raise PagesUnavailable(error.reason, request.path) from error
        except StorageError as error:
            if self._store.size(request.path) == request.size_bytes:
                raise
            reason = f"the file does not have the {request.size_bytes} bytes that the table's log states"
            raise PagesUnavailable(reason, request.path) from error
        if max((chunk.start + chunk.size for chunk in tail.footer.chunks), default=0) > start:
            reason = "the footer has pages behind the end of the file"
            raise PagesUnavailable(reason, request.path)
        with self._lock:
            self._tails[key] = tail
            while len(self._tails) > self._cached_tails:
                self._tails.popitem(last=False)
        return tail

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
        buffers = iter(self._store.get_ranges(plan.request.path, plan.all_ranges))
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
    # How the file is cut into pages, and the length of page directory and footer, from its layout tag.
    cuts: PageCuts
    tail_bytes: int
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

    # The request, and the tail of its file.
    request: PageRequest
    tail: FileTail
    # Numbers of the leaf columns to read, ascending.
    leaves: list[int]
    # One of each row group that has requested pages, ascending.
    parts: list[FilePart]
    # Rows in the pages.
    rows: int
    # Bytes to count against a limit: the stored bytes, or a quarter of the decompressed bytes if that is more.
    cost: int
    # Equal for plans whose pages can lie in one mini file.
    schema: tuple[bytes, ...]

    @property
    def all_ranges(self) -> list[Range]:
        """The ranges of all row groups and leaves, ascending."""
        return [piece for part in self.parts for ranges in part.ranges for piece in ranges]


def _plan_pages(tail: FileTail, request: PageRequest, columns: Collection[str]) -> PagePlan:
    """Return the byte ranges of the requested pages."""
    _check(tail, request)
    leaves = _leaves_of(tail.footer, columns)
    page_rows = np.diff(tail.cuts.starts())
    parts = [
        FilePart(
            tail.footer, group, leaves, int(page_rows[pages].sum()), _leaf_ranges(tail, group, leaves, pages)
        )
        for group, pages in _by_group(tail, request.pages)
    ]
    return PagePlan(
        request=request,
        tail=tail,
        leaves=leaves,
        parts=parts,
        rows=sum(part.rows for part in parts),
        cost=int(_costs(tail, leaves, request.pages).sum()),
        schema=_schema_key(tail.footer, leaves),
    )


def _pages_bytes(tail: FileTail, request: PageRequest, columns: Collection[str]) -> int:
    """Return the number of bytes of the requested pages and their dictionaries, without the ranges."""
    _check(tail, request)
    leaves = _leaves_of(tail.footer, columns)
    groups = [tail.footer.groups[group] for group in distinct(tail.page_groups[request.pages])]
    chunks = [group.chunks[leaf] for group in groups for leaf in leaves]
    dictionaries: int = sum(chunk.data_start - chunk.start for chunk in chunks)
    return int(tail.page_sizes[leaves][:, request.pages].sum()) + dictionaries


def _split_plan(plan: PagePlan, max_bytes: int) -> list[PagePlan]:
    """Split a plan between pages into plans of about `max_bytes`, dictionaries aside, or of one page."""
    if plan.cost <= max_bytes or len(plan.request.pages) == 1:
        return [plan]
    pages = plan.request.pages
    group = np.maximum(np.cumsum(_costs(plan.tail, plan.leaves, pages)) - 1, 0) // max_bytes
    columns = {plan.tail.footer.leaves[leaf] for leaf in plan.leaves}
    parts = np.split(pages, np.flatnonzero(np.diff(group)) + 1)
    return [_plan_pages(plan.tail, part, columns) for part in plan.request.split(parts)]


def _check(tail: FileTail, request: PageRequest) -> None:
    """Raise if a request does not match the file, or has no pages."""
    pages = request.pages
    if tail.cuts != request.cuts:
        reason = "the file's rows or pages differ from the table's log"
        # Another writer replaced the file. Its pages are cut at other rows: reading them would return wrong rows.
        raise PagesUnavailable(reason, request.path)
    if len(pages) == 0 or pages[0] < 0 or pages[-1] >= tail.pages or (pages[1:] <= pages[:-1]).any():
        reason = f"the requested pages are not ascending numbers from 0 to {tail.pages - 1}"
        raise PagesUnavailable(reason, request.path)


def _leaves_of(footer: FileFooter, columns: Collection[str]) -> list[int]:
    names = set(columns)
    return [number for number, column in enumerate(footer.leaves) if column in names]


def _by_group(tail: FileTail, pages: I64Array) -> Iterator[tuple[int, I64Array]]:
    """Yield the row groups of some pages, and their pages."""
    groups = tail.page_groups[pages]
    for part in np.split(np.arange(len(pages)), np.flatnonzero(np.diff(groups)) + 1):
        yield int(groups[part[0]]), pages[part]


def _costs(tail: FileTail, leaves: list[int], pages: I64Array) -> F64Array:
    """Return the cost of each page in bytes: some columns decompress to a thousand times their size."""
    costs = np.array(
        [
            [
                max(1.0, chunk.uncompressed / (_EXPANSION * max(chunk.size, 1)))
                for chunk in (group.chunks[leaf] for leaf in leaves)
            ]
            for group in tail.footer.groups
        ]
    ).reshape(len(tail.footer.groups), len(leaves))
    total: F64Array = (costs[tail.page_groups[pages]].T * tail.page_sizes[leaves][:, pages]).sum(axis=0)
    return total


def _leaf_ranges(tail: FileTail, group: int, leaves: list[int], pages: I64Array) -> list[list[Range]]:
    # Consecutive pages of a row group are adjacent in the file, so each run of them is one range.
    breaks = np.flatnonzero(np.diff(pages) != 1)
    first = pages[np.concatenate(([0], breaks + 1))]
    last = pages[np.concatenate((breaks, [len(pages) - 1]))]
    starts = tail.page_starts[leaves]
    lengths = starts[:, last] + tail.page_sizes[leaves][:, last] - starts[:, first]
    ranges: list[list[Range]] = []
    for leaf, leaf_starts, leaf_lengths in zip(
        leaves, starts[:, first].tolist(), lengths.tolist(), strict=True
    ):
        chunk = tail.footer.groups[group].chunks[leaf]
        runs = list(zip(leaf_starts, leaf_lengths, strict=True))
        if chunk.data_start > chunk.start:  # every page of the chunk needs its dictionary
            runs = merge_ranges([(chunk.start, chunk.data_start - chunk.start), *runs])
        ranges.append(runs)
    return ranges
