"""Heavy keys of a file: their number of rows, and the position of rows that are in an independent order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import BoolArray, I32Array, I64Array, U32Array
from qbeast_core.tree.keys.key_sketch import mixed

# A key is heavy if it has at least two rows, and one in this many rows that no heavier key has.
HEAVY_SHARE: Final = 256

_MIN_ROWS: Final = 2

# Maximum number of stretches of a heavy key. Usually it has one; other keys with the same weight split it.
_MAX_RUNS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """The heavy keys of a file."""

    # Weights of the keys, ascending.
    weights: I32Array
    rows: I64Array
    # First row of each key in the file, if its rows are contiguous and in an order that is independent of their
    # values; else -1.
    firsts: I64Array

    def __len__(self) -> int:
        return len(self.weights)

    def select(self, marked: BoolArray) -> HeavyKeys:
        """Return some of the keys."""
        return HeavyKeys(self.weights[marked], self.rows[marked], self.firsts[marked])

    @staticmethod
    def none() -> HeavyKeys:
        """Return an instance without keys."""
        return HeavyKeys(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @staticmethod
    def of(weights: I32Array, starts: I64Array | None) -> HeavyKeys:
        """Find the heavy keys of a file.

        >>> heavy = HeavyKeys.of(np.array([1, 1, 5, 7, 7, 7], dtype=np.int32), np.array([0, 4]))
        >>> heavy.weights.tolist(), heavy.rows.tolist(), heavy.firsts.tolist()
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
        """Return an order of the file's rows that shuffles each contiguous heavy key by a hash of the positions.

        A stretch of these rows is then a simple random sample, independent of their values. None without such keys.
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
    """Return the positions of heavy keys, heaviest first, at most `HEAVY_SHARE`.

    >>> heaviest(np.array([1, 300, 2, 700]), 1_500).tolist()
    [3, 1, 2]
    """
    order = np.argsort(-counts, kind="stable")[:HEAVY_SHARE]
    ordered = counts[order]
    others = rows - np.cumsum(ordered) + ordered
    light = (ordered * HEAVY_SHARE < others) | (ordered < _MIN_ROWS)
    return order[: int(np.argmax(light)) if light.any() else len(order)]


def _runs(weights: I32Array, starts: I64Array) -> tuple[I64Array, I64Array]:
    """Return the first row and the number of rows of each stretch with one weight and block."""
    is_start = np.ones(len(weights), np.bool_)
    np.not_equal(weights[1:], weights[:-1], out=is_start[1:])
    is_start[starts] = True
    begins = np.flatnonzero(is_start)
    return begins, np.diff(begins, append=len(weights))
