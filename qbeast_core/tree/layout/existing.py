"""Rebuild the existing tree of a revision from its live blocks, and check the order of weights (format 8 and 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from qbeast_core.space.cubes import Cubes
from qbeast_core.space.values import MAX_WEIGHT, BoolArray, F64Array, I32Array, I64Array, U64Array
from qbeast_core.tree.layout.grid import child_codes, find_keys, lowest_by_node
from qbeast_core.tree.space.partitions import NO_PARTITIONS, Partitions


@dataclass(frozen=True, slots=True, eq=False)
class ExistingLevel:
    """Cubes of one depth, sorted by `keys`; the parent of each cube is in the level above.

    The keys of the roots are the numbers of their trees.
    """

    keys: I64Array
    domains: F64Array
    thresholds: I32Array
    has_blocks: BoolArray
    lowest_below: I32Array
    has_descendants: BoolArray
    kept: I32Array


@dataclass(frozen=True, slots=True, eq=False)
class ExistingTree:
    """The trees of all partitions, as levels from the roots down; a child has a number of `dimensions` bits."""

    dimensions: int
    levels: tuple[ExistingLevel, ...]
    # How widely the rows to place are spread along each dimension, by tree: the mean share of the tree's rows in the
    # range of their files, the least of all dimensions. Missing: unknown.
    spreads: Mapping[int, float] = field(default_factory=dict[int, float])
    # Partitions of the table; each has its own tree.
    partitions: Partitions = NO_PARTITIONS

    @property
    def cube_count(self) -> int:
        """Number of cubes with live blocks."""
        return sum(int(level.has_blocks.sum()) for level in self.levels)

    def find(self, depth: int, keys: I64Array) -> I64Array:
        """Return the position of each key among the cubes of `depth`, -1 if missing."""
        if depth >= len(self.levels):
            return np.full(len(keys), -1, np.int64)
        return find_keys(self.levels[depth].keys, keys)

    def rows_of(self, tree: int) -> float:
        """Return the number of rows of a tree."""
        (position,) = self.find(0, np.array([tree])).tolist()
        return 0.0 if position < 0 else float(self.levels[0].domains[position])


def partitions_of(tree: ExistingTree | None) -> Partitions:
    """Return the partitions of a table. None: an empty table."""
    return NO_PARTITIONS if tree is None else tree.partitions


def existing_tree(
    cubes: Cubes,
    *,
    min_weights: I32Array,
    max_weights: I32Array,
    element_counts: I64Array,
    gone: BoolArray | None = None,
) -> ExistingTree:
    """Rebuild domains and thresholds of a revision from its live blocks.

    Tree sizes are summed bottom-up from the blocks' rows; a child's domain is its parent's domain times
    its share of the siblings' tree sizes. Cubes without blocks are added.
    """
    if not len(cubes.depth):
        return ExistingTree(cubes.dimensions, ())
    depth = cubes.depth.astype(np.int64)
    keys, positions = place_cubes(cubes)
    live = np.ones(len(depth), np.bool_) if gone is None else ~gone
    kept_weights = np.full(len(depth), MAX_WEIGHT, np.int32) if gone is None else max_weights
    domains = _region_rows(cubes, keys, positions, np.where(live, element_counts, 0))
    levels: list[ExistingLevel] = []
    for k, (level_keys, position) in enumerate(zip(keys, positions, strict=True)):
        reaching = depth >= k
        is_level = depth[reaching] == k
        bounds = (min_weights[reaching], max_weights[reaching], kept_weights[reaching], live[reaching])
        levels.append(_level(level_keys, domains[k], position, is_level, bounds))
    return ExistingTree(cubes.dimensions, tuple(levels))


def _region_rows(
    cubes: Cubes, keys: list[I64Array], positions: list[I64Array], element_counts: I64Array | F64Array
) -> list[F64Array]:
    """Estimate the number of rows in the region of each cube, including rows of its ancestors' blocks.

    Rows in the blocks of a cube are distributed over the regions of its children in proportion to their tree sizes.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "A", "w"], dimensions=2)
    >>> [level.tolist() for level in _region_rows(cubes, *place_cubes(cubes), np.array([10, 10, 30]))]
    [[50.0], [12.5, 37.5]]
    """
    domains: list[F64Array] = []
    for k, (level_keys, position) in enumerate(zip(keys, positions, strict=True)):
        sums = np.bincount(position, element_counts[cubes.depth >= k], len(level_keys))
        size = sums.astype(np.float64, copy=False)
        domains.append(_child_domains(level_keys >> cubes.dimensions, size, domains[-1]) if k else size)
    return domains


def place_cubes(cubes: Cubes) -> tuple[list[I64Array], list[I64Array]]:
    """Sort cubes and their ancestors by level. The keys of the first level are the numbers of the trees.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> keys, positions = place_cubes(decode_cubes(["w", "", "A"], dimensions=2))
    >>> keys[1].tolist(), positions[1].tolist()
    ([0, 3], [1, 0])
    """
    depth = cubes.depth.astype(np.int64)
    roots, position = np.zeros(1, np.int64), np.zeros(len(depth), np.int64)
    if cubes.trees is not None:
        roots, position = np.unique(cubes.trees, return_inverse=True)
    keys, positions = [roots], [position.copy()]
    for k in range(1, int(depth.max()) + 1):
        reaching = np.flatnonzero(depth >= k)
        shift = (depth[reaching] - k).astype(np.uint64)
        cells: U64Array = cubes.cells[reaching] >> shift[:, None]
        key = (position[reaching] << cubes.dimensions) | child_codes(list(cells.T))
        level_keys, inverse = np.unique(key, return_inverse=True)
        position[reaching] = inverse
        keys.append(level_keys)
        positions.append(inverse.astype(np.int64))
    return keys, positions


def _child_domains(parents: I64Array, tree_sizes: F64Array, parent_domains: F64Array) -> F64Array:
    siblings = np.bincount(parents, weights=tree_sizes, minlength=len(parent_domains))
    share = np.divide(
        tree_sizes, siblings[parents], out=np.zeros_like(tree_sizes), where=siblings[parents] > 0
    )
    return share * parent_domains[parents]


def _level(
    keys: I64Array,
    domains: F64Array,
    position: I64Array,
    is_level: BoolArray,
    bounds: tuple[I32Array, I32Array, I32Array, BoolArray],
) -> ExistingLevel:
    min_weights, max_weights, kept_weights, live = bounds
    size, at_level, below = len(keys), is_level & live, ~is_level & live
    return ExistingLevel(
        keys=keys,
        domains=domains,
        thresholds=lowest_by_node(max_weights[at_level], position[at_level], size),
        has_blocks=np.bincount(position[at_level], minlength=size) > 0,
        lowest_below=lowest_by_node(min_weights[below], position[below], size),
        has_descendants=np.bincount(position[below], minlength=size) > 0,
        kept=lowest_by_node(kept_weights[is_level], position[is_level], size),
    )


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
