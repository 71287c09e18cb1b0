"""Pack cubes into files: the upper levels of a tree get a file of their own."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from qbeast_core.space.cubes import Cubes
from qbeast_core.space.values import F64Array, I64Array, distinct
from qbeast_core.tree.layout.existing import ExistingTree
from qbeast_core.tree.layout.pack import PackedFiles, file_starts, packed_at

# A file of upper levels has at most a third of the rows of other files, so each optimize can rewrite it.
_UPPER_SHARE: Final = 3
# A smaller write is not divided.
_WRITE_SHARE: Final = 4

# Minimum spread of the rows. Rows of one day stay together: a filter on the day skips the files of other days, but not
# a file with the upper cubes of all days.
_MIN_SPREAD: Final = 0.3


def pack_cubes(
    cubes: Cubes, counts: I64Array, tree: ExistingTree | None, *, file_rows: int, share: float = 1.0
) -> PackedFiles:
    """Pack the rows of cubes into files; see `file_starts`. A file has cubes of one tree.

    `cubes` are in file order, and `counts` are their rows, a share of all rows. `tree` has the rows of other files.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "g", "w"], dimensions=2)
    >>> pack_cubes(cubes, np.array([10, 40, 40]), None, file_rows=50).file_starts.tolist()
    [0, 10, 50, 90]
    >>> two_trees = Cubes(cubes.depth, cubes.cells, np.array([0, 0, 7]))
    >>> pack_cubes(two_trees, np.array([10, 40, 40]), None, file_rows=200).file_starts.tolist()
    [0, 50, 90]
    """
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    trees = np.zeros(len(counts), np.int64) if cubes.trees is None else cubes.trees
    begins = np.flatnonzero(np.diff(trees, prepend=-1))
    rows_of_file = max(round(file_rows * share), 1)
    starts = [np.zeros(1, np.int64)]
    for first, last in pairwise([*begins.tolist(), len(counts)]):
        here = slice(first, last)
        upper = upper_cubes(
            cubes.at(here), counts[here] / share, tree, number=int(trees[first]), file_rows=file_rows
        )
        starts.append(file_starts(ends[first : last + 1], file_rows=rows_of_file, first_cubes=upper))
    return packed_at(distinct(np.concatenate(starts)), ends)


def upper_cubes(
    cubes: Cubes, counts: I64Array | F64Array, tree: ExistingTree | None, *, number: int = 0, file_rows: float
) -> int:
    """Return how many of the first cubes of a tree belong to a file of the upper levels, 0 for none.

    Optimize joins this file, which is small, with whatever it rewrites. So the upper cubes, which all filters and
    samples read, keep few blocks while the table grows. `cubes` are in file order, `number` is that of their tree.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "g", "w"], dimensions=2)
    >>> [upper_cubes(cubes, np.array([10, 40, 40]), None, file_rows=rows) for rows in (50, 100)]
    [1, 0]
    """
    rows = float(counts.sum())
    others = 0.0 if tree is None else tree.rows_of(number)
    if tree is not None and others and tree.spreads.get(number, 0.0) < _MIN_SPREAD:
        return 0
    rows_of_table = rows + others
    if rows_of_table <= file_rows or rows * _WRITE_SHARE <= file_rows:
        return 0
    level_ends = np.flatnonzero(np.diff(cubes.depth)) + 1
    fitting = level_ends[np.cumsum(counts)[level_ends - 1] * _UPPER_SHARE <= file_rows]
    return int(fitting[-1]) if len(fitting) else 0
