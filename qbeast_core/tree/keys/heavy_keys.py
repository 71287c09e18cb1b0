"""Keys that hold much of a file: how many rows they have, and where these lie in an order that says nothing of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U32Array
from qbeast_core.tree.keys.key_sketch import mixed

# A key is heavy that has at least this part of the rows that no heavier key has, and two of them.
HEAVY_SHARE: Final = 256

_MIN_ROWS: Final = 2

# Stretches of about equal length that a heavy key is found in: it has one, unless other keys have its weight.
_MAX_RUNS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """The heavy keys of a file."""

    # Their weights, ascending.
    weights: I32Array
    rows: I64Array
    # The first of them in the file, where they lie end to end and in an order that is independent of their
    # values; else -1.
    firsts: I64Array

    def __len__(self) -> int:
        return len(self.weights)

    @staticmethod
    def none() -> HeavyKeys:
        """Return no keys."""
        return HeavyKeys(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @staticmethod
    def of(weights: I32Array, starts: I64Array | None) -> HeavyKeys:
        """Find them.

        >>> found = HeavyKeys.of(np.array([1, 1, 5, 7, 7, 7], dtype=np.int32), np.array([0, 4]))
        >>> found.weights.tolist(), found.rows.tolist(), found.firsts.tolist()
        ([1, 7], [2, 3], [0, -1])
        """
        begins, counts = _runs(weights, np.zeros(0, np.int64) if starts is None else starts)
        if int(counts.max(initial=0)) * _MAX_RUNS * HEAVY_SHARE < len(weights):
            return HeavyKeys.none()
        keys, first, run = np.unique(weights[begins], return_index=True, return_inverse=True)
        rows = np.bincount(run, counts, len(keys)).astype(np.int64)
        heavy = np.sort(heaviest(rows, len(weights)))
        together = (counts[first] == rows) & (starts is not None)
        return HeavyKeys(keys[heavy], rows[heavy], np.where(together, begins[first], -1)[heavy])

    def shuffled(self, rows: int) -> I64Array | None:
        """Return an order of the rows of the file in which those that lie end to end follow a hash of their places.

        Whatever the values of these rows are, a stretch of them is then a simple random sample. None: there are none.
        """
        order = np.arange(rows, dtype=np.int64)
        stretches = np.flatnonzero(self.firsts >= 0).tolist()
        for key in stretches:
            begin, count = int(self.firsts[key]), int(self.rows[key])
            positions: U32Array = np.arange(count, dtype=np.uint32)
            positions += np.uint32((int(self.weights[key]) * 31 + rows) & 0xFFFFFFFF)
            order[begin : begin + count] = begin + np.argsort(mixed(positions), kind="stable")
        return order if stretches else None


def heaviest(counts: I64Array, rows: int) -> I64Array:
    """Return the places of heavy keys, the heaviest first: at most `HEAVY_SHARE`.

    >>> heaviest(np.array([1, 300, 2, 700]), 1_500).tolist()
    [3, 1, 2]
    """
    order = np.argsort(-counts, kind="stable")[:HEAVY_SHARE]
    ordered = counts[order]
    others = rows - np.cumsum(ordered) + ordered
    light = (ordered * HEAVY_SHARE < others) | (ordered < _MIN_ROWS)
    return order[: int(np.argmax(light)) if light.any() else len(order)]


def _runs(weights: I32Array, starts: I64Array) -> tuple[I64Array, I64Array]:
    """Return where stretches of one weight and block begin, and how many rows they have."""
    fresh = np.ones(len(weights), np.bool_)
    np.not_equal(weights[1:], weights[:-1], out=fresh[1:])
    fresh[starts] = True
    begins = np.flatnonzero(fresh)
    return begins, np.diff(begins, append=len(weights))
