"""Plan the byte ranges of requested pages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from qbeast_core.io.parquet.cuts import PageCuts
from qbeast_core.io.parquet.footer import FileFooter, PagesUnavailable
from qbeast_core.io.parquet.mini_file import schema_key
from qbeast_core.io.parquet.tail import FileTail
from qbeast_core.io.stores.store import Range, merge_ranges
from qbeast_core.space.arrays import F64Array, I64Array

# A budget of stored bytes allows for this many decompressed bytes per stored byte. Ordinary columns stay below it.
_EXPANSION: Final = 4


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
    # First row and end of the rows to read instead if the pages cannot be read; None: up to the end of the file. Parts
    # of a request share the rows of the file.
    rows: tuple[int, int | None] = (0, None)

    @property
    def row_count(self) -> int:
        """Number of rows in the pages."""
        return int(np.diff(self.cuts.starts())[self.pages].sum())

    def split(self, parts: Sequence[I64Array]) -> list[PageRequest]:
        """Return a request for each part of the pages."""
        starts = self.cuts.starts()
        firsts = [self.rows[0], *(int(starts[part[0]]) for part in parts[1:])]
        bounds = zip(firsts, [*firsts[1:], self.rows[1]], strict=True)
        return [replace(self, pages=part, rows=rows) for part, rows in zip(parts, bounds, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class GroupPages:
    """Pages of one row group, with the byte ranges to read."""

    # Number of the row group, and rows in the pages.
    group: int
    rows: int
    # Per leaf: start and length of its dictionary page, if any, and its runs of pages, ascending.
    ranges: list[list[Range]]


@dataclass(frozen=True, slots=True, eq=False)
class PagePlan:
    """A request with the byte ranges to read for it."""

    # The request, and the tail of its file.
    request: PageRequest
    tail: FileTail
    # Numbers of the leaf columns to read, ascending.
    leaves: list[int]
    # The row groups that have requested pages, ascending.
    groups: list[GroupPages]
    # Rows in the pages; bytes in the ranges.
    rows: int
    size: int
    # Bytes to count against a limit: the stored bytes, or a quarter of the decompressed bytes if that is more.
    cost: int
    # Equal for plans whose pages can lie in one mini file.
    schema: tuple[bytes, ...]

    @property
    def all_ranges(self) -> list[Range]:
        """The ranges of all row groups and leaves, ascending."""
        return [piece for group in self.groups for ranges in group.ranges for piece in ranges]


def plan_pages(tail: FileTail, request: PageRequest, columns: Collection[str]) -> PagePlan:
    """Return the byte ranges of the requested pages."""
    _check(tail, request)
    leaves = _leaves_of(tail.footer, columns)
    page_rows = np.diff(tail.cuts.starts())
    groups = [
        GroupPages(group, int(page_rows[pages].sum()), _leaf_ranges(tail, group, leaves, pages))
        for group, pages in _by_group(tail, request.pages)
    ]
    return PagePlan(
        request=request,
        tail=tail,
        leaves=leaves,
        groups=groups,
        rows=sum(part.rows for part in groups),
        size=sum(length for part in groups for pieces in part.ranges for _, length in pieces),
        cost=int(_costs(tail, leaves, request.pages).sum()),
        schema=schema_key(tail.footer, leaves),
    )


def pages_bytes(tail: FileTail, request: PageRequest, columns: Collection[str]) -> int:
    """Return the number of bytes of the requested pages and their dictionaries, without the ranges."""
    _check(tail, request)
    leaves = _leaves_of(tail.footer, columns)
    groups = [tail.footer.groups[group] for group in np.unique(tail.page_groups[request.pages])]
    chunks = [group.chunks[leaf] for group in groups for leaf in leaves]
    dictionaries: int = sum(chunk.data_start - chunk.start for chunk in chunks)
    return int(tail.page_sizes[leaves][:, request.pages].sum()) + dictionaries


def split_plan(plan: PagePlan, max_bytes: int) -> list[PagePlan]:
    """Split a plan between pages into plans of about `max_bytes`, dictionaries aside, or of one page."""
    if plan.cost <= max_bytes or len(plan.request.pages) == 1:
        return [plan]
    pages = plan.request.pages
    group = np.maximum(np.cumsum(_costs(plan.tail, plan.leaves, pages)) - 1, 0) // max_bytes
    columns = {plan.tail.footer.leaves[leaf] for leaf in plan.leaves}
    parts = np.split(pages, np.flatnonzero(np.diff(group)) + 1)
    return [plan_pages(plan.tail, part, columns) for part in plan.request.split(parts)]


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
