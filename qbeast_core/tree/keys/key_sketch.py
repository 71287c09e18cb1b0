"""How often index keys repeat in a file, in a few hundred bytes that add up over files.

A file of few keys lists them. Of others 512 or 1,024 counters are kept: each key adds its rows to one counter, or
takes them off, as its weight decides. Sums of counters of two files are the counters of both, and the squares of
all counters tell ``sum(m_k ** 2)`` over keys to ``sqrt(2 / counters)`` (the sketch of Alon, Matias and Szegedy,
with the buckets of Charikar, Chen and Farach-Colton), for heavy keys and for thinly spread ones alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U32Array

# Keys that are listed at most; they take as many bytes as the counters of a small file.
MAX_LISTED: Final = 32

# Counters of a file of a thousand rows or more: the error is about 4 %.
MAX_COUNTERS: Final = 1024

_MIN_COUNTERS: Final = 512
_FEW_ROWS: Final = 1 << 10
_CHUNK_ROWS: Final = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class KeySketch:
    """How often the keys of some rows repeat."""

    rows: int
    # `sum(m_k ** 2)`, m_k rows having key k.
    squares: int
    # The weights of all keys, ascending, where they are few.
    weights: I32Array
    # The rows of each key listed; else the counters, a power of two of them.
    numbers: I64Array

    @property
    def is_listed(self) -> bool:
        """Whether all keys are listed; no rows have no keys."""
        return len(self.weights) == len(self.numbers)

    @staticmethod
    def of(weights: I32Array) -> KeySketch:
        """Count keys.

        >>> sketch = KeySketch.of(np.array([1, 1, 5, 7], dtype=np.int32))
        >>> sketch.rows, sketch.squares, sketch.weights.tolist(), sketch.numbers.tolist()
        (4, 6, [1, 5, 7], [2, 1, 1])
        """
        differs = weights[1:] != weights[:-1]
        keys_found = int(np.count_nonzero(differs)) + 1
        if keys_found <= MAX_LISTED:
            keys, counts = np.unique(weights, return_counts=True)
            return KeySketch(len(weights), int(np.dot(counts, counts)), keys, counts.astype(np.int64))
        width = _MIN_COUNTERS if len(weights) < _FEW_ROWS else MAX_COUNTERS
        if keys_found == len(weights):
            return KeySketch(len(weights), len(weights), weights[:0], to_counters(weights, None, width))
        begins = np.concatenate([[0], np.flatnonzero(differs) + 1])
        counts = np.diff(begins, append=len(weights))
        counters = to_counters(weights[begins], counts, width)
        return KeySketch(len(weights), int(np.dot(counts, counts)), weights[:0], counters)


def to_counters(weights: I32Array, counts: I64Array | None, width: int) -> I64Array:
    """Return the counters of keys."""
    both = np.zeros(2 * width, np.int64)
    for first in range(0, len(weights), _CHUNK_ROWS):  # chunk by chunk: the arrays fit the caches
        bits = mixed(weights[first : first + _CHUNK_ROWS].view(np.uint32))
        # The upper half collects what is taken off.
        slots = ((bits & np.uint32(width - 1)) | ((bits >> np.uint32(31)) * np.uint32(width))).astype(
            np.int64
        )
        if counts is None:
            both += np.bincount(slots, minlength=2 * width)
        else:
            np.add.at(both, slots, counts[first : first + _CHUNK_ROWS])
    return both[:width] - both[width:]


def fold(counters: I64Array, width: int) -> I64Array:
    """Return fewer counters of the same keys.

    >>> keys = np.arange(99, dtype=np.int32)
    >>> bool((fold(to_counters(keys, None, 1024), 512) == to_counters(keys, None, 512)).all())
    True
    """
    folded: I64Array = counters.reshape(-1, width).sum(axis=0)
    return folded


def mixed(numbers: U32Array) -> U32Array:
    """Return bits of which each depends on every bit of the number: files and pages are cut by weight.

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
