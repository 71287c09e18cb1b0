"""Trees built from a sample; they assign rows one by one (format 9)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qbeast_core.space.cubes import Cubes
from qbeast_core.space.values import MAX_WEIGHT, BoolArray, I32Array, I64Array, U32Array
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.grid import GRID_BITS, child_codes, cubes_of_keys, file_order, find_keys, mark_ancestors


@dataclass(frozen=True, slots=True, eq=False)
class OutlineLevel:
    """Nodes of one depth, sorted by `keys`."""

    keys: I64Array
    thresholds: I32Array
    live_below: BoolArray


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class Outline:
    """The nodes of the sample, from the roots down, numbered by depth and then cube. The root of tree n is node n.

    If a row belongs to a child that is missing here, the sample had no rows in that region: the child is a leaf
    without a number, and follows its parent in the order of files.
    """

    dimensions: int
    levels: tuple[OutlineLevel, ...]

    def __getstate__(self) -> dict[str, object]:  # derived values are faster to compute than to send
        return {"dimensions": self.dimensions, "levels": self.levels}

    @cached_property
    def firsts(self) -> I64Array:
        """Number of the first node of each level, and the number of nodes, shape (levels + 1,)."""
        sizes = [len(level.keys) for level in self.levels]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])

    @cached_property
    def thresholds(self) -> I32Array:
        """Threshold of each node."""
        return np.concatenate([level.thresholds for level in self.levels])

    @cached_property
    def cubes(self) -> Cubes:
        """Cube of each node."""
        return cubes_of_keys([level.keys for level in self.levels], self.dimensions)

    @cached_property
    def nodes_in_files(self) -> I32Array:
        """All nodes, in the order of data files."""
        return file_order(self.cubes).astype(np.int32)

    @cached_property
    def places_in_files(self) -> I32Array:
        """Position of each node in the order of data files."""
        places = np.empty(len(self.cubes), np.int32)
        places[self.nodes_in_files] = np.arange(len(places), dtype=np.int32)
        return places

    def place(self, cells: list[U32Array], weights: I32Array, trees: I64Array | None = None) -> I32Array:
        """Return the node of each row: the first on its path that takes its weight, or the last node of the path.

        `trees` are the numbers of the rows' trees. None: all rows are in tree 0.
        """
        nodes = np.empty(len(weights), np.int32)
        for start in range(0, len(weights), sizing().chunk_rows):
            chunk = slice(start, start + sizing().chunk_rows)
            roots = np.zeros(len(weights[chunk]), np.int64) if trees is None else trees[chunk]
            nodes[chunk] = self._place([column[chunk] for column in cells], weights[chunk], roots)
        return nodes

    def max_weights(self, used: BoolArray, used_below: BoolArray) -> I32Array:
        """Return the `maxWeight` of each node's blocks: its threshold, or the maximum weight if it is a leaf."""
        below = used_below | np.concatenate([level.live_below for level in self.levels])
        mark_ancestors(below, used, [level.keys for level in self.levels], self.dimensions)
        return np.where(below, self.thresholds, np.int32(MAX_WEIGHT)).astype(np.int32)

    def _place(self, cells: list[U32Array], weights: I32Array, roots: I64Array) -> I32Array:
        node = roots.astype(np.int32)
        rows = np.flatnonzero(weights > self.levels[0].thresholds[roots])
        position = roots[rows]
        for depth in range(1, len(self.levels)):
            shift = np.uint32(GRID_BITS - depth)
            codes = child_codes([column[rows] >> shift for column in cells])
            below = self._find(depth, position, codes)
            is_named = below >= 0
            rows, position = rows[is_named], below[is_named]
            node[rows] = position + self.firsts[depth]
            free = weights[rows] > self.levels[depth].thresholds[position]
            rows, position = rows[free], position[free]
        return node

    def _find(self, depth: int, parents: I64Array, codes: I64Array) -> I64Array:
        keys = (parents << self.dimensions) | codes
        table = self._tables[depth]
        return find_keys(self.levels[depth].keys, keys) if table is None else table[keys]

    @cached_property
    def _tables(self) -> list[I64Array | None]:
        """Position of each possible key per level, or None if there are too many; search is three times slower."""
        tables: list[I64Array | None] = [None]
        for above, level in zip(self.levels[:-1], self.levels[1:], strict=True):
            size = len(above.keys) << self.dimensions
            table: I64Array | None = None
            if size <= sizing().max_lookup_cells:
                table = np.full(size, -1, np.int64)
                table[level.keys] = np.arange(len(level.keys))
            tables.append(table)
        return tables
