"""Build the outline of a tree from a sample of the rows and the live blocks."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U32Array
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.tree.layout.build import TreeBuilder
from qbeast_core.tree.layout.existing import ExistingLevel, ExistingTree
from qbeast_core.tree.layout.grid import GRID_BITS
from qbeast_core.tree.layout.outline import Outline, OutlineLevel


def draw_outline(
    cells: list[U32Array],
    weights: I32Array,
    *,
    rows_each: float,
    cube_size: int,
    existing: ExistingTree | None = None,
    smallest_block_rows: int = 0,
    trees: I64Array | None = None,
    tree_count: int = 1,
) -> Outline:
    """Build the trees of many rows from a uniform sample of them.

    `trees` are the numbers of the sampled rows' trees. The outline has a root for each of `tree_count` trees.
    Thresholds and leaves come from the sampled counts; with a sample of fraction p, the error of the count of a cube
    of n rows is about ``1 / sqrt(p * n)``. If all rows are in the sample, this is the tree of `assign_rows`.
    """
    builder = TreeBuilder(
        cells,
        weights,
        cube_size,
        existing=existing,
        smallest_block_rows=smallest_block_rows,
        rows_each=rows_each,
        trees=trees,
    )
    builder.build()
    roots = np.arange(tree_count)
    levels = _levels(builder, roots) if builder.levels else [_blank(roots)]
    return Outline(len(cells), tuple(levels))


def _levels(builder: TreeBuilder, roots: I64Array) -> list[OutlineLevel]:
    """Join the sampled nodes and the live nodes below open nodes, level by level."""
    dimensions = len(builder.cells)
    no_keys = np.zeros(0, np.int64)
    ends = np.cumsum([len(level.keys) for level in builder.levels])
    thresholds = np.split(builder.final_thresholds(), ends[:-1])
    levels: list[OutlineLevel] = []
    # A sample of the new rows misses live cubes, and live cubes miss regions that only new rows reach, so both are
    # joined. `sampled_at` and `live_at` are the positions in the outline of the nodes of the level above, or -1 if
    # missing or below a leaf.
    sampled_at = live_at = no_keys
    for depth, (sampled, live) in enumerate(zip_longest(builder.levels, builder.tree.levels)):
        sampled_keys, live_keys = (no_keys if level is None else level.keys for level in (sampled, live))
        if depth:
            sampled_keys = _keys(sampled_at, sampled_keys, dimensions)
            live_keys = _keys(live_at, live_keys, dimensions)
        keys = np.unique(np.concatenate([sampled_keys, live_keys])) if depth else roots
        keys = keys[keys >= 0]
        if not len(keys):
            break
        sampled_at, live_at = _positions(keys, sampled_keys), _positions(keys, live_keys)
        level = _blank(keys)
        if live is not None:
            _put(level.thresholds, live_at, _live_bounds(live, depth))
            _put(level.live_below, live_at, live.has_descendants)
        if sampled is not None:
            _put(level.thresholds, sampled_at, thresholds[depth])
        levels.append(level)
        closed = level.thresholds == MAX_WEIGHT  # nothing lies below a leaf
        sampled_at, live_at = (
            np.where((position >= 0) & ~closed[np.maximum(position, 0)], position, -1)
            for position in (sampled_at, live_at)
        )
    return levels


def _live_bounds(level: ExistingLevel, depth: int) -> I32Array:
    """Return thresholds for live cubes that no sampled row reached.

    A cube with blocks takes all rows. A cube without blocks stays below the weights of its descendants;
    otherwise it would break the order of weights along the branch.
    """
    if depth >= GRID_BITS:
        return np.full(len(level.keys), MAX_WEIGHT, np.int32)
    below = np.maximum(level.lowest_below.astype(np.int64) - 1, MIN_WEIGHT)
    return np.where(level.has_blocks, MAX_WEIGHT, below).astype(np.int32)


def _keys(at: I64Array, keys: I64Array, dimensions: int) -> I64Array:
    """Return the keys of nodes in the outline; -1 if the parent is missing or closed."""
    positions = at[keys >> dimensions]
    return np.where(positions >= 0, (positions << dimensions) | (keys & ((1 << dimensions) - 1)), -1)


def _positions(level_keys: I64Array, keys: I64Array) -> I64Array:
    return np.where(keys >= 0, np.searchsorted(level_keys, np.maximum(keys, 0)), -1)


def _blank(keys: I64Array) -> OutlineLevel:
    return OutlineLevel(keys, np.full(len(keys), MAX_WEIGHT, np.int32), np.zeros(len(keys), np.bool_))


def _put(target: np.ndarray[Any, Any], positions: I64Array, values: np.ndarray[Any, Any]) -> None:
    kept = positions >= 0
    target[positions[kept]] = values[kept]
