"""Estimate the rows that filters open fewer after a rewrite of some files (format 9).

A tree with twice the rows has thresholds of half the size. Old blocks keep their thresholds, and small appends use
larger ones, so their rows do not scatter. The log alone shows the effect of a rewrite, by the thresholds that the
rewrite would use: from the rows of the whole table, larger if few rows are rewritten. A second rewrite would move no
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.space.weights import weight_to_fraction
from qbeast_core.tree.layout.cube_tree import inner_size, rows_of_leaf
from qbeast_core.tree.layout.existing import place_cubes, region_rows
from qbeast_core.tree.layout.index_plan import smallest_block_rows
from qbeast_core.tree.layout.upper import shares_opened


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One dimension: how the rows of the table are distributed along it.

    `coordinates` ascend. At most the share `shares` of the rows is below each of them.
    """

    coordinates: F64Array
    shares: F64Array
    # Range of each file, as shares of the rows.
    lowest: F64Array
    highest: F64Array

    @classmethod
    def unknown(cls, files: int) -> Axis:
        """Return a dimension along which all files have all values.

        >>> Axis.unknown(2).highest.tolist()
        [1.0, 1.0]
        """
        ends = np.array([0.0, 1.0])
        return cls(ends, ends, np.zeros(files), np.ones(files))

    @classmethod
    def of(cls, low: F64Array, high: F64Array, rows: I64Array, coordinates: F64Array) -> Axis:
        """Return a dimension from the bounds of files. The rows of a file are assumed to spread evenly.

        `coordinates` has those of `low`, then those of `high`. Values outside the space of a revision have the
        coordinates of its ends, so a range of coordinates near an end may have many rows.

        >>> low, high = np.array([0.0, 10.0]), np.array([10.0, 40.0])
        >>> axis = Axis.of(low, high, np.array([50, 50]), np.array([0.0, 1.0, 1.0, 1.0]))
        >>> axis.lowest.tolist(), axis.highest.tolist()
        ([0.0, 0.5], [0.5, 1.0])
        """
        values, at = np.unique(np.concatenate([low, high]), return_inverse=True)
        first, last = at[: len(low)], at[len(low) :]
        widths = values[last] - values[first]
        is_wide = widths > rows * _NO_WIDTH
        density = np.divide(rows, widths, out=np.zeros(len(rows)), where=is_wide)
        slopes = np.bincount(first, density, len(values)) - np.bincount(last, density, len(values))
        single = np.bincount(first, np.where(is_wide, 0, rows), len(values))
        steps = np.append(0.0, np.cumsum(slopes)[:-1] * np.diff(values))
        shares = (np.cumsum(steps) + np.cumsum(single)) / max(float(rows.sum()), 1.0)
        shares = np.minimum(np.maximum.accumulate(shares), 1.0)
        places = np.zeros(len(values))
        places[at] = coordinates
        below = shares - single / max(float(rows.sum()), 1.0)
        return cls(np.maximum.accumulate(places), shares, below[first], shares[last])

    def shares_of(self, coordinates: F64Array) -> F64Array:
        """Return the share of the rows below each coordinate."""
        inside = np.interp(coordinates, self.coordinates, self.shares)
        return np.where(coordinates <= 0.0, 0.0, np.where(coordinates >= 1.0, 1.0, inside))


def box_shares(cubes: Cubes, axes: list[Axis]) -> tuple[F64Array, F64Array, F64Array]:
    """Return the lower, middle and upper ends of cubes as shares of the rows, each of shape (cubes, dimensions)."""
    scale = 0.5 ** cubes.depth.astype(np.float64)
    cells = cubes.cells.astype(np.float64)
    lower, middle, upper = (
        np.column_stack([axis.shares_of((cells[:, at] + part) * scale) for at, axis in enumerate(axes)])
        for part in (0.0, 0.5, 1.0)
    )
    return lower, middle, upper


# The rows of a narrower range count as rows of one value: the number of rows over such a width has no number.
_NO_WIDTH: Final = 1e-300

# Minimum share of the rows that filters open of a file, which a rewrite saves.
_WORTH: Final = 0.2

# A single file may have this many times the maximum number of rows: in a table of few files, each has a large part.
_MAX_EXCESS: Final = 1.5

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
    # The dimensions, with the ranges of all files of the table.
    axes: list[Axis]


class Gain:
    """Rows that filters open fewer after a rewrite.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> low, high = np.full(3, -(2**31), np.int32), np.full(3, 2**31 - 1, np.int32)
    >>> roots, axes = decode_cubes([""] * 3, dimensions=2), [Axis.unknown(3)] * 2
    >>> every, no = np.ones(3, np.bool_), np.zeros(3, np.bool_)
    >>> few, many = (
    ...     Gain(Blocks(roots, low, high, np.full(3, rows), np.arange(3), axes), cube_size=1000)
    ...     for rows in (300, 900)
    ... )
    >>> few.files_to_restore(every, no, max_rows=1e9).tolist(), many.files_to_restore(every, no, max_rows=1e9).tolist()
    ([False, False, False], [True, True, True])
    """

    def __init__(self, blocks: Blocks, *, cube_size: int) -> None:
        self._blocks = blocks
        self._tree = _Thresholds(blocks.cubes, blocks.element_counts, cube_size)
        self._heavy = self._tree.in_same_cube(blocks.element_counts > _HEAVY * cube_size)
        self._box = box_shares(blocks.cubes, blocks.axes)
        self._lowest = np.column_stack([axis.lowest for axis in blocks.axes])
        self._highest = np.column_stack([axis.highest for axis in blocks.axes])
        self._now = shares_opened(self._extents(self._lowest[blocks.files], self._highest[blocks.files]))
        self._rows = self._sums(blocks.element_counts[None])[0]
        # Rows that filters on one, two and three columns are expected to open of each file.
        self._opened = self._sums(blocks.element_counts * self._now)

    @property
    def opened(self) -> F64Array:
        """Rows that filters on one, two and three columns are expected to open of the table."""
        opened: F64Array = self._opened.sum(axis=1)
        return opened

    def saved(self, taken: BoolArray) -> F64Array:
        """Return the rows that filters on one, two and three columns open fewer of the table.

        These files are rewritten together.
        """
        saved: F64Array = self._saved(taken).sum(axis=1)
        return saved

    def shares_saved(self, taken: BoolArray) -> F64Array:
        """Return the rows that filters open fewer of the table, as a share, by file that causes it.

        These files are rewritten together. The share is the mean over filters on one, two and three columns.
        """
        total = np.maximum(self.opened[:, None], 1.0)
        return np.asarray((self._saved(taken) / total).mean(axis=0), np.float64)

    def files_to_restore(self, among: BoolArray, anyway: BoolArray, *, max_rows: float) -> BoolArray:
        """Return the files whose rewrite would save most per row, up to about `max_rows` rows.

        The files `anyway` are rewritten with them.
        """
        chosen, is_limited = among, False
        while True:
            saved = self._saved(chosen | anyway)
            of_file = np.divide(saved, self._opened, out=np.zeros_like(saved), where=self._opened > 0)
            remaining: BoolArray = chosen & (of_file.mean(axis=0) > _WORTH)
            if np.array_equal(remaining, chosen):
                if is_limited:
                    return remaining
                remaining, is_limited = (
                    self._best(remaining, self.shares_saved(chosen | anyway), max_rows),
                    True,
                )
            chosen = remaining

    def _best(self, among: BoolArray, saved: F64Array, max_rows: float) -> BoolArray:
        """Return the files that save most per row, up to `max_rows` rows, or one that has a few times as many."""
        order = np.flatnonzero(among)
        order = order[np.argsort(-saved[order] / self._rows[order], kind="stable")]
        up_to = np.cumsum(self._rows[order])
        chosen = np.zeros_like(among)
        is_first = up_to == self._rows[order]
        chosen[order[up_to <= np.where(is_first, _MAX_EXCESS * max_rows, max_rows)]] = True
        return chosen

    def _saved(self, taken: BoolArray) -> F64Array:
        """Return the rows that filters open fewer of each file, shape (columns, files)."""
        blocks = self._blocks
        low, high = weight_to_fraction(blocks.min_weights), weight_to_fraction(blocks.max_weights)
        above = np.clip(high - np.maximum(self._tree.of_blocks(taken[blocks.files]), low), 0.0, None)
        deeper = np.divide(above, high - low, out=np.zeros_like(above), where=(high > low) & ~self._heavy)
        # The new files have the rows of all these files.
        lowest = self._lowest[taken].min(axis=0, initial=1.0)
        together = self._extents(lowest, self._highest[taken].max(axis=0, initial=0.0))
        here, below = shares_opened(together), shares_opened(np.minimum(together, self._child_extents))
        return self._sums(blocks.element_counts * (self._now - here + deeper * (here - below)))

    def _extents(self, lowest: F64Array, highest: F64Array) -> F64Array:
        """Return the part of the cube of each block between two ends, as shares of the table's rows."""
        lower, _, upper = self._box
        extents: F64Array = np.maximum(np.minimum(upper, highest) - np.maximum(lower, lowest), 0.0)
        return extents

    @cached_property
    def _child_extents(self) -> F64Array:
        """The mean extent of the two halves of each block's cube, weighted by their rows."""
        lower, middle, upper = self._box
        whole, squares = upper - lower, (middle - lower) ** 2 + (upper - middle) ** 2
        return np.divide(squares, whole, out=np.zeros_like(whole), where=whole > 0)

    def _sums(self, values: F64Array | I64Array) -> F64Array:
        """Return the sums by file, shape (rows of `values`, files)."""
        files = len(self._lowest)
        return np.array([np.bincount(self._blocks.files, row, files) for row in values], np.float64)


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
            is_leaf = (domains * left <= self._size) | (rows * left <= rows_of_leaf(smallest, self._size))
            kept = np.maximum(inner / np.maximum(domains, 1.0), smallest / np.maximum(rows, 1.0))
            levels.append(np.where(is_leaf, 1.0, np.minimum(above + kept, 1.0)))
        return np.concatenate(levels[1:])[self._cube]

    def in_same_cube(self, blocks: BoolArray) -> BoolArray:
        """Return whether the cube of each block contains one of `blocks`."""
        return np.isin(self._cube, self._cube[blocks])
