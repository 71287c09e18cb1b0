"""Thresholds and assignment: every row to its cube, one pass of whole-array work per level (format 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array, U32Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT, fraction_to_weight, weight_to_fraction
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.grid import GRID_BITS, group_keys

__all__ = ["MAX_DEPTH", "Assignment", "assign_rows"]

MAX_DEPTH: Final = GRID_BITS
"""Deepest level of a tree."""

_LONGEST_CHAIN: Final = 16  # rows that 16 halvings do not part are one key, or as good as one: a big leaf


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Where every row goes.

    Parameters
    ----------
    cubes : Cubes
        The cubes that took rows, in order of depth and then cube (format 5).
    thresholds : ndarray of int32, shape (cubes,)
        The greatest weight each cube accepts; 2147483647 for a leaf.
    counts : ndarray of int64, shape (cubes,)
        Rows in each cube, at least one.
    row_cube : ndarray of int32, shape (rows,)
        Position in `cubes` of each row's cube.
    """

    cubes: Cubes
    thresholds: I32Array
    counts: I64Array
    row_cube: I32Array


@dataclass(slots=True, eq=False)
class _Level:
    """Nodes of one depth.

    `existing` is the position in the existing tree or -1; `chain` counts the levels for which halving
    the region has not parted the node's rows.
    """

    cells: I64Array
    parents_fraction: F64Array
    domains: F64Array
    rows: I64Array
    existing: I64Array
    chain: I64Array


def assign_rows(
    cells: list[U32Array],
    weights: I32Array,
    *,
    cube_size: int,
    existing: ExistingTree | None = None,
    smallest_block_rows: int = 0,
) -> Assignment:
    """Send each row to the first cube on its path whose threshold admits its weight.

    Domains (rows of the whole table per cube region) are exact counts of the given rows plus those
    of `existing`. A cube whose tree holds at most `cube_size` rows is a leaf and takes the rest; so is
    one that the grid cannot split. No row is ever left out.

    Parameters
    ----------
    cells : list of ndarray of uint32, each of shape (rows,)
        One finest-grid cell per indexed column, see `grid`.
    weights : ndarray of int32, shape (rows,)
        The rows' weights.
    cube_size : int
        Rows a cube aims to hold, at least 1.
    existing : ExistingTree, optional
        The revision's live tree when the rows are appended to it.
    smallest_block_rows : int, default 0
        In an append, a cube keeps at least so many of the rows it receives, whatever its share of the whole
        table would be, instead of scattering them over many thin blocks. Format 8 holds all the same.

    Returns
    -------
    Assignment
        New arrays; empty for no rows.

    Examples
    --------
    >>> from qbeast_core.tree.grid import grid
    >>> rows = assign_rows([grid(np.array([0.1, 0.9]))], np.array([-5, 7], np.int32), cube_size=1)
    >>> rows.counts.tolist(), rows.cubes.depth.tolist()
    ([1, 1], [0, 1])
    """
    dimensions = len(cells)
    tree = existing if existing is not None and existing.levels else ExistingTree(dimensions, ())
    builder = _Builder(cells, weights, cube_size, tree, smallest_block_rows)
    if len(weights):
        level: _Level | None = builder.root()
        depth = 0
        while level is not None:
            level = builder.descend(level, depth)
            depth += 1
    return builder.finish()


class _Builder:
    """The level loop's state: rows still moving down, and the cubes found so far."""

    def __init__(
        self,
        cells: list[U32Array],
        weights: I32Array,
        cube_size: int,
        tree: ExistingTree,
        smallest_block_rows: int,
    ) -> None:
        self.cells = cells
        self.weights = weights
        self.cube_size = cube_size
        self.tree = tree
        self.smallest_block_rows = smallest_block_rows if tree.levels else 0
        self.row_cube = np.full(len(weights), -1, np.int32)
        self.active: I64Array | None = None  # None: all rows, so that the first levels need no gather
        self.node = np.zeros(len(weights), np.int32)
        self.found_cells: list[I64Array] = []
        self.found_depths: list[int] = []
        self.found_thresholds: list[I32Array] = []
        self.found = 0

    def root(self) -> _Level:
        rows = len(self.weights)
        known = float(self.tree.levels[0].domains[0]) if self.tree.levels else 0.0
        return _Level(
            cells=np.zeros((1, len(self.cells)), np.int64),
            parents_fraction=np.zeros(1),
            domains=np.array([rows + known]),
            rows=np.array([rows], np.int64),
            existing=np.array([0 if self.tree.levels else -1], np.int64),
            chain=np.zeros(1, np.int64),
        )

    def descend(self, level: _Level, depth: int) -> _Level | None:
        """Fill the cubes of one depth and return the next level, None when no cube is split."""
        free = self._free_minimum(level)
        fraction, threshold = self._thresholds(level, depth, free)
        split = self._take(level, depth, threshold)
        if not split.any():
            return None
        self._keep_rows_of(split)
        return self._children(level, depth, split, fraction)

    def _free_minimum(self, level: _Level) -> I32Array:
        """Smallest weight among each node's rows that no ancestor took; only appends ask for it."""
        lowest = np.full(len(level.domains), MAX_WEIGHT, np.int32)
        if self.tree.levels:
            rows = self._free_rows()
            np.minimum.at(lowest, self.node[rows], self._weights_of(rows))
        return lowest

    def _thresholds(self, level: _Level, depth: int, free: I32Array) -> tuple[F64Array, I32Array]:
        size = level.domains * (1.0 - level.parents_fraction)
        own = level.rows * (1.0 - level.parents_fraction)
        leaf = (size <= self.cube_size) | (level.parents_fraction >= 1.0) | (level.chain >= _LONGEST_CHAIN)
        leaf |= own <= self.smallest_block_rows
        if depth >= MAX_DEPTH:
            leaf[:] = True
        kept = np.maximum(
            self.cube_size / np.maximum(level.domains, 1.0),
            self.smallest_block_rows / np.maximum(level.rows, 1),
        )
        fraction = np.minimum(level.parents_fraction + kept, 1.0)
        threshold = np.asarray(fraction_to_weight(fraction), np.int64)
        if self.tree.levels:
            leaf, threshold = self._respect_live_blocks(level, depth, free, leaf, threshold)
        final: I32Array = np.where(leaf, MAX_WEIGHT, np.maximum(threshold, MIN_WEIGHT)).astype(np.int32)
        # The threshold in force may differ from the computed one: children build on what is in force.
        return weight_to_fraction(final), final

    def _respect_live_blocks(
        self, level: _Level, depth: int, free: I32Array, leaf: BoolArray, threshold: I64Array
    ) -> tuple[BoolArray, I64Array]:
        """Keep format 8.3: descendants' blocks stay above the smallest live threshold of their ancestors."""
        if depth >= len(self.tree.levels):
            return leaf, threshold
        live = self.tree.levels[depth]
        at = np.maximum(level.existing, 0)
        known = level.existing >= 0
        blocks = known & live.has_blocks[at]
        orphaned = known & ~live.has_blocks[at] & live.has_descendants[at]
        # A cube with blocks that receives no row under the new threshold keeps its old one.
        empty = blocks & (free > threshold)
        threshold = np.where(empty, np.maximum(threshold, live.thresholds[at]), threshold)
        # Without blocks of its own a cube may not reach over its descendants' rows.
        threshold = np.where(
            orphaned, np.minimum(threshold, live.lowest_below[at].astype(np.int64) - 1), threshold
        )
        return leaf & ~orphaned if depth < MAX_DEPTH else leaf, threshold

    def _take(self, level: _Level, depth: int, threshold: I32Array) -> BoolArray:
        """Give each cube its rows and return which cubes leave some for their children."""
        rows = self._free_rows()
        fits = self._weights_of(rows) <= threshold[self.node[rows]]
        taken = rows[fits]
        self.row_cube[taken if self.active is None else self.active[taken]] = self.node[taken] + self.found
        self.found_cells.append(level.cells)
        self.found_depths.append(depth)
        left = np.bincount(self.node[rows[~fits]], minlength=len(threshold)) > 0
        # Equal weights may leave a cube without children that its domain promised: it is a leaf then.
        leaf = ~left & ~self._live_below(level, depth)
        self.found_thresholds.append(np.where(leaf, MAX_WEIGHT, threshold).astype(np.int32))
        self.found += len(threshold)
        return left

    def _live_below(self, level: _Level, depth: int) -> BoolArray:
        if depth >= len(self.tree.levels):
            return np.zeros(len(level.existing), np.bool_)
        known: BoolArray = level.existing >= 0
        return known & self.tree.levels[depth].has_descendants[np.maximum(level.existing, 0)]

    def _free_rows(self) -> I64Array:
        """Positions among the active rows that no cube has taken yet."""
        cube = self.row_cube if self.active is None else self.row_cube[self.active]
        return np.flatnonzero(cube < 0)

    def _weights_of(self, rows: I64Array) -> I32Array:
        return self.weights[rows] if self.active is None else self.weights[self.active[rows]]

    def _keep_rows_of(self, split: BoolArray) -> None:
        if split.all():
            return
        kept = np.flatnonzero(split[self.node])
        self.active = kept if self.active is None else self.active[kept]
        renumbered = np.cumsum(split, dtype=np.int32) - 1
        self.node = renumbered[self.node[kept]]

    def _children(self, level: _Level, depth: int, split: BoolArray, fraction: F64Array) -> _Level:
        dimensions = len(self.cells)
        key = self.node.astype(np.int64) << dimensions
        for j, column in enumerate(self.cells):
            cell = column if self.active is None else column[self.active]
            bit = (cell >> np.uint32(GRID_BITS - depth - 1)) & np.uint32(1)
            key |= bit.astype(np.int64) << (dimensions - 1 - j)
        keys, counts, self.node = group_keys(key, int(split.sum()) << dimensions)
        parent = np.flatnonzero(split)[keys >> dimensions]
        code = keys & ((1 << dimensions) - 1)
        bits = (code[:, None] >> np.arange(dimensions - 1, -1, -1)) & 1
        existing = np.full(len(keys), -1, np.int64)
        known = level.existing[parent] >= 0
        existing[known] = self.tree.find(
            depth + 1, (level.existing[parent][known] << dimensions) | code[known]
        )
        domains = counts.astype(np.float64)
        if (existing >= 0).any():
            domains[existing >= 0] += self.tree.levels[depth + 1].domains[existing[existing >= 0]]
        return _Level(
            cells=(level.cells[parent] << 1) | bits,
            parents_fraction=fraction[parent],
            domains=domains,
            rows=counts,
            existing=existing,
            chain=np.where(counts == level.rows[parent], level.chain[parent] + 1, 0),
        )

    def finish(self) -> Assignment:
        """Drop cubes without rows and number the others in file order."""
        counts = np.bincount(self.row_cube, minlength=self.found) if self.found else np.zeros(0, np.int64)
        used = np.flatnonzero(counts)
        number = np.full(self.found, -1, np.int32)
        number[used] = np.arange(len(used), dtype=np.int32)
        depths = np.repeat(np.array(self.found_depths, np.uint8), [len(t) for t in self.found_thresholds])
        none = np.zeros((0, len(self.cells)), np.int64)
        cells = np.concatenate([none, *self.found_cells]).astype(np.uint64)
        thresholds = np.concatenate([np.zeros(0, np.int32), *self.found_thresholds])
        return Assignment(
            cubes=Cubes(depths[used], cells[used]),
            thresholds=thresholds[used],
            counts=counts[used].astype(np.int64),
            row_cube=number[self.row_cube],
        )
