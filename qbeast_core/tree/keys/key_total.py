"""How often index keys repeat in many files: their sketches, added up."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.tree.keys.key_sketch import KeySketch, fold, to_counters

_DIGITS: Final = 6  # what sums of floats lose is not told


class KeyTotal:
    """A sum of sketches; what is kept of them does not grow with their number, lists of few keys aside.

    >>> total = KeyTotal()
    >>> total.add(KeySketch.of(np.array([1, 1, 5], dtype=np.int32)))
    >>> total.add(KeySketch.of(np.array([5, 6], dtype=np.int32)))
    >>> total.rows, total.squares
    (5, 9.0)
    """

    def __init__(self) -> None:
        self.rows = 0
        """Rows counted."""
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
        """Return the same sum, to count on without this one."""
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
        known = self._squares + listed
        # No more than if files repeated each other's keys in proportion (Cauchy and Schwarz).
        most = (self._roots + math.sqrt(listed)) ** 2
        return min(known * (1.0 + self._shared(weights, counts)), max(most, known))

    def design_effect(self, *, unknown_rows: int = 0) -> float:
        """Return the design effect of sampling these rows, 1.0 or more; of no rows 1.0."""
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
        known = self.squares if squares is None else squares
        return KeySketch(self.rows, round(known), weights[:0], counters)

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
        """Estimate what keys add that lie in several files, as a share of the squares within files.

        Both are told by products of counters. Their ratio errs less than the products do: of files that hold the
        same keys it is exact.
        """
        widths = sorted(self._levels, reverse=True)
        if not widths:
            return 0.0
        finer = to_counters(weights, counts, widths[0])
        own, shared = _square(finer), 0.0
        for width in widths:
            level = self._levels[width]
            finer = fold(finer, width)
            shared += 2.0 * _product(finer, level.counters) + level.shared
            own += level.own
            finer = finer + level.counters
        return max(shared / own, 0.0) if own else 0.0


class _Level:
    """Files with as many counters each."""

    def __init__(self, width: int) -> None:
        self.counters = np.zeros(width, np.int64)
        self.own = 0.0

    def add(self, numbers: I64Array) -> None:
        self.counters += numbers
        self.own += _square(numbers)

    def copy(self) -> _Level:
        other = _Level(len(self.counters))
        other.counters, other.own = self.counters.copy(), self.own
        return other

    @property
    def shared(self) -> float:
        """Products of counters of different files."""
        return _square(self.counters) - self.own


def _square(numbers: I64Array) -> float:
    return _product(numbers, numbers)


def _product(first: I64Array, second: I64Array) -> float:
    # No `dot`: its threads wait in a loop afterwards, and take a core from others for some 30 ms.
    return float(np.einsum("i,i->", first.astype(np.float64), second.astype(np.float64)))
