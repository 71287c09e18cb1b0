"""Check the order of weights of blocks, for example after others were removed (format 8.3 and 8.4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from qbeast_core.space.arrays import I32Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.space.weights import MAX_WEIGHT
from qbeast_core.tree.layout.existing import ExistingTree, place_cubes
from qbeast_core.tree.layout.grid import lowest_by_node

_BROKEN = pl.Schema({"cube": pl.Int64, "block": pl.Int64, "above": pl.Boolean})


def broken_order(cubes: Cubes, *, min_weights: I32Array, max_weights: I32Array) -> pl.DataFrame:
    """Return the cubes whose blocks break the order of weights, and these blocks.

    A cube is invalid if its smallest threshold is not below all weights of its descendants' blocks, or if it is a
    leaf and none of its blocks has the maximum threshold. Removing all blocks of one side repairs it.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "w"], dimensions=2)
    >>> bounds = {"min_weights": np.array([-9, 0], np.int32), "max_weights": np.array([5, MAX_WEIGHT], np.int32)}
    >>> broken_order(cubes, **bounds).rows()
    [(0, 0, True), (0, 1, False)]
    """
    parts = [pl.DataFrame(schema=_BROKEN)]
    depth = cubes.depth.astype(np.int64)
    keys, positions = place_cubes(cubes) if len(depth) else ([], [])
    first = 0
    for level, (level_keys, position) in enumerate(zip(keys, positions, strict=True)):
        size = len(level_keys)
        reaching = np.flatnonzero(depth >= level)
        is_level = depth[reaching] == level
        lows, highs = min_weights[reaching], max_weights[reaching]
        # After appends a cube may have several thresholds, of which the smallest counts: a reader may stop there (the
        # JVM does) and must not miss rows below. So all weights below must be greater.
        smallest = lowest_by_node(highs[is_level], position[is_level], size)
        lowest = lowest_by_node(lows[~is_level], position[~is_level], size)
        ends = np.bincount(position[is_level & (highs == MAX_WEIGHT)], minlength=size) > 0
        filled = np.bincount(position[is_level], minlength=size) > 0
        inner = np.bincount(position[~is_level], minlength=size) > 0
        # A cube without descendants is a leaf, which takes all weights: one block with the maximum is enough. A cube
        # without blocks has no threshold.
        broken = filled & np.where(inner, smallest >= lowest, ~ends)
        if broken.any():
            # Equal weights are invalid too: rows of one key have one weight and belong in one cube.
            blamed = broken[position] & (is_level | (lows <= smallest[position]))
            rows = {"cube": position[blamed] + first, "block": reaching[blamed], "above": is_level[blamed]}
            parts.append(pl.DataFrame(rows, schema=_BROKEN))
        first += size
    return pl.concat(parts)


def open_where_broken(tree: ExistingTree) -> ExistingTree:
    """Return the tree for a build after blocks were removed from a valid tree.

    If the remaining thresholds of a cube are too large for its descendants, treat the cube as one without blocks. New
    rows then get a threshold below the descendants' weights, which repairs the order.
    """
    levels = []
    for level in tree.levels:
        broken = level.has_descendants & (level.thresholds >= level.lowest_below)
        levels.append(replace(level, has_blocks=level.has_blocks & ~broken))
    return replace(tree, levels=tuple(levels))
