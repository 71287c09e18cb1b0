"""Sketch how often index keys repeat in a file, in a few hundred bytes that can be added over files.

A file with few keys lists them. Other files have 512 or 1,024 counters: each key adds its rows to one counter or
subtracts them, as its weight decides. The counters of two files add up to the counters of both, and the squares of
all counters estimate ``sum(m_k ** 2)`` over keys with error ``sqrt(2 / counters)`` (the sketch of Alon, Matias and
Szegedy, with the buckets of Charikar, Chen and Farach-Colton), for heavy keys and for rare keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U32Array

# Maximum number of listed keys; they need as many bytes as the counters of a small file.
MAX_LISTED: Final = 32

# Counters of a file with at least a thousand rows: the error is about 4 %.
MAX_COUNTERS: Final = 1024

_MIN_COUNTERS: Final = 512
_MAX_SMALL_ROWS: Final = 1 << 10
_CHUNK_ROWS: Final = 1 << 15


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
    for first in range(0, len(weights), _CHUNK_ROWS):  # in chunks, so the arrays fit the caches
        bits = mixed(weights[first : first + _CHUNK_ROWS].view(np.uint32))
        # The upper half collects the rows to subtract.
        slots = ((bits & np.uint32(width - 1)) | ((bits >> np.uint32(31)) * np.uint32(width))).astype(
            np.int64
        )
        if counts is None:
            both += np.bincount(slots, minlength=2 * width)
        else:
            np.add.at(both, slots, counts[first : first + _CHUNK_ROWS])
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
