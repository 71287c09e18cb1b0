"""Narrow a read to the pages that hold matching rows, by the columns of the filter alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.io.pages import PageRequest
from qbeast_core.plan.nodes import named_columns
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.support.frames import own_column
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.scan import FileScan, RowCodec, TableFiles

_MATCHES: Final = own_column("matches")

# Every 16th page is tried first. If more than this share of them match, the search stops.
_TRIED: Final = 16
_MOST: Final = 1 / 4


def matching_pages(
    scans: Sequence[FileScan], predicate: pl.Expr, schema: pl.Schema, files: TableFiles
) -> list[FileScan]:
    """Return the scans of pages that have a matching row, deleted rows included, and of pages that cannot be read.

    All scans are returned where a search takes longer than it saves: of few pages; and on a local disk, where some
    pages are tried first, if many of them match.
    """
    if _pages_in(scans) < sizing().min_searched_pages:
        return list(scans)
    search = _Search(predicate, RowCodec(files.columns, named_columns(predicate), schema), files)
    if files.store.local_root is not None:
        tried = list(_every(_TRIED, scans))
        if _pages_in(search.matching(tried)) > _MOST * _pages_in(tried):
            return list(scans)
    return search.matching(scans)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    predicate: pl.Expr
    codec: RowCodec
    files: TableFiles

    def matching(self, scans: Sequence[FileScan]) -> list[FileScan]:
        """Return the scans of pages that have a matching row."""
        found: dict[str, list[I64Array]] = defaultdict(list)
        for path, pages in self._found(scans):
            found[path].append(pages)
        pages_of = {path: np.concatenate(pages) for path, pages in found.items()}
        return [
            replace(scan, pages=scan.pages.at(positions))
            for scan in scans
            if scan.pages and len(positions := np.flatnonzero(np.isin(scan.pages.pages, pages_of[scan.path])))
        ]

    def _found(self, scans: Sequence[FileScan]) -> Iterator[tuple[str, I64Array]]:
        """Yield files and some of their pages that have a matching row."""
        scan_of = {scan.path: scan for scan in scans}
        requests = [scan.pages for scan in scans if scan.pages]
        stored_schema = self.codec.stored_schema
        frames = self.files.pages.read_batches(
            requests, list(stored_schema), stored_schema, max_bytes=sizing().batch_bytes
        )
        for stored, read in frames:
            if stored is None:
                yield read[0].path, read[0].pages
                continue
            parts, counts = [scan_of[part.path] for part in read], [part.row_count for part in read]
            rows = self.codec.rows(stored, parts, counts).with_columns(self.predicate.alias(_MATCHES))
            yield from _pages_with(rows[_MATCHES].fill_null(value=False).to_numpy(), read)


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
