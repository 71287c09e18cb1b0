"""Read single pages of data files: fetch their bytes and decode them through a small Parquet file in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.parquet.footer import PagesUnavailable
from qbeast_core.io.parquet.mini_file import FilePart, build_mini_file
from qbeast_core.io.parquet.page_plan import PagePlan, PageRequest, pages_bytes, plan_pages, split_plan
from qbeast_core.io.parquet.tail import FileTail, parse_tail
from qbeast_core.io.stores.store import Range, Store, map_files, merge_ranges

_FOOTER_BYTES: Final = 20_000  # in memory, about, without the pages

_WINDOW: Final = 512  # files whose tails are read at once and kept in memory


@dataclass(frozen=True, slots=True)
class PageRanges:
    """All byte ranges that a request reads from its file."""

    # Start and length of the dictionary pages and data pages, ascending, touching ranges merged.
    data: list[Range]
    # Start and length of page directory and footer.
    tail: Range
    bytes_total: int


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

    def ranges(self, request: PageRequest, columns: Sequence[str]) -> PageRanges:
        """Return the byte ranges that `read` fetches for a request."""
        plan = self._plan(columns, request)
        tail = (request.size_bytes - request.tail_bytes, request.tail_bytes)
        return PageRanges(merge_ranges(plan.all_ranges), tail, plan.size + request.tail_bytes)

    def bytes_of(self, request: PageRequest, columns: Sequence[str]) -> int:
        """Return the number of bytes in `ranges`, which is slower; raises the same errors."""
        return pages_bytes(self._tail(request), request, columns) + request.tail_bytes

    def read(
        self, requests: Sequence[PageRequest], columns: Sequence[str], schema: pl.Schema
    ) -> pl.DataFrame:
        """Read the rows of the requested pages."""
        return self._read(map_files(self._store, partial(self._plan, columns), requests), columns, schema)

    def read_batches(
        self, requests: Sequence[PageRequest], columns: Sequence[str], schema: pl.Schema, *, max_bytes: int
    ) -> Iterator[tuple[pl.DataFrame | None, list[PageRequest]]]:
        """Yield the rows of the requested pages in frames of limited size, in order, with the requests of each frame.

        Requests may be split. None: the pages of the request cannot be read, see `PageRequest.rows`.
        """
        batch: list[PagePlan] = []
        for request, plan in self._plans(requests, columns):
            for piece in split_plan(plan, max_bytes) if plan else ():
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
        for at in range(0, len(requests), _WINDOW):
            window = requests[at : at + _WINDOW]
            yield from zip(window, map_files(self._store, plan, window), strict=True)

    def _plan_or_none(self, columns: Sequence[str], request: PageRequest) -> PagePlan | None:
        try:
            return self._plan(columns, request)
        except PagesUnavailable:
            return None

    def _plan(self, columns: Sequence[str], request: PageRequest) -> PagePlan:
        return plan_pages(self._tail(request), request, columns)

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
        parts = map_files(self._store, self._fetch, plans)
        try:
            frame = pl.read_parquet(build_mini_file([part for of_file in parts for part in of_file]))
        except (PagesUnavailable, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            reason = f"the pages cannot be decoded ({error})"
            raise PagesUnavailable(reason, path) from error
        if frame.height != rows:
            reason = f"the pages hold {frame.height} rows instead of {rows}"
            raise PagesUnavailable(reason, path)
        return frame

    def _fetch(self, plan: PagePlan) -> list[FilePart]:
        buffers = iter(self._store.get_ranges(plan.request.path, plan.all_ranges))
        return [
            FilePart(
                plan.tail.footer,
                part.group,
                plan.leaves,
                part.rows,
                [[next(buffers) for _ in ranges] for ranges in part.ranges],
            )
            for part in plan.groups
        ]


def _conform(frame: pl.DataFrame, columns: Sequence[str], schema: pl.Schema) -> pl.DataFrame:
    """Return the frame with exactly these columns and data types."""
    dtypes = frame.schema  # once: Polars builds it at each access
    if columns and list(dtypes) != list(columns):  # select([]) would drop the rows
        missing = [pl.lit(None, dtype=schema[name]).alias(name) for name in columns if name not in dtypes]
        frame = (frame.with_columns(missing) if missing else frame)[list(columns)]
        dtypes = frame.schema
    other = {name: schema[name] for name in columns if dtypes[name] != schema[name]}
    return frame.cast(other) if other else frame  # type: ignore[arg-type]
