"""Decide which upper levels of a tree get a data file of their own."""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.space.arrays import F64Array, I64Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.tree.layout.existing import ExistingTree, place_cubes, region_rows

# A file of upper levels has at most a third of the rows of other files, so each optimize can rewrite it.
_UPPER_SHARE: Final = 3
# A smaller write is not divided.
_WRITE_SHARE: Final = 4

# Minimum overlap of the new rows with the table. Rows of one day are in few regions: files of a day answer filters on
# the day, and a file of the upper cubes of all days does not.
_MIN_OVERLAP: Final = 0.5
_LEVELS_COMPARED: Final = 2


def upper_cubes(
    cubes: Cubes, counts: I64Array | F64Array, tree: ExistingTree | None, *, file_rows: float
) -> int:
    """Return how many of the first cubes belong to a file of the upper levels, 0 for none.

    Optimize joins this file, which is small, with whatever it rewrites. So the upper cubes, which all filters and
    samples read, keep few blocks while the table grows. `cubes` are in file order, `tree` has the rows of other files.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "g", "w"], dimensions=2)
    >>> upper_cubes(cubes, np.array([10, 40, 40]), None, file_rows=50)
    1
    >>> upper_cubes(cubes, np.array([10, 40, 40]), None, file_rows=100)
    0
    """
    rows = float(counts.sum())
    in_table = rows + (float(tree.levels[0].domains[0]) if tree is not None and tree.levels else 0.0)
    if in_table <= file_rows or rows * _WRITE_SHARE <= file_rows:
        return 0
    level_ends = np.flatnonzero(np.diff(cubes.depth)) + 1
    fitting = level_ends[np.cumsum(counts)[level_ends - 1] * _UPPER_SHARE <= file_rows]
    return int(fitting[-1]) if len(fitting) and _overlap(cubes, counts, tree) >= _MIN_OVERLAP else 0


def _overlap(cubes: Cubes, counts: I64Array | F64Array, tree: ExistingTree | None) -> float:
    """Return the share of the rows that are spread over the regions like the rows of the tree; 1 if it is empty."""
    if tree is None or not tree.levels:
        return 1.0
    keys, positions = place_cubes(cubes)
    level = min(_LEVELS_COMPARED, len(keys) - 1, len(tree.levels) - 1)
    new = region_rows(cubes, keys, positions, counts)[level]
    in_tree = np.zeros(1, np.int64)
    for depth in range(1, level + 1):
        above = in_tree[keys[depth] >> cubes.dimensions]
        codes = keys[depth] & ((1 << cubes.dimensions) - 1)
        found = tree.find(depth, (np.maximum(above, 0) << cubes.dimensions) | codes)
        in_tree = np.where(above >= 0, found, -1)
    domains = tree.levels[level].domains
    old: F64Array = np.where(in_tree >= 0, domains[np.maximum(in_tree, 0)], 0.0)
    return float(np.minimum(new / max(new.sum(), 1.0), old / max(domains.sum(), 1.0)).sum())
