"""Some levels of the tree at once: rows counted by their finest node, placed by thresholds along the path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qbeast_core.space.arrays import BoolArray, I32Array, I64Array, U32Array
from qbeast_core.tree.grid import GRID_BITS, group_keys
from qbeast_core.tree.parallel import map_chunks

__all__ = ["Path", "Round", "count_round"]

Path = tuple[I32Array, int]
"""Thresholds of a level's nodes, and the number of the first of them among all nodes."""


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class Round:
    """Rows counted over `levels` levels.

    Parameters
    ----------
    dimensions, levels : int
        Bits of a child's code; levels of the round, at least 1.
    active : ndarray of int64 or None
        Rows of the round; None: all.
    nodes : ndarray of int64, shape (finest,)
        The nodes below the last level that hold rows: first node and codes in one number, increasing.
    rows : ndarray of int64, shape (finest,)
        Rows of each.
    row_node : ndarray of int32, shape (active rows,)
        Position in `nodes` of each row's node.
    """

    dimensions: int
    levels: int
    active: I64Array | None
    nodes: I64Array
    rows: I64Array
    row_node: I32Array

    @cached_property
    def _ladder(self) -> list[tuple[I64Array, I64Array, I64Array]]:
        """Per level, finest last: keys and rows of its nodes, and each finest node's ancestor among them."""
        nodes, rows = self.nodes, self.rows
        ancestors = np.arange(len(nodes))
        ladder: list[tuple[I64Array, I64Array, I64Array]] = []
        for _ in range(self.levels):
            above = nodes >> self.dimensions
            first = np.flatnonzero(np.concatenate([[True], above[1:] != above[:-1]]))
            parent = np.zeros(len(nodes), np.int64)
            parent[first[1:]] = 1
            parent = np.cumsum(parent)
            code = nodes & ((1 << self.dimensions) - 1)
            ladder.append(((parent << self.dimensions) | code, rows, ancestors))
            nodes, rows, ancestors = above[first], np.add.reduceat(rows, first), parent[ancestors]
        ladder.append((nodes, rows, ancestors))
        return ladder[::-1]

    def children(self, number: int) -> tuple[I64Array, I64Array]:
        """Return keys and rows of the children of the round's level `number`, counted from 0."""
        keys, rows, _ = self._ladder[number + 1]
        return keys, rows

    def free_rows(self, row_cube: I32Array) -> tuple[I64Array, I64Array]:
        """Return the rows that no cube has taken, and their nodes of the round's first level."""
        rows = np.arange(len(row_cube)) if self.active is None else self.active
        free = np.flatnonzero(row_cube[rows] < 0)
        return rows[free], self._ladder[0][2][self.row_node[free]]

    def place(self, weights: I32Array, row_cube: I32Array, paths: list[Path]) -> None:
        """Write the cube of every row that one of the round's levels takes.

        Parameters
        ----------
        weights : ndarray of int32, shape (all rows,)
            The rows' weights.
        row_cube : ndarray of int32, shape (all rows,)
            Cube of each row, -1 where none has taken it; written.
        paths : list of Path
            For the round's levels from the first on; thresholds never fall along a path.
        """
        ladder = self._ladder
        thresholds = [level[ladder[number][2]] for number, (level, _) in enumerate(paths)]
        places = [ladder[number][2] + first for number, (_, first) in enumerate(paths)]
        cubes = np.concatenate([*places, np.full(len(self.nodes), -1)]).astype(np.int32)

        def chunk(start: int, stop: int) -> None:
            rows = slice(start, stop) if self.active is None else self.active[start:stop]
            node, weight = self.row_node[start:stop], weights[rows]
            level = np.zeros(stop - start, np.int32)
            for threshold in thresholds:
                level += weight > threshold[node]
            level *= len(self.nodes)
            level += node
            before = row_cube[rows]
            row_cube[rows] = np.where(before < 0, cubes[level], before)

        map_chunks(chunk, len(self.row_node))

    def has_free_rows(self, row_cube: I32Array) -> BoolArray:
        """Tell which of the finest nodes have rows that no cube has taken."""
        free = np.flatnonzero((row_cube if self.active is None else row_cube[self.active]) < 0)
        left: BoolArray = np.bincount(self.row_node[free], minlength=len(self.nodes)) > 0
        return left

    def rows_below(self, kept: BoolArray) -> tuple[I64Array, I32Array]:
        """Return the rows whose finest node is kept, and the nodes' numbers among those kept."""
        here = np.flatnonzero(kept[self.row_node])
        number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        return here if self.active is None else self.active[here], number[self.row_node[here]]


def count_round(
    cells: list[U32Array], active: I64Array | None, node: I32Array, *, nodes: int, depth: int, levels: int
) -> Round:
    """Count rows by the nodes that lie `levels` levels below those they are in.

    Parameters
    ----------
    cells : list of ndarray of uint32, each of shape (all rows,)
        Finest-grid cells per dimension.
    active : ndarray of int64 or None
        Rows that take part; None: all.
    node : ndarray of int32, shape (active rows,)
        Node of each row at `depth`, below `nodes`.
    nodes, depth, levels : int
        Nodes at `depth`; ``depth + levels`` at most `GRID_BITS`.
    """
    dimensions = len(cells)
    spread = _spread(levels, dimensions)
    shift, mask = np.uint32(GRID_BITS - depth - levels), np.uint32((1 << levels) - 1)
    keys = np.empty(len(node), np.int64)

    def chunk(start: int, stop: int) -> None:
        rows = slice(start, stop) if active is None else active[start:stop]
        key = node[start:stop].astype(np.int64)
        key <<= dimensions * levels
        for j, column in enumerate(cells):
            key |= spread[(column[rows] >> shift) & mask] << (dimensions - 1 - j)
        keys[start:stop] = key

    map_chunks(chunk, len(node))
    found, rows, row_node = group_keys(keys, nodes << (dimensions * levels))
    return Round(dimensions, levels, active, found, rows, row_node)


def _spread(levels: int, dimensions: int) -> I64Array:
    """Every number of `levels` bits with its bits `dimensions` apart."""
    numbers = np.arange(1 << levels)
    spread = np.zeros(1 << levels, np.int64)
    for bit in range(levels):
        spread |= ((numbers >> bit) & 1) << (bit * dimensions)
    return spread
