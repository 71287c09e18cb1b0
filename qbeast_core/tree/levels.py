"""The nodes of one depth while a tree is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I64Array
from qbeast_core.tree.existing import ExistingTree

__all__ = ["Level", "child_level"]


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Nodes with rows in their region, in cube order; arrays of shape (n,) or (n, dimensions).

    Parameters
    ----------
    depth : int
        0 at the root.
    cells : ndarray of int64, shape (n, d)
        Cell numbers along each dimension.
    parents_fraction : ndarray of float64
        The share of all weights that the ancestors take.
    domains : ndarray of float64
        Rows of the whole table in the region, live ones included.
    rows : ndarray of int64
        Rows being placed in the region, at least one.
    existing : ndarray of int64
        Position in the live tree, -1 where it has no such cube.
    chain : ndarray of int64
        Levels for which halving the region has not parted the rows.
    open : ndarray of bool
        False below a leaf, where no row arrives.
    parent : ndarray of int64
        Number of the parent among all nodes of the tree; -1 at the root.
    """

    depth: int
    cells: I64Array
    parents_fraction: F64Array
    domains: F64Array
    rows: I64Array
    existing: I64Array
    chain: I64Array
    open: BoolArray
    parent: I64Array

    def live_below(self, tree: ExistingTree) -> BoolArray:
        """Tell which nodes have live blocks further down."""
        if self.depth >= len(tree.levels):
            return np.zeros(len(self.rows), np.bool_)
        known: BoolArray = self.existing >= 0
        return known & tree.levels[self.depth].has_descendants[np.maximum(self.existing, 0)]

    @staticmethod
    def root(dimensions: int, rows: int, domain: float, *, is_known: bool) -> Level:
        """Return the root; `is_known` if the live tree has it."""
        return Level(
            depth=0,
            cells=np.zeros((1, dimensions), np.int64),
            parents_fraction=np.zeros(1),
            domains=np.array([domain]),
            rows=np.array([rows], np.int64),
            existing=np.array([0 if is_known else -1], np.int64),
            chain=np.zeros(1, np.int64),
            open=np.ones(1, np.bool_),
            parent=np.full(1, -1, np.int64),
        )

    def only(self, kept: I64Array) -> Level:
        """Return the nodes at these positions."""
        return Level(
            self.depth,
            self.cells[kept],
            self.parents_fraction[kept],
            self.domains[kept],
            self.rows[kept],
            self.existing[kept],
            self.chain[kept],
            self.open[kept],
            self.parent[kept],
        )


def child_level(
    level: Level,
    keys: I64Array,
    rows: I64Array,
    *,
    first: int,
    fraction: F64Array,
    leaf: BoolArray,
    tree: ExistingTree,
    rows_each: float = 1.0,
) -> Level:
    """Return the children of a level.

    Parameters
    ----------
    level : Level
        The parents.
    keys : ndarray of int64, shape (children,)
        ``(parent position << dimensions) | child code``, increasing.
    rows : ndarray of int64, shape (children,)
        Rows in each child's region.
    first : int
        Number of the first parent among all nodes of the tree.
    fraction : ndarray of float64, shape (parents,)
        The share of all weights that each parent and its ancestors take.
    leaf : ndarray of bool, shape (parents,)
        Parents that take whatever arrives.
    tree : ExistingTree
        The live tree, perhaps without levels.
    rows_each : float, default 1.0
        Rows of the whole input that each row stands for.
    """
    dimensions = level.cells.shape[1]
    parent, code = keys >> dimensions, keys & ((1 << dimensions) - 1)
    bits = (code[:, None] >> np.arange(dimensions - 1, -1, -1)) & 1
    existing = np.full(len(keys), -1, np.int64)
    known = level.existing[parent] >= 0
    existing[known] = tree.find(level.depth + 1, (level.existing[parent][known] << dimensions) | code[known])
    domains: F64Array = rows.astype(np.float64) * rows_each
    if (existing >= 0).any():
        domains[existing >= 0] += tree.levels[level.depth + 1].domains[existing[existing >= 0]]
    return Level(
        depth=level.depth + 1,
        cells=(level.cells[parent] << 1) | bits,
        parents_fraction=fraction[parent],
        domains=domains,
        rows=rows,
        existing=existing,
        chain=np.where(rows == level.rows[parent], level.chain[parent] + 1, 0),
        open=(level.open & ~leaf)[parent],
        parent=parent + first,
    )
