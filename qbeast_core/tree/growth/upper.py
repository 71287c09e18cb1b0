"""Decide which upper levels of a tree get a data file of their own."""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.space.arrays import F64Array, I64Array
from qbeast_core.space.cubes import Cubes
from qbeast_core.tree.layout.existing import ExistingTree

# A file of upper levels has at most a third of the rows of other files, so each optimize can rewrite it.
_UPPER_SHARE: Final = 3
# A smaller write is not divided.
_WRITE_SHARE: Final = 4

# Minimum spread of the rows. Rows of one day stay together: a filter on the day skips the files of other days, but not
# a file with the upper cubes of all days.
_MIN_SPREAD: Final = 0.3


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
    if tree is not None and tree.levels:
        if tree.spread < _MIN_SPREAD:
            return 0
        rows_of_table = rows + float(tree.levels[0].domains[0])
    else:
        rows_of_table = rows
    if rows_of_table <= file_rows or rows * _WRITE_SHARE <= file_rows:
        return 0
    level_ends = np.flatnonzero(np.diff(cubes.depth)) + 1
    fitting = level_ends[np.cumsum(counts)[level_ends - 1] * _UPPER_SHARE <= file_rows]
    return int(fitting[-1]) if len(fitting) else 0
