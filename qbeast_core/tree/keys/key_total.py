"""Add up sketches of repeated index keys over many files."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.tree.keys.key_sketch import KeySketch, fold, to_counters

_DIGITS: Final = 6  # hides rounding errors of sums


class KeyTotal:
    """A sum of sketches; its size does not grow with their number, except for lists of keys.

    >>> total = KeyTotal()
    >>> total.add(KeySketch.of(np.array([1, 1, 5], dtype=np.int32)))
    >>> total.add(KeySketch.of(np.array([5, 6], dtype=np.int32)))
    >>> total.rows, total.squares
    (5, 9.0)
    """

    def __init__(self) -> None:
        self.rows = 0
        """Number of rows."""
        self._lists: list[tuple[I32Array, I64Array]] = []
        # Sum of the counters of files with the same number of counters.
        self._counters: dict[int, I64Array] = {}
        self._squares, self._roots, self._within = 0.0, 0.0, 0.0

    def add(self, sketch: KeySketch) -> None:
        """Count the rows of one more file."""
        self.rows += sketch.rows
        if sketch.is_listed:
            self._lists.append((sketch.weights, sketch.numbers))
            return
        self._squares += float(sketch.squares)
        self._roots += math.sqrt(sketch.squares)
        self._within += _square(sketch.numbers)
        width = len(sketch.numbers)
        self._counters[width] = self._counters.get(width, 0) + sketch.numbers

    def copy(self) -> KeyTotal:
        """Return an independent copy."""
        other = KeyTotal()
        other.rows = self.rows
        other._squares, other._roots, other._within = self._squares, self._roots, self._within
        other._lists, other._counters = list(self._lists), dict(self._counters)  # arrays are never changed
        return other

    @property
    def squares(self) -> float:
        """``sum(m_k ** 2)`` over keys: exact within a file and among listed keys, else estimated."""
        weights, counts = self._listed()
        listed = float((counts.astype(np.float64) ** 2).sum())
        squares = self._squares + listed
        # Upper bound: all files repeat the same keys in proportion (Cauchy and Schwarz).
        max_squares = (self._roots + math.sqrt(listed)) ** 2
        return min(squares * (1.0 + self._shared(weights, counts)), max(max_squares, squares))

    def design_effect(self, *, unknown_rows: int = 0) -> float:
        """Return the design effect of sampling these rows, at least 1.0; 1.0 without rows."""
        rows = self.rows + unknown_rows
        return max(round((self.squares + unknown_rows) / rows, _DIGITS), 1.0) if rows else 1.0

    def joined(self, squares: float | None = None) -> KeySketch:
        """Return all rows as one sketch."""
        weights, counts = self._listed()
        if not self._counters:
            return KeySketch(self.rows, int(np.dot(counts, counts)), weights, counts)
        counters = to_counters(weights, counts, max(self._counters))
        for width in sorted(self._counters, reverse=True):
            counters = fold(counters, width) + self._counters[width]
        total = self.squares if squares is None else squares
        return KeySketch(self.rows, round(total), weights[:0], counters)

    def _listed(self) -> tuple[I32Array, I64Array]:
        if not self._lists:
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        weights = np.concatenate([weights for weights, _ in self._lists])
        keys, places = np.unique(weights, return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, places, np.concatenate([numbers for _, numbers in self._lists]))
        self._lists = [(keys, counts)]
        return keys, counts

    def _shared(self, weights: I32Array, counts: I64Array) -> float:
        """Estimate the contribution of keys in several files, as a fraction of the squares within files.

        Products of counters estimate both. Their ratio is more precise than the products; it is exact for files with
        the same keys.
        """
        if not self._counters:
            return 0.0
        finer = to_counters(weights, counts, max(self._counters))
        within, shared = _square(finer) + self._within, -self._within
        for width in sorted(self._counters, reverse=True):
            finer = fold(finer, width)
            shared -= _square(finer)
            finer = finer + self._counters[width]
            shared += _square(finer)
        return max(shared / within, 0.0) if within else 0.0


def _square(numbers: I64Array) -> float:
    exact = numbers.astype(np.float64)
    return float(np.einsum("i,i->", exact, exact))  # `dot` would occupy a core for some 30 ms afterwards
