"""Sketch how often index keys repeat in a file, in a few hundred bytes that can be added over files.

A file with few keys lists them. Other files have 512 or 1,024 counters: each key adds its rows to one counter or
subtracts them, as its weight decides. The counters of two files add up to the counters of both, and the squares of
all counters estimate ``sum(m_k ** 2)`` over keys with error ``sqrt(2 / counters)`` (the sketch of Alon, Matias and
Szegedy, with the buckets of Charikar, Chen and Farach-Colton), for heavy keys and for rare keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.values import I32Array, I64Array, U32Array
from qbeast_core.support.sizing import sizing

# Maximum number of listed keys; they need as many bytes as the counters of a small file.
MAX_LISTED: Final = 32

# Counters of a file with at least a thousand rows: the error is about 4 %.
MAX_COUNTERS: Final = 1024

_MIN_COUNTERS: Final = 512
_MAX_SMALL_ROWS: Final = 1 << 10


@dataclass(frozen=True, slots=True, eq=False)
class KeySketch:
    """Counts of repeated keys in some rows."""

    rows: int
    # `sum(m_k ** 2)`, where m_k is the number of rows with key k.
    squares: int
    # The weights of all keys, ascending, if they are listed; else empty.
    weights: I32Array
    # The rows of each listed key; else the counters, whose number is a power of two.
    numbers: I64Array

    @property
    def is_listed(self) -> bool:
        """Whether all keys are listed; also true without rows."""
        return len(self.weights) == len(self.numbers)

    @staticmethod
    def of(weights: I32Array) -> KeySketch:
        """Count the keys of rows, given their weights so that equal ones are contiguous.

        >>> sketch = KeySketch.of(np.array([1, 1, 5, 7], dtype=np.int32))
        >>> sketch.rows, sketch.squares, sketch.weights.tolist(), sketch.numbers.tolist()
        (4, 6, [1, 5, 7], [2, 1, 1])
        """
        differs = weights[1:] != weights[:-1]
        key_count = int(np.count_nonzero(differs)) + 1
        if key_count <= MAX_LISTED:
            keys, counts = np.unique(weights, return_counts=True)
            return KeySketch(len(weights), int(np.dot(counts, counts)), keys, counts.astype(np.int64))
        width = _MIN_COUNTERS if len(weights) < _MAX_SMALL_ROWS else MAX_COUNTERS
        if key_count == len(weights):
            return KeySketch(len(weights), len(weights), weights[:0], to_counters(weights, None, width))
        begins = np.concatenate([[0], np.flatnonzero(differs) + 1])
        counts = np.diff(begins, append=len(weights))
        counters = to_counters(weights[begins], counts, width)
        return KeySketch(len(weights), int(np.dot(counts, counts)), weights[:0], counters)

    def without(self, weights: I32Array, counts: I64Array) -> KeySketch:
        """Return the sketch of the rows without those of some keys.

        >>> sketch = KeySketch.of(np.array([1, 1, 5, 7], dtype=np.int32))
        >>> left = sketch.without(np.array([1], dtype=np.int32), np.array([2]))
        >>> left.rows, left.squares, left.weights.tolist(), left.numbers.tolist()
        (2, 2, [5, 7], [1, 1])
        """
        rows, squares = self.rows - int(counts.sum()), self.squares - int(np.dot(counts, counts))
        if self.is_listed:
            left = ~np.isin(self.weights, weights)
            return KeySketch(rows, squares, self.weights[left], self.numbers[left])
        counters = self.numbers - to_counters(weights, counts, len(self.numbers))
        return KeySketch(rows, squares, self.weights, counters)


def to_counters(weights: I32Array, counts: I64Array | None, width: int) -> I64Array:
    """Return the counters of keys; each key counts once if `counts` is None."""
    both = np.zeros(2 * width, np.int64)
    step = max(sizing().chunk_rows >> 1, 1)
    for first in range(0, len(weights), step):  # in chunks, so the arrays fit the caches
        bits = mixed(weights[first : first + step].view(np.uint32))
        # The upper half collects the rows to subtract.
        slots = ((bits & np.uint32(width - 1)) | ((bits >> np.uint32(31)) * np.uint32(width))).astype(
            np.int64
        )
        if counts is None:
            both += np.bincount(slots, minlength=2 * width)
        else:
            np.add.at(both, slots, counts[first : first + step])
    return both[:width] - both[width:]


def fold(counters: I64Array, width: int) -> I64Array:
    """Reduce counters to a smaller number for the same keys.

    >>> keys = np.arange(99, dtype=np.int32)
    >>> bool((fold(to_counters(keys, None, 1024), 512) == to_counters(keys, None, 512)).all())
    True
    """
    folded: I64Array = counters.reshape(-1, width).sum(axis=0)
    return folded


def mixed(numbers: U32Array) -> U32Array:
    """Mix the bits of numbers. Weights are not uniform within a file or page, which hold ranges of weights.

    >>> mixed(np.array([0, 1, 2], dtype=np.uint32)).tolist()
    [0, 1753845952, 3507691905]
    """
    bits = numbers.copy()
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(0x7FEB352D)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x846CA68B)
    bits ^= bits >> np.uint32(16)
    return bits


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


# Above this design effect, samples are noticeably less precise than their number of rows suggests.
CLUSTERED: Final = 2.0


def design_effect(weights: I32Array, *, share: float = 1.0) -> float:
    """Return the design effect of sampling by weight: ``sum(m_k ** 2) / n`` over index keys.

    Rows with equal keys have equal weights and enter a sample together, so the variance of a sampled count
    is this many times the variance of sampling row by row; 1.0 is the minimum.

    >>> design_effect(np.array([1, 1, 2, 3], dtype=np.int32))
    1.5
    """
    if not len(weights):
        return 1.0
    ordered = np.sort(weights)
    squares, start = 0.0, 0
    # In chunks, because sizes of runs need twice the memory of weights.
    for first in range(1, len(ordered), sizing().chunk_rows):
        last = min(first + sizing().chunk_rows, len(ordered))
        starts = np.flatnonzero(ordered[first:last] != ordered[first - 1 : last - 1]) + first
        sizes = np.diff(starts, prepend=start).astype(np.float64) if len(starts) else np.zeros(0)
        squares += float(np.einsum("i,i->", sizes, sizes))  # threads of `dot` spin while they wait
        start = int(starts[-1]) if len(starts) else start
    sample_effect = (squares + float(len(ordered) - start) ** 2) / len(ordered)
    # Two rows with one key are both sampled with probability share ** 2.
    return 1.0 + (sample_effect - 1.0) / share
