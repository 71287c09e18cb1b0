"""Find the files whose rows a rewrite would mostly move deeper into the tree (format 9).

A tree with twice the rows has thresholds of half the size. Old blocks keep their thresholds, and small appends use
larger ones, so their rows do not scatter. The log alone shows the effect of a rewrite, by the thresholds that the
rewrite would use: from the rows of the whole table, larger if few rows are rewritten. A second rewrite would move no
rows.
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

# A block of this many cube sizes holds a key that the tree cannot split.
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
    """Return the files whose rows would mostly move deeper, if all these files were rewritten together.

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
        remaining = chosen & (deeper > _MOSTLY * rows)
        if np.array_equal(remaining, chosen):
            return remaining
        chosen = remaining


class _Thresholds:
    """The tree of all blocks, and the thresholds for a rewrite of some of them."""

    def __init__(self, cubes: Cubes, element_counts: I64Array, cube_size: int) -> None:
        self._cubes, self._counts, self._size = cubes, element_counts, cube_size
        self._keys, self._positions = place_cubes(cubes)
        self._domains = region_rows(cubes, self._keys, self._positions, element_counts)
        # The cube of each block, counted through all levels.
        self._cube, first = np.zeros(len(cubes), np.int64), 0
        for k, (keys, position) in enumerate(zip(self._keys, self._positions, strict=True)):
            self._cube[cubes.depth >= k] = first + position  # the deepest level counts
            first += len(keys)

    def of_blocks(self, taken: BoolArray) -> F64Array:
        """Return the threshold that a write would set for each block's cube, as a fraction of all weights."""
        counts = np.where(taken, self._counts, 0)
        smallest = smallest_block_rows(int(counts.sum()), cube_size=self._size)
        back = region_rows(self._cubes, self._keys, self._positions, counts)
        levels = [np.zeros(1)]
        for k, (domains, rows) in enumerate(zip(self._domains, back, strict=True)):
            above = levels[-1][self._keys[k] >> self._cubes.dimensions]
            left = 1.0 - above
            is_leaf = (domains * left <= self._size) | (rows * left <= smallest)
            kept = np.maximum(self._size / np.maximum(domains, 1.0), smallest / np.maximum(rows, 1.0))
            levels.append(np.where(is_leaf, 1.0, np.minimum(above + kept, 1.0)))
        return np.concatenate(levels[1:])[self._cube]

    def in_same_cube(self, blocks: BoolArray) -> BoolArray:
        """Return whether the cube of each block contains one of `blocks`."""
        return np.isin(self._cube, self._cube[blocks])
