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
        self._levels: dict[int, _Level] = {}
        self._squares, self._roots = 0.0, 0.0

    def add(self, sketch: KeySketch) -> None:
        """Count the rows of one more file."""
        self.rows += sketch.rows
        if sketch.is_listed:
            self._lists.append((sketch.weights, sketch.numbers))
            return
        self._squares += float(sketch.squares)
        self._roots += math.sqrt(sketch.squares)
        width = len(sketch.numbers)
        level = self._levels.get(width)
        if level is None:
            level = self._levels[width] = _Level(width)
        level.add(sketch.numbers)

    def copy(self) -> KeyTotal:
        """Return an independent copy."""
        other = KeyTotal()
        other.rows, other._squares, other._roots = self.rows, self._squares, self._roots
        other._lists = list(self._lists)
        other._levels = {width: level.copy() for width, level in self._levels.items()}
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
        if not self._levels:
            return KeySketch(self.rows, int(np.dot(counts, counts)), weights, counts)
        widths = sorted(self._levels, reverse=True)
        counters = to_counters(weights, counts, widths[0])
        for width in widths:
            counters = fold(counters, width) + self._levels[width].counters
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
        widths = sorted(self._levels, reverse=True)
        if not widths:
            return 0.0
        finer = to_counters(weights, counts, widths[0])
        within, shared = _square(finer), 0.0
        for width in widths:
            level = self._levels[width]
            finer = fold(finer, width)
            shared += 2.0 * _product(finer, level.counters) + level.shared
            within += level.within
            finer = finer + level.counters
        return max(shared / within, 0.0) if within else 0.0


class _Level:
    """Sum of the files with the same number of counters."""

    def __init__(self, width: int) -> None:
        self.counters = np.zeros(width, np.int64)
        self.within = 0.0

    def add(self, numbers: I64Array) -> None:
        self.counters += numbers
        self.within += _square(numbers)

    def copy(self) -> _Level:
        other = _Level(len(self.counters))
        other.counters, other.within = self.counters.copy(), self.within
        return other

    @property
    def shared(self) -> float:
        """Products of counters of different files."""
        return _square(self.counters) - self.within


def _square(numbers: I64Array) -> float:
    return _product(numbers, numbers)


def _product(first: I64Array, second: I64Array) -> float:
    # Not `dot`: its threads spin afterwards, and occupy a core for some 30 ms.
    return float(np.einsum("i,i->", first.astype(np.float64), second.astype(np.float64)))
