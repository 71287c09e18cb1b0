"""Samples in which the rows of heavy keys are drawn one by one: each has a weight of its own, by its place in its file.

Rows of one key have one weight, so a sample has all of them or none. Where those of a heavy key lie end to end in an
order that is independent of their values, the i-th of m is given the weight at i / m of all weights instead. A range of
weights then holds as large a share of them as of all keys, in the first pages of the stretch.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from qbeast_core.query.plan.weights import WeightRange
from qbeast_core.space.arrays import BoolArray, I32Array, I64Array
from qbeast_core.space.weights import MIN_WEIGHT

if TYPE_CHECKING:  # workers of Spark import this file, and not how files are chosen
    from qbeast_core.query.index.pages import PageTable
    from qbeast_core.query.plan.select import Selection

_WEIGHTS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of one heavy key in a file."""

    # The first of them in the file, and how many there are, at least one.
    first: int
    rows: int
    # In [0, 2**32): where between two neighbours the weights that they are given begin.
    offset: int

    @staticmethod
    def of(first: int, rows: int, *, path: str) -> Stretch:
        """Return a stretch of a file, whose weights begin somewhere else than those of others do."""
        return Stretch(first, rows, zlib.crc32(f"{first}:{path}".encode(errors="surrogatepass")))

    @property
    def weights(self) -> I32Array:
        """The weight that each row is given, ascending, shape (rows,)."""
        places = (np.arange(self.rows, dtype=np.uint64) << np.uint64(32)) + np.uint64(self.offset)
        return ((places // np.uint64(self.rows)).astype(np.int64) + MIN_WEIGHT).astype(np.int32)

    def within(self, weights: WeightRange) -> tuple[int, int]:
        """Return the rows of the file, from the first to behind the last, whose weights lie in a range."""
        start, end = (self._below(bound - MIN_WEIGHT) for bound in (weights.from_, weights.to))
        return self.first + start, self.first + max(start, end)

    def _below(self, place: int) -> int:
        """Return how many rows have a weight below one, which is counted from the least."""
        return min(max(-(-(place * self.rows - self.offset) // _WEIGHTS), 0), self.rows)


@dataclass(frozen=True, slots=True)
class FileDraw:
    """How the rows of one file are drawn."""

    # Rows with weights of their own.
    one_by_one: tuple[Stretch, ...] = ()
    # Rows that a sample leaves out, as they are read by themselves.
    apart: tuple[Stretch, ...] = ()
    # Whether it is these that are read.
    only: bool = False

    def of(self, rows: I64Array) -> tuple[BoolArray, BoolArray, I32Array]:
        """Return of some rows which are read, which have weights of their own, and those, 0 for others."""
        read = np.full(len(rows), not self.only)
        for one in self.apart:
            read[_places(rows, one)] = self.only
        given, weights = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int32)
        for one in self.one_by_one:
            here = _places(rows, one)
            given[here] = True
            weights[here] = one.weights[rows[here] - one.first]
        return read, given, weights


def _places(rows: I64Array, stretch: Stretch) -> slice:
    return slice(*np.searchsorted(rows, [stretch.first, stretch.first + stretch.rows]))


def draw(
    by_key: Selection, every: Selection, files: Mapping[int, FileDraw], weights: WeightRange
) -> Selection:
    """Choose what to read for a sample in which some rows are drawn one by one."""
    table = by_key.table.pages
    chosen, possible = _mask(by_key, table), _mask(every, table)
    wanted = np.zeros_like(chosen)
    for file, of in files.items():
        begin, page_rows = int(table.first_page[file]), int(table.page_rows[file])
        end = int(by_key.table.num_records[file])
        for one in (*of.one_by_one, *of.apart):
            last = one.first + one.rows
            full = begin + (-(-last // page_rows) if last == end else last // page_rows)
            chosen[begin + -(-one.first // page_rows) : full] = False  # no row of another key is there
        for one in of.one_by_one:
            wanted[_pages(begin, page_rows, *one.within(weights))] = True
    return _reading(by_key, chosen | (wanted & possible), files)


def apart(every: Selection, files: Mapping[int, FileDraw]) -> Selection:
    """Choose what to read for the rows that samples leave out."""
    table = every.table.pages
    wanted = np.zeros(len(table.rows), np.bool_)
    for file, of in files.items():
        begin, page_rows = int(table.first_page[file]), int(table.page_rows[file])
        for one in of.apart:
            wanted[_pages(begin, page_rows, one.first, one.first + one.rows)] = True
    only = {file: replace(of, one_by_one=(), only=True) for file, of in files.items() if of.apart}
    found = _reading(every, wanted & _mask(every, table), only)
    return replace(found, opened=found.opened & (found.pages_opened > 0))


def _pages(begin: int, page_rows: int, first: int, last: int) -> slice:
    """Return the pages of a file, which begin there, that hold rows from the first to before the last."""
    return slice(begin + first // page_rows, begin + -(-last // page_rows) if first < last else 0)


def _reading(selection: Selection, pages: BoolArray, files: Mapping[int, FileDraw]) -> Selection:
    """Return a selection with other pages."""
    table = selection.table.pages
    found = np.flatnonzero(pages)
    offsets = np.searchsorted(found, table.first_page).astype(np.int64)
    per_file = np.diff(offsets)
    has_pages = np.diff(table.first_page) > 0
    return replace(
        selection,
        opened=np.where(has_pages, per_file > 0, selection.opened),
        page_numbers=found - np.repeat(table.first_page[:-1], per_file),
        page_offsets=offsets,
        drawn=files,
    )


def _mask(selection: Selection, table: PageTable) -> BoolArray:
    """Return for each page of all files whether it is chosen."""
    chosen = np.zeros(len(table.rows), np.bool_)
    chosen[np.repeat(table.first_page[:-1], selection.pages_opened) + selection.page_numbers] = True
    return chosen
