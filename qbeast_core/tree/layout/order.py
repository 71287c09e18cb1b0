"""Whether the blocks that are left when others go keep the order of weights (format 8.3 and 8.4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from qbeast_core.space.arrays import I32Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.tree.layout.existing import ExistingTree, place_cubes

_BROKEN = pl.Schema({"cube": pl.Int64, "block": pl.Int64, "above": pl.Boolean})


def broken_order(cubes: Cubes, *, min_weights: I32Array, max_weights: I32Array) -> pl.DataFrame:
    """Return the cubes whose blocks break the order of weights, and the blocks to blame.

    A cube is at fault if its smallest threshold is not below every weight of its descendants' blocks, or if it
    is a leaf and no block of it has the greatest threshold. To remove all blocks of one side repairs it.

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
        own = depth[reaching] == level
        lows, highs = min_weights[reaching], max_weights[reaching]
        # After appends a cube has blocks with several thresholds, of which the smallest counts: a reader that stops
        # there (the JVM does) must miss no row further down. So every weight below has to be greater.
        smallest = np.full(size, MAX_WEIGHT, np.int32)
        np.minimum.at(smallest, position[own], highs[own])
        greatest = np.full(size, MIN_WEIGHT, np.int32)
        np.maximum.at(greatest, position[own], highs[own])
        lowest = np.full(size, MAX_WEIGHT, np.int32)
        np.minimum.at(lowest, position[~own], lows[~own])
        filled = np.bincount(position[own], minlength=size) > 0
        inner = np.bincount(position[~own], minlength=size) > 0
        # Without descendants the cube is a leaf, which takes all weights: one block with the maximum is enough.
        # A cube without blocks has no threshold, so it has nothing to break.
        broken = filled & np.where(inner, smallest >= lowest, greatest < MAX_WEIGHT)
        if broken.any():
            # Equal weights are a fault too: rows of one key have one weight and belong in one cube.
            blamed = broken[position] & (own | (lows <= smallest[position]))
            rows = {"cube": position[blamed] + first, "block": reaching[blamed], "above": own[blamed]}
            parts.append(pl.DataFrame(rows, schema=_BROKEN))
        first += size
    return pl.concat(parts)


def open_where_broken(tree: ExistingTree) -> ExistingTree:
    """Return the tree as a build should see it after blocks were removed from a valid one.

    If the remaining thresholds of a cube are too large for its descendants, the cube counts as one without blocks.
    New rows may then get a threshold below the descendants' weights, which repairs the order.
    """
    levels = []
    for level in tree.levels:
        broken = level.has_descendants & (level.thresholds >= level.lowest_below)
        levels.append(replace(level, has_blocks=level.has_blocks & ~broken))
    return ExistingTree(tree.dimensions, tuple(levels))
