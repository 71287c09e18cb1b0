"""Rows of heavy keys that samples draw one by one, as positions in files; see `qbeast_core.query.plan.select`.

Spark workers import this module without the modules that choose files.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.query.plan.weight_range import WeightRange
from qbeast_core.space.values import MIN_WEIGHT, BoolArray, I32Array, I64Array

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

    def weights_of(self, rows: I64Array) -> I32Array:
        """Return the weights of some of its rows, by their indexes in the file; they ascend with these."""
        places = ((rows - self.first).astype(np.uint64) << np.uint64(32)) + np.uint64(self.offset)
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
            weights[here] = stretch.weights_of(rows[here])
        return read, is_drawn, weights


def _places(rows: I64Array, stretch: Stretch) -> slice:
    return slice(*np.searchsorted(rows, [stretch.first, stretch.first + stretch.rows]))
