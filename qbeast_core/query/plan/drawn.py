"""Draw samples in which each row of a heavy key has its own weight, by its position in the file.

Rows of one key share one weight, so a sample has all of them or none. If the rows of a heavy key are contiguous, in an
order that is independent of their values, the i-th of m rows gets the weight at i / m of all weights instead. A range
of weights then holds the same fraction of them as of all keys, in the first pages of the stretch.
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

if TYPE_CHECKING:  # Spark workers import this module without the modules that choose files
    from qbeast_core.query.plan.select import Selection

_WEIGHTS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of one heavy key in a file."""

    # First row in the file, and number of rows, at least one.
    first: int
    rows: int
    # In [0, 2**32): offset of the first weight, as a part of the distance of two weights.
    offset: int

    @staticmethod
    def of(first: int, rows: int, *, path: str) -> Stretch:
        """Return a stretch of a file, with an offset derived from its path and first row."""
        return Stretch(first, rows, zlib.crc32(f"{first}:{path}".encode(errors="surrogatepass")))

    @property
    def weights(self) -> I32Array:
        """Weight of each row, ascending, shape (rows,)."""
        places = (np.arange(self.rows, dtype=np.uint64) << np.uint64(32)) + np.uint64(self.offset)
        return ((places // np.uint64(self.rows)).astype(np.int64) + MIN_WEIGHT).astype(np.int32)

    def within(self, weights: WeightRange) -> tuple[int, int]:
        """Return the half-open range of rows of the file whose weights lie in a range."""
        start, end = (self._below(bound - MIN_WEIGHT) for bound in (weights.from_, weights.to))
        return self.first + start, self.first + max(start, end)

    def _below(self, place: int) -> int:
        """Return the number of rows with a weight below `place`, counted from the smallest weight."""
        return min(max(-(-(place * self.rows - self.offset) // _WEIGHTS), 0), self.rows)


@dataclass(frozen=True, slots=True)
class FileDraw:
    """How the rows of one file are drawn."""

    # Rows with their own weights.
    one_by_one: tuple[Stretch, ...] = ()
    # Rows that a sample skips because they are read separately.
    apart: tuple[Stretch, ...] = ()
    # Read only the rows of `apart`.
    only: bool = False

    def of(self, rows: I64Array) -> tuple[BoolArray, BoolArray, I32Array]:
        """Return masks of the rows that are read and that have their own weights, and these weights (0 for others)."""
        read = np.full(len(rows), not self.only)
        for stretch in self.apart:
            read[_places(rows, stretch)] = self.only
        is_drawn, weights = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int32)
        for stretch in self.one_by_one:
            here = _places(rows, stretch)
            is_drawn[here] = True
            weights[here] = stretch.weights[rows[here] - stretch.first]
        return read, is_drawn, weights


def _places(rows: I64Array, stretch: Stretch) -> slice:
    return slice(*np.searchsorted(rows, [stretch.first, stretch.first + stretch.rows]))


def draw(
    by_key: Selection, matching: Selection, files: Mapping[int, FileDraw], weights: WeightRange
) -> Selection:
    """Choose what to read for a sample in which each row of some keys is drawn separately."""
    table = by_key.table.pages
    chosen = by_key.page_mask
    pages = np.zeros_like(chosen)
    for file, file_draw in files.items():
        for stretch in (*file_draw.one_by_one, *file_draw.apart):
            touched = table.pages_with(file, stretch.first, stretch.first + stretch.rows)
            first = table.first_row[touched]
            has_others = (first < stretch.first) | (
                first + table.rows[touched] > stretch.first + stretch.rows
            )
            chosen[touched] &= has_others
        for stretch in file_draw.one_by_one:
            pages[table.pages_with(file, *stretch.within(weights))] = True
    return _reading(by_key, chosen | (pages & matching.page_mask), files)


def apart(matching: Selection, files: Mapping[int, FileDraw]) -> Selection:
    """Choose what to read for the rows that samples skip."""
    table = matching.table.pages
    pages = np.zeros(len(table.rows), np.bool_)
    for file, file_draw in files.items():
        for stretch in file_draw.apart:
            pages[table.pages_with(file, stretch.first, stretch.first + stretch.rows)] = True
    only = {
        file: replace(file_draw, one_by_one=(), only=True)
        for file, file_draw in files.items()
        if file_draw.apart
    }
    selection = _reading(matching, pages & matching.page_mask, only)
    return replace(selection, opened=selection.opened & (selection.pages_opened > 0))


def _reading(selection: Selection, pages: BoolArray, files: Mapping[int, FileDraw]) -> Selection:
    """Return a selection with other pages."""
    chosen = replace(selection, page_numbers=np.flatnonzero(pages), drawn=files)
    return replace(chosen, opened=np.where(chosen.pages_total > 0, chosen.pages_opened > 0, chosen.opened))
