"""Find the block of each row of a file: rows of a cube need not be neighbours (format 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbeast_core.space.cubes import Cubes
from qbeast_core.space.values import I32Array, I64Array, U32Array
from qbeast_core.tree.layout.existing import place_cubes
from qbeast_core.tree.layout.grid import GRID_BITS, child_codes, find_keys

_NONE = -1


def blocks_of_rows(
    cubes: Cubes, max_weights: I32Array, cells: Sequence[U32Array], weights: I32Array
) -> I64Array:
    """Return the block of each row: the first on its path from the root that takes its weight; -1 without one.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "g"], dimensions=1)
    >>> cells = [np.array([0, 3 << 30, 3 << 30], np.uint32)]
    >>> blocks_of_rows(cubes, np.array([5, 9], np.int32), cells, np.array([6, 5, 7], np.int32)).tolist()
    [-1, 0, 1]
    """
    keys, positions = place_cubes(cubes)
    found = np.full(len(weights), _NONE, np.int64)
    rows, parents = np.arange(len(weights)), np.zeros(len(weights), np.int64)
    for depth, level in enumerate(keys):
        if depth:
            codes = child_codes([column[rows] >> np.uint32(GRID_BITS - depth) for column in cells])
            parents = find_keys(level, (parents << cubes.dimensions) | codes)
            rows, parents = rows[parents >= 0], parents[parents >= 0]
        # Positions are those of the cubes that reach this depth.
        here = np.flatnonzero(cubes.depth >= depth)
        ends = cubes.depth[here] == depth
        block = np.full(len(level), _NONE, np.int64)
        block[positions[depth][ends]] = here[ends]
        blocks = block[parents]
        takes = (blocks >= 0) & (weights[rows] <= max_weights[blocks])
        found[rows[takes]] = blocks[takes]
        rows, parents = rows[~takes], parents[~takes]
    return found
