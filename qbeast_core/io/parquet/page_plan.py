"""Plan the byte ranges of requested pages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

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
    num_rows: int
    # Rows per page, and the length of page directory and footer, from the file's layout tag.
    page_rows: int
    tail_bytes: int
    # int64, page numbers from 0, strictly ascending.
    pages: I64Array


@dataclass(frozen=True, slots=True, eq=False)
class PagePlan:
    """A request with the byte ranges to read for it."""

    # The request, and the tail of its file.
    request: PageRequest
    tail: FileTail
    # Numbers of the leaf columns to read, ascending.
    leaves: list[int]
    # Per leaf: start and length of its dictionary page, if any, and its runs of pages, ascending.
    ranges: list[list[Range]]
    # Rows in the pages; bytes in the ranges.
    rows: int
    size: int
    # Bytes to count against a limit: the stored bytes, or a quarter of the decompressed bytes if that is more.
    cost: int
    # Equal for plans whose pages can lie in one mini file.
    schema: tuple[bytes, ...]

    @property
    def all_ranges(self) -> list[Range]:
        """The ranges of all leaves, ascending."""
        return [piece for ranges in self.ranges for piece in ranges]


def plan_pages(tail: FileTail, request: PageRequest, columns: Collection[str]) -> PagePlan:
    """Return the byte ranges of the requested pages."""
    _check(tail, request)
    footer, pages = tail.footer, request.pages
    leaves = _leaves_of(footer, columns)
    ranges = _leaf_ranges(tail, leaves, pages)
    lengths = [sum(length for _, length in pieces) for pieces in ranges]
    # Pages are cut after the same number of rows in all columns, so page numbers are row ranges and one list of pages
    # serves every leaf. Only the last page of a file is shorter.
    missing = tail.pages * tail.page_rows - footer.num_rows if pages[-1] == tail.pages - 1 else 0
    return PagePlan(
        request=request,
        tail=tail,
        leaves=leaves,
        ranges=ranges,
        rows=len(pages) * tail.page_rows - missing,
        size=sum(lengths),
        cost=int(np.dot(lengths, _costs(footer, leaves))),
        schema=schema_key(footer, leaves),
    )


def pages_bytes(tail: FileTail, request: PageRequest, columns: Collection[str]) -> int:
    """Return the number of bytes of the requested pages and their dictionaries, without the ranges."""
    _check(tail, request)
    leaves, pages = _leaves_of(tail.footer, columns), request.pages
    chunks = [tail.footer.chunks[leaf] for leaf in leaves]
    starts = tail.page_starts[leaves]
    data = (
        starts[:, -1] - starts[:, 0] if len(pages) == tail.pages else starts[:, pages + 1] - starts[:, pages]
    )
    return int(data.sum()) + sum(max(chunk.data_start - chunk.start, 0) for chunk in chunks)


def split_plan(plan: PagePlan, max_bytes: int) -> list[PagePlan]:
    """Split a plan between pages into plans of about `max_bytes`, dictionaries aside, or of one page."""
    if plan.cost <= max_bytes or len(plan.request.pages) == 1:
        return [plan]
    pages, starts = plan.request.pages, plan.tail.page_starts[plan.leaves]
    costs = _costs(plan.tail.footer, plan.leaves)
    sizes = (costs[:, None] * (starts[:, pages + 1] - starts[:, pages])).sum(axis=0)
    group = np.maximum(np.cumsum(sizes) - 1, 0) // max_bytes
    columns = {plan.tail.footer.chunks[leaf].column for leaf in plan.leaves}
    return [
        plan_pages(plan.tail, replace(plan.request, pages=part), columns)
        for part in np.split(pages, np.flatnonzero(np.diff(group)) + 1)
    ]


def _check(tail: FileTail, request: PageRequest) -> None:
    """Raise if a request does not match the file, or has no pages."""
    footer, pages = tail.footer, request.pages
    if (footer.num_rows, tail.page_rows) != (request.num_rows, request.page_rows):
        reason = "the file's rows or pages differ from the table's log"
        # Another writer replaced the file. Its pages are cut at other rows: reading them would return wrong rows.
        raise PagesUnavailable(reason, request.path)
    if len(pages) == 0 or pages[0] < 0 or pages[-1] >= tail.pages or (pages[1:] <= pages[:-1]).any():
        reason = f"the requested pages are not ascending numbers from 0 to {tail.pages - 1}"
        raise PagesUnavailable(reason, request.path)


def _leaves_of(footer: FileFooter, columns: Collection[str]) -> list[int]:
    names = set(columns)
    return [number for number, chunk in enumerate(footer.chunks) if chunk.column in names]


def _costs(footer: FileFooter, leaves: list[int]) -> F64Array:
    """Return the cost of a stored byte of each leaf: some columns decompress to a thousand times their size."""
    chunks = [footer.chunks[leaf] for leaf in leaves]
    return np.array([max(1.0, chunk.uncompressed / (_EXPANSION * max(chunk.size, 1))) for chunk in chunks])


def _leaf_ranges(tail: FileTail, leaves: list[int], pages: I64Array) -> list[list[Range]]:
    # Consecutive pages are adjacent in the file, so each run of them is one range.
    breaks = np.flatnonzero(np.diff(pages) != 1)
    first = pages[np.concatenate(([0], breaks + 1))]
    after = pages[np.concatenate((breaks, [len(pages) - 1]))] + 1
    starts = tail.page_starts[leaves][:, first]
    lengths = tail.page_starts[leaves][:, after] - starts
    ranges: list[list[Range]] = []
    for leaf, leaf_starts, leaf_lengths in zip(leaves, starts.tolist(), lengths.tolist(), strict=True):
        chunk = tail.footer.chunks[leaf]
        runs = list(zip(leaf_starts, leaf_lengths, strict=True))
        if chunk.data_start > chunk.start:  # every page of the chunk needs its dictionary
            runs = merge_ranges([(chunk.start, chunk.data_start - chunk.start), *runs])
        ranges.append(runs)
    return ranges
