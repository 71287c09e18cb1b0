"""Map coordinates to cells of a fine grid, number child cells, and group rows and nodes by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array, U32Array
from qbeast_core.space.cubes import MAX_DEPTH, Cubes
from qbeast_core.space.weights import MAX_WEIGHT

# Numbers of cubes; 16 bits if they fit.
CubeNumbers: TypeAlias = npt.NDArray[np.uint16] | I32Array

# A coordinate is one of `2**32` cells, so a tree has at most 32 levels below the root.
GRID_BITS: Final = MAX_DEPTH

_DENSE_KEYS_PER_ROW: Final = 4
_DENSE_KEYS_FLOOR: Final = 1 << 16


def grid(coordinates: F64Array) -> U32Array:
    """Return the cell of each coordinate on the finest grid, ``floor(x * 2**32)`` clipped to its last cell.

    >>> grid(np.array([0.0, 0.5, 1.0])).tolist()
    [0, 2147483648, 4294967295]
    """
    scaled = coordinates * float(1 << GRID_BITS)
    np.minimum(scaled, float((1 << GRID_BITS) - 1), out=scaled)
    return scaled.astype(np.uint32)


def child_codes(cells: Sequence[npt.NDArray[np.unsignedinteger[Any]]]) -> I64Array:
    """Return each cell's child number: its last bits, dimension 0 the most significant. One array per dimension.

    Numbers sort as the format orders sibling cubes (format 5).

    >>> child_codes([np.array([0, 3], dtype=np.uint64), np.array([1, 2], dtype=np.uint64)])
    array([1, 2])
    """
    codes = np.zeros(len(cells[0]), np.int64)
    for column in cells:
        codes <<= 1
        codes |= (column & column.dtype.type(1)).astype(np.int64)
    return codes


def cubes_of_keys(levels: Sequence[I64Array], dimensions: int) -> Cubes:
    """Return the cubes of nodes. A key is the position of the parent in the level above, then the child number.

    The keys of the first level are the numbers of the trees.

    >>> cubes_of_keys([np.array([0]), np.array([1, 2]), np.array([7])], 2).cells.tolist()
    [[0, 0], [0, 1], [1, 0], [3, 1]]
    """
    roots = levels[0] if len(levels) else np.zeros(0, np.int64)
    cells, trees = [np.zeros((len(roots), dimensions), np.int64)], [roots]
    shifts = np.arange(dimensions - 1, -1, -1)
    for keys in levels[1:]:
        cells.append((cells[-1][keys >> dimensions] << 1) | ((keys[:, None] >> shifts) & 1))
        trees.append(trees[-1][keys >> dimensions])
    depths = np.repeat(np.arange(len(levels), dtype=np.uint8), [len(keys) for keys in levels])
    return Cubes(
        depths, np.concatenate(cells).astype(np.uint64), np.concatenate(trees) if roots.any() else None
    )


def mark_ancestors(below: BoolArray, used: BoolArray, levels: Sequence[I64Array], dimensions: int) -> None:
    """Mark in `below` the nodes with a child that is in `used` or in `below`; see `cubes_of_keys` for keys."""
    firsts = np.cumsum([0, *map(len, levels)])
    for depth in range(len(levels) - 1, 0, -1):  # from the deepest level up: a parent depends on its children
        here = slice(firsts[depth], firsts[depth + 1])
        parents = levels[depth][used[here] | below[here]] >> dimensions
        below[firsts[depth - 1] + parents] = True


def lowest_by_node(weights: I32Array, node: npt.NDArray[np.integer[Any]], nodes: int) -> I32Array:
    """Return the minimum weight of each of `nodes` nodes, and the maximum weight for a node without rows."""
    lowest = np.full(nodes, MAX_WEIGHT, np.int32)
    np.minimum.at(lowest, node, weights)
    return lowest


def find_keys(level_keys: I64Array, keys: I64Array) -> I64Array:
    """Return the position of each key among sorted ones, -1 if missing.

    >>> find_keys(np.array([2, 5]), np.array([5, 3, 9])).tolist()
    [1, -1, -1]
    """
    if not len(level_keys):
        return np.full(len(keys), -1, np.int64)
    positions = np.minimum(np.searchsorted(level_keys, keys), len(level_keys) - 1)
    return np.where(level_keys[positions] == keys, positions, -1)


def group_keys(key: I64Array, key_count: int) -> tuple[I64Array, I64Array, I32Array]:
    """Return the distinct keys in order, the number of rows of each, and the position of each row's key.

    >>> [part.tolist() for part in group_keys(np.array([5, 2, 5]), 8)]
    [[2, 5], [1, 2], [1, 0, 1]]
    """
    if key_count <= max(_DENSE_KEYS_FLOOR, _DENSE_KEYS_PER_ROW * len(key)):
        counts = np.bincount(key, minlength=key_count)
        keys = np.flatnonzero(counts)
        lookup = np.zeros(key_count, np.int32)
        lookup[keys] = np.arange(len(keys), dtype=np.int32)
        return keys, counts[keys], lookup[key]
    keys, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    return keys, counts, inverse.astype(np.int32)
