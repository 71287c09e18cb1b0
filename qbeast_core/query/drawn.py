"""Samples in which the rows of heavy keys are drawn one by one: each has a weight of its own, by its place in its file.

Rows of one key have one weight, so a sample has all of them or none. Where those of a heavy key lie end to end in an
order that is independent of their values, the i-th of m is given the weight at i / m of all weights instead. A range of
weights then holds as large a share of them as of all keys, in the first pages of the stretch.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from qbeast_core.query.weights import WeightRange
from qbeast_core.space.arrays import BoolArray, I32Array, I64Array
from qbeast_core.space.weights import MIN_WEIGHT

if TYPE_CHECKING:  # workers of Spark import this file, and not how files are chosen
    from qbeast_core.query.pages import PageTable
    from qbeast_core.query.select import Selection

__all__ = ["Stretch", "draw", "drawn_weights"]

_WEIGHTS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of one heavy key in a file.

    Attributes
    ----------
    first, rows : int
        The first of them in the file, and how many there are, at least one.
    offset : int
        In [0, 2**32): where between two neighbours the weights that they are given begin.
    """

    first: int
    rows: int
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


def drawn_weights(stretches: Sequence[Stretch], rows: I64Array) -> tuple[BoolArray, I32Array]:
    """Return which of some rows of a file are drawn one by one, and the weights that they are given, 0 for others.

    Parameters
    ----------
    stretches : sequence of Stretch
        Of the file, apart from each other.
    rows : ndarray of int64, shape (rows,)
        Numbers of rows, ascending.
    """
    drawn, weights = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int32)
    for one in stretches:
        here = slice(*np.searchsorted(rows, [one.first, one.first + one.rows]))
        drawn[here] = True
        weights[here] = one.weights[rows[here] - one.first]
    return drawn, weights


def draw(
    by_key: Selection, every: Selection, drawn: Mapping[int, Sequence[Stretch]], weights: WeightRange
) -> Selection:
    """Choose what to read for a sample in which some rows are drawn one by one.

    Parameters
    ----------
    by_key : Selection
        What is read for the same weights where no row is.
    every : Selection
        What is read for all weights, by the same filter.
    drawn : mapping of int to sequence of Stretch
        By numbers of files that tell of their pages, the rows.
    weights : WeightRange
        Of the sample.
    """
    table = by_key.table.pages
    chosen, possible = _mask(by_key, table), _mask(every, table)
    wanted = np.zeros_like(chosen)
    for file, stretches in drawn.items():
        begin, page_rows = int(table.first_page[file]), int(table.page_rows[file])
        end = int(by_key.table.num_records[file])
        for one in stretches:
            last = one.first + one.rows
            full = begin + (-(-last // page_rows) if last == end else last // page_rows)
            chosen[begin + -(-one.first // page_rows) : full] = False  # no row of another key is there
            start, stop = one.within(weights)
            if start < stop:
                wanted[begin + start // page_rows : begin + -(-stop // page_rows)] = True
    found = np.flatnonzero(chosen | (wanted & possible))
    offsets = np.searchsorted(found, table.first_page).astype(np.int64)
    per_file = np.diff(offsets)
    has_pages = np.diff(table.first_page) > 0
    return replace(
        by_key,
        opened=np.where(has_pages, per_file > 0, by_key.opened),
        page_numbers=found - np.repeat(table.first_page[:-1], per_file),
        page_offsets=offsets,
        drawn=drawn,
    )


def _mask(selection: Selection, table: PageTable) -> BoolArray:
    """Tell of each page of all files whether it is chosen."""
    chosen = np.zeros(len(table.rows), np.bool_)
    chosen[np.repeat(table.first_page[:-1], selection.pages_opened) + selection.page_numbers] = True
    return chosen
