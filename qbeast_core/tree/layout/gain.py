"""Estimate what filters open, and what they would open after a rewrite of some files (format 9).

A tree with twice the rows has thresholds of half the size. Old blocks keep their thresholds, and small appends use
larger ones, so their rows do not scatter. The log alone shows the effect of a rewrite, by the thresholds that the
rewrite would use: from the rows of the whole table, larger if few rows are rewritten. A second rewrite would move no
rows.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.space.weights import weight_to_fraction
from qbeast_core.tree.layout.build import inner_size
from qbeast_core.tree.layout.existing import place_cubes, region_rows
from qbeast_core.tree.layout.plan import smallest_block_rows

# The filters that are expected: ranges of a tenth of the values of one to three columns.
_RANGE: Final = 0.1
_MAX_RANGES: Final = 3

# Minimum share of the rows that filters open of a file, which a rewrite saves.
_WORTH: Final = float(os.environ.get("WORTH", "0.2"))

# A block of this many cube sizes holds a key that the tree cannot split.
_HEAVY: Final = 1.5


def share_opened(depths: npt.NDArray[np.integer[Any]], *, dimensions: int) -> F64Array:
    """Return the mean probability that a filter opens a cube of each depth.

    >>> share_opened(np.array([0, 1, 2]), dimensions=1).round(2).tolist()
    [1.0, 0.55, 0.33]
    """
    each = _RANGE + (1 - _RANGE) * 0.5 ** depths.astype(np.float64)
    return np.mean([each**columns for columns in range(1, min(dimensions, _MAX_RANGES) + 1)], axis=0)


def files_to_restore(
    cubes: Cubes,
    *,
    min_weights: I32Array,
    max_weights: I32Array,
    element_counts: I64Array,
    files: I64Array,
    among: BoolArray,
    anyway: BoolArray,
    cube_size: int,
    max_rows: float,
) -> BoolArray:
    """Return the files whose rewrite would save most per row, up to `max_rows` rows or one file.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> roots = decode_cubes([""] * 3, dimensions=2)
    >>> low, high = np.full(3, -(2**31), np.int32), np.full(3, 2**31 - 1, np.int32)
    >>> one_each, no = np.arange(3), np.zeros(3, np.bool_)
    >>> bounds = {"min_weights": low, "max_weights": high, "files": one_each, "among": ~no, "anyway": no}
    >>> files_to_restore(roots, element_counts=np.full(3, 300), cube_size=1000, max_rows=1e9, **bounds).tolist()
    [False, False, False]
    >>> files_to_restore(roots, element_counts=np.full(3, 900), cube_size=1000, max_rows=1e9, **bounds).tolist()
    [True, True, True]
    """
    if not len(cubes.depth):
        return np.zeros_like(among)
    tree = _Thresholds(cubes, element_counts, cube_size)
    low, high = weight_to_fraction(min_weights), weight_to_fraction(max_weights)
    heavy = tree.in_same_cube(element_counts > _HEAVY * cube_size)
    here, below = (share_opened(cubes.depth + np.uint8(k), dimensions=cubes.dimensions) for k in (0, 1))
    rows = np.bincount(files, element_counts, len(among))
    opened = np.bincount(files, here * element_counts, len(among))
    chosen, is_limited = among, False
    while True:
        threshold = tree.of_blocks((chosen | anyway)[files])
        above = np.clip(high - np.maximum(threshold, low), 0.0, None)
        deeper = np.divide(above, high - low, out=np.zeros_like(above), where=high > low) * element_counts
        saved = np.bincount(files, np.where(heavy, 0.0, deeper) * (here - below), len(among))
        remaining = chosen & (saved > _WORTH * opened)
        if np.array_equal(remaining, chosen):
            if is_limited:
                return remaining
            remaining, is_limited = _best(remaining, saved / np.maximum(rows, 1), rows, max_rows), True
        chosen = remaining


def _best(among: BoolArray, worth: F64Array, rows: F64Array, max_rows: float) -> BoolArray:
    """Return the files of most worth, up to `max_rows` rows; at least one."""
    order = np.flatnonzero(among)
    order = order[np.argsort(-worth[order], kind="stable")]
    before = np.cumsum(rows[order]) - rows[order]
    chosen = np.zeros_like(among)
    chosen[order[(before + rows[order] <= max_rows) | (before == 0)]] = True
    return chosen


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
        smallest = smallest_block_rows(self._size)
        inner = inner_size(self._size)
        back = region_rows(self._cubes, self._keys, self._positions, counts)
        levels = [np.zeros(1)]
        for k, (domains, rows) in enumerate(zip(self._domains, back, strict=True)):
            above = levels[-1][self._keys[k] >> self._cubes.dimensions]
            left = 1.0 - above
            is_leaf = (domains * left <= self._size) | (rows * left <= smallest)
            kept = np.maximum(inner / np.maximum(domains, 1.0), smallest / np.maximum(rows, 1.0))
            levels.append(np.where(is_leaf, 1.0, np.minimum(above + kept, 1.0)))
        return np.concatenate(levels[1:])[self._cube]

    def in_same_cube(self, blocks: BoolArray) -> BoolArray:
        """Return whether the cube of each block contains one of `blocks`."""
        return np.isin(self._cube, self._cube[blocks])
