"""Which files hold mostly rows that would go deeper into the tree if they were put back now (format 9).

A tree of twice the rows has thresholds of half the height. Blocks of before keep theirs, and small appends use larger
ones, so that their rows do not scatter. What a rewrite would do about it is told from the log alone, by the
thresholds that it would use: those of the whole table's rows, larger where few rows are put back. A rewrite that
keeps to them leaves nothing that they would move again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.space.weights import weight_to_fraction
from qbeast_core.tree.layout.existing import place_cubes, region_rows
from qbeast_core.tree.layout.plan import smallest_block_rows

_MOSTLY: Final = 0.5

# A block of so many cube sizes holds a key that no tree parts.
_HEAVY: Final = 1.5


def files_to_deepen(
    cubes: Cubes,
    *,
    min_weights: I32Array,
    max_weights: I32Array,
    element_counts: I64Array,
    files: I64Array,
    among: BoolArray,
    anyway: BoolArray,
    cube_size: int,
) -> BoolArray:
    """Return the files of which most rows would go deeper, if all of these were put back together.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> roots = decode_cubes([""] * 3, dimensions=2)
    >>> low, high = np.full(3, -(2**31), np.int32), np.full(3, 2**31 - 1, np.int32)
    >>> one_each, no = np.arange(3), np.zeros(3, np.bool_)
    >>> bounds = {"min_weights": low, "max_weights": high, "files": one_each, "among": ~no, "anyway": no}
    >>> files_to_deepen(roots, element_counts=np.full(3, 500), cube_size=1000, **bounds).tolist()
    [False, False, False]
    >>> files_to_deepen(roots, element_counts=np.full(3, 900), cube_size=1000, **bounds).tolist()
    [True, True, True]
    """
    if not len(cubes.depth):
        return np.zeros_like(among)
    tree = _Thresholds(cubes, element_counts, cube_size)
    low, high = weight_to_fraction(min_weights), weight_to_fraction(max_weights)
    heavy = tree.in_same_cube(element_counts > _HEAVY * cube_size)
    rows = np.bincount(files, element_counts, len(among))
    chosen = among
    while True:
        threshold = tree.of_blocks((chosen | anyway)[files])
        above = np.clip(high - np.maximum(threshold, low), 0.0, None)
        share = np.divide(above, high - low, out=np.zeros_like(above), where=high > low)
        deeper = np.bincount(files, np.where(heavy, 0.0, share * element_counts), len(among))
        left = chosen & (deeper > _MOSTLY * rows)
        if np.array_equal(left, chosen):
            return left
        chosen = left


class _Thresholds:
    """The tree of all blocks, and the thresholds that some of them would be put back by."""

    def __init__(self, cubes: Cubes, element_counts: I64Array, cube_size: int) -> None:
        self._cubes, self._counts, self._size = cubes, element_counts, cube_size
        self._keys, self._positions = place_cubes(cubes)
        self._domains = region_rows(cubes, self._keys, self._positions, element_counts)

    def of_blocks(self, taken: BoolArray) -> F64Array:
        """Return for each block the share of all weights below its cube's threshold, as a write would set it."""
        counts = np.where(taken, self._counts, 0)
        smallest = smallest_block_rows(int(counts.sum()), cube_size=self._size)
        back = region_rows(self._cubes, self._keys, self._positions, counts)
        thresholds = np.zeros(len(taken))
        above = np.zeros(1)
        for k, (domains, rows) in enumerate(zip(self._domains, back, strict=True)):
            if k:
                above = above[self._keys[k] >> self._cubes.dimensions]
            left = 1.0 - above
            is_leaf = (domains * left <= self._size) | (rows * left <= smallest)
            kept = np.maximum(self._size / np.maximum(domains, 1.0), smallest / np.maximum(rows, 1.0))
            above = np.where(is_leaf, 1.0, np.minimum(above + kept, 1.0))
            own = self._cubes.depth == k
            thresholds[own] = above[self._place(k, own)]
        return thresholds

    def in_same_cube(self, blocks: BoolArray) -> BoolArray:
        """Tell of each block whether one of those given is of its cube."""
        is_same = np.zeros(len(blocks), np.bool_)
        for k, keys in enumerate(self._keys):
            own = self._cubes.depth == k
            place = self._place(k, own)
            is_same[own] = (np.bincount(place, blocks[own], len(keys)) > 0)[place]
        return is_same

    def _place(self, level: int, own: BoolArray) -> I64Array:
        return self._positions[level][own[self._cubes.depth >= level]]
