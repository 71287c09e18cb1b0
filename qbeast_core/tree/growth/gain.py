"""Estimate the rows that filters open fewer after a rewrite of some files (format 9).

A tree with twice the rows has thresholds of half the size. Old blocks keep their thresholds, and small appends use
larger ones, so their rows do not scatter. The log alone shows the effect of a rewrite, by the thresholds that the
rewrite would use: from the rows of the whole table, larger if few rows are rewritten. A second rewrite would move no
rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.space.weights import weight_to_fraction
from qbeast_core.tree.growth.opened import share_opened
from qbeast_core.tree.layout.build import inner_size
from qbeast_core.tree.layout.existing import place_cubes, region_rows
from qbeast_core.tree.layout.plan import smallest_block_rows

# Minimum share of the rows that filters open of a file, which a rewrite saves.
_WORTH: Final = float(os.environ.get("WORTH", "0.2"))

# A block of this many cube sizes holds a key that the tree cannot split.
_HEAVY: Final = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of a revision, and the ranges of its files in the space of the revision."""

    cubes: Cubes
    min_weights: I32Array
    max_weights: I32Array
    element_counts: I64Array
    # The file of each block.
    files: I64Array
    # Lowest and highest coordinates of the rows of each file, shape (files, dimensions).
    lowest: F64Array
    highest: F64Array


class Gain:
    """Rows that filters open fewer after a rewrite.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> low, high = np.full(3, -(2**31), np.int32), np.full(3, 2**31 - 1, np.int32)
    >>> roots, whole = decode_cubes([""] * 3, dimensions=2), np.zeros((3, 2))
    >>> every, no = np.ones(3, np.bool_), np.zeros(3, np.bool_)
    >>> few, many = (
    ...     Gain(Blocks(roots, low, high, np.full(3, rows), np.arange(3), whole, whole + 1), cube_size=1000)
    ...     for rows in (300, 900)
    ... )
    >>> few.files_to_restore(every, no, max_rows=1e9).tolist(), many.files_to_restore(every, no, max_rows=1e9).tolist()
    ([False, False, False], [True, True, True])
    """

    def __init__(self, blocks: Blocks, *, cube_size: int) -> None:
        self._blocks = blocks
        self._tree = _Thresholds(blocks.cubes, blocks.element_counts, cube_size)
        self._heavy = self._tree.in_same_cube(blocks.element_counts > _HEAVY * cube_size)
        self._now = share_opened(np.minimum(self._extents(0), (blocks.highest - blocks.lowest)[blocks.files]))
        self.rows = self._sum(blocks.element_counts)
        # Rows that filters are expected to open of each file.
        self.opened = self._sum(blocks.element_counts * self._now)

    def saved(self, taken: BoolArray) -> F64Array:
        """Return the rows that filters open fewer of each file, if these files were rewritten together."""
        blocks = self._blocks
        low, high = weight_to_fraction(blocks.min_weights), weight_to_fraction(blocks.max_weights)
        above = np.clip(high - np.maximum(self._tree.of_blocks(taken[blocks.files]), low), 0.0, None)
        deeper = np.divide(above, high - low, out=np.zeros_like(above), where=(high > low) & ~self._heavy)
        # The new files have the rows of all these files.
        together = blocks.highest[taken].max(axis=0, initial=0.0) - blocks.lowest[taken].min(
            axis=0, initial=1.0
        )
        here, below = (share_opened(np.minimum(self._extents(k), np.maximum(together, 0.0))) for k in (0, 1))
        return self._sum(blocks.element_counts * (self._now - here + deeper * (here - below)))

    def files_to_restore(self, among: BoolArray, anyway: BoolArray, *, max_rows: float) -> BoolArray:
        """Return the files whose rewrite would save most per row, up to `max_rows` rows or one file.

        The files `anyway` are rewritten with them.
        """
        chosen, is_limited = among, False
        while True:
            saved = self.saved(chosen | anyway)
            remaining = chosen & (saved > _WORTH * self.opened)
            if np.array_equal(remaining, chosen):
                if is_limited:
                    return remaining
                remaining, is_limited = self._best(remaining, saved, max_rows), True
            chosen = remaining

    def _best(self, among: BoolArray, saved: F64Array, max_rows: float) -> BoolArray:
        """Return the files that save most per row, up to `max_rows` rows; at least one."""
        order = np.flatnonzero(among)
        order = order[np.argsort(-saved[order] / self.rows[order], kind="stable")]
        up_to = np.cumsum(self.rows[order])
        chosen = np.zeros_like(among)
        chosen[order[(up_to <= max_rows) | (up_to == self.rows[order])]] = True
        return chosen

    def _extents(self, deeper: int) -> F64Array:
        return 0.5 ** (self._blocks.cubes.depth.astype(np.float64)[:, None] + deeper)

    def _sum(self, values: F64Array | I64Array) -> F64Array:
        """Return the sums by file."""
        return np.bincount(self._blocks.files, values, len(self._blocks.lowest)).astype(np.float64)


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
