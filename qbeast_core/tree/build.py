"""Trees of cubes: rebuilt from live blocks, built for new rows, and the block of each row (format 7 to 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.cubes import Cubes
from qbeast_core.space.values import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    BoolArray,
    F64Array,
    I32Array,
    I64Array,
    U32Array,
    U64Array,
    fraction_to_weight,
    weight_to_fraction,
)
from qbeast_core.tree.grid import (
    GRID_BITS,
    CubeNumbers,
    child_codes,
    cubes_of_keys,
    file_order,
    find_keys,
    group_keys,
    lowest_by_node,
    map_chunks,
    mark_ancestors,
)
from qbeast_core.tree.summary import NO_PARTITIONS, Partitions


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


# A round counts several levels at once, so rows are visited once per round instead of once per level. A round ends
# before its nodes outgrow the caches: the first limit applies to few rows, the second to many.
_MIN_ROUND_NODES: Final = 1 << 16
_MAX_ROUND_NODES: Final = 1 << 18

# Rows that stay together in 16 successive splits have equal or nearly equal keys. More levels would cost time and add
# cubes without rows, so the cube becomes a large leaf, which is split into several files.
_MAX_CHAIN: Final = 16

# A cube of an append is split if its rows fill this many of the smallest blocks.
_BLOCKS_OF_SPLIT: Final = 4

# Thresholds of the nodes of a level, and the index of its first node.
_Path = tuple[I32Array, int]


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The cube of each row."""

    cubes: Cubes
    thresholds: I32Array
    counts: I64Array
    row_cube: CubeNumbers


def assign_rows(
    cells: list[U32Array],
    weights: I32Array,
    *,
    cube_size: int,
    existing: ExistingTree | None = None,
    smallest_block_rows: int = 0,
    trees: I64Array | None = None,
) -> Assignment:
    """Assign each row to the first cube on its path whose threshold is at least its weight.

    `trees` are the numbers of the rows' trees. None: all rows are in tree 0.

    Domains (rows of the whole table in the region of a cube) are exact counts of the new rows plus the domains of
    `existing`. A cube is a leaf, and takes all remaining rows, if its tree holds at most `cube_size` rows or the grid
    cannot split it.

    >>> from qbeast_core.tree.grid import grid
    >>> rows = assign_rows([grid(np.array([0.1, 0.9]))], np.array([-5, 7], np.int32), cube_size=1)
    >>> rows.counts.tolist(), rows.cubes.depth.tolist()
    ([1, 1], [0, 1])
    """
    builder = TreeBuilder(
        cells, weights, cube_size, existing=existing, smallest_block_rows=smallest_block_rows, trees=trees
    )
    builder.build()
    return builder.finish()


class TreeBuilder:
    """The state of the rounds: the cubes so far, and the cube of each row."""

    def __init__(
        self,
        cells: list[U32Array],
        weights: I32Array,
        cube_size: int,
        *,
        existing: ExistingTree | None,
        smallest_block_rows: int,
        rows_each: float = 1.0,
        trees: I64Array | None = None,
    ) -> None:
        self.cells = cells
        self.weights = weights
        self.cube_size = cube_size
        # Cubes with children keep half as many rows as leaves: rows further down are better clustered, and a filter on
        # a sample reads the upper levels almost whole.
        self.inner_size = -(-cube_size // 2)
        self.tree = existing or ExistingTree(len(cells), ())
        self.smallest_block_rows = smallest_block_rows
        # Maximum rows of an append that are not divided among the children of a cube.
        self.rows_of_leaf = min(_BLOCKS_OF_SPLIT * smallest_block_rows, cube_size)
        self.rows_each = rows_each
        self.trees = trees
        self.row_cube = np.full(len(weights), -1, np.int32)
        self.levels: list[Level] = []
        self.thresholds: list[I32Array] = []
        self.node_count = 0

    def build(self) -> None:
        """Descend until no cube is split."""
        rows = len(self.weights)
        if not rows:
            return
        top: Level | None
        top, node = self._roots(rows)
        active: I64Array | None = None
        while top is not None:
            levels = self._levels_ahead(top, len(node))
            step = _count_round(self.cells, active, node, nodes=len(top.rows), depth=top.depth, levels=levels)
            top = self._decide(top, step)
            if top is not None:
                has_rows = top.open & step.has_free_rows(self.row_cube)
                active, node = step.rows_below(has_rows)
                top = top.only(np.flatnonzero(has_rows)) if has_rows.any() else None

    def _roots(self, rows: int) -> tuple[Level, I32Array]:
        """Return the roots of the trees with rows, and the position of each row's root."""
        if self.trees is None:
            keys, counts, node = np.zeros(1, np.int64), np.array([rows], np.int64), np.zeros(rows, np.int32)
        else:
            keys, counts, node = group_keys(self.trees, int(self.trees.max()) + 1)
        size, existing = len(keys), self.tree.find(0, keys)
        level = Level(
            depth=0,
            keys=keys,
            parents_fraction=np.zeros(size),
            domains=self._domains(0, counts, existing),
            rows=counts,
            existing=existing,
            grows=existing >= 0,
            chain=np.zeros(size, np.int64),
            open=np.ones(size, np.bool_),
        )
        return level, node

    def _domains(self, depth: int, rows: I64Array, existing: I64Array) -> F64Array:
        """Return the rows of the whole table in the region of each node."""
        domains: F64Array = rows.astype(np.float64) * self.rows_each
        is_live = existing >= 0
        if is_live.any():
            domains[is_live] += self.tree.levels[depth].domains[existing[is_live]]
        return domains

    def _levels_ahead(self, top: Level, rows: int) -> int:
        """Return the levels of the next round; one for appends, whose thresholds depend on the remaining rows."""
        max_levels = GRID_BITS - top.depth
        if self.tree.levels or max_levels < 2:
            return min(max_levels, 1)
        # Levels that reduce the largest node to the cube size if its rows spread evenly. More levels would probably
        # stay unused.
        dimensions = len(self.cells)
        largest = float((top.domains * (1.0 - top.parents_fraction)).max())
        nodes = max(_MIN_ROUND_NODES, min(rows, _MAX_ROUND_NODES))
        levels = 1
        while levels < max_levels and largest > self.cube_size << (dimensions * (levels - 1)):
            if len(top.rows) << (dimensions * (levels + 1)) > nodes:
                break
            levels += 1
        return levels

    def _decide(self, top: Level, step: Round) -> Level | None:
        """Set the thresholds of the round's levels, place the rows, and return the next level, if any."""
        below: Level | None = top
        paths: list[_Path] = []
        for number in range(max(step.levels, 1)):
            level = below
            if level is None:
                break
            leaf, fraction, threshold = self._thresholds(level, step)
            paths.append((threshold, self.node_count))
            self.levels.append(level)
            self.thresholds.append(threshold)
            self.node_count += len(threshold)
            below = None
            if not leaf.all():
                keys, rows, _ = step.ladder[number + 1]
                below = self._children(level, keys, rows, fraction, leaf)
        step.place(self.weights, self.row_cube, paths)
        return below

    def _children(
        self, level: Level, keys: I64Array, rows: I64Array, fraction: F64Array, leaf: BoolArray
    ) -> Level:
        """Return the children of a level."""
        dimensions = len(self.cells)
        parent, code = keys >> dimensions, keys & ((1 << dimensions) - 1)
        existing = np.full(len(keys), -1, np.int64)
        has_live_parent = level.existing[parent] >= 0
        live_keys = (level.existing[parent] << dimensions) | code
        existing[has_live_parent] = self.tree.find(level.depth + 1, live_keys[has_live_parent])
        return Level(
            depth=level.depth + 1,
            keys=keys,
            parents_fraction=fraction[parent],
            domains=self._domains(level.depth + 1, rows, existing),
            rows=rows,
            existing=existing,
            grows=level.grows[parent],
            chain=np.where(rows == level.rows[parent], level.chain[parent] + 1, 0),
            open=(level.open & ~leaf)[parent],
        )

    def _thresholds(self, level: Level, step: Round) -> tuple[BoolArray, F64Array, I32Array]:
        # Only the part of a domain that ancestors did not take counts (format 9).
        left = 1.0 - level.parents_fraction
        leaf = (level.domains * left <= self.cube_size) | (left <= 0.0) | (level.chain >= _MAX_CHAIN)
        rows = level.rows * self.rows_each
        leaf |= (rows * left <= self.rows_of_leaf * level.grows) | ~level.open
        if level.depth >= GRID_BITS:  # the grid has no finer cells
            leaf[:] = True
        # A block of an append should fill some pages. If few rows arrive, the cube takes a larger share than its domain
        # requires; otherwise each sample would read one page for a few rows.
        smallest = self.smallest_block_rows * level.grows
        kept = np.maximum(self.inner_size / np.maximum(level.domains, 1.0), smallest / rows)
        threshold = np.asarray(fraction_to_weight(level.parents_fraction + kept), np.int64)
        if level.depth < len(self.tree.levels):
            leaf, threshold = self._respect_live_blocks(level, step, leaf, threshold)
        final: I32Array = np.where(leaf, MAX_WEIGHT, np.maximum(threshold, MIN_WEIGHT)).astype(np.int32)
        # The final threshold may differ from the computed one; children use the final one.
        return leaf | (final == MAX_WEIGHT), weight_to_fraction(final), final

    def _respect_live_blocks(
        self, level: Level, step: Round, leaf: BoolArray, threshold: I64Array
    ) -> tuple[BoolArray, I64Array]:
        """Keep the weights of blocks above the smallest live threshold of their ancestors (format 8.3)."""
        live = self.tree.levels[level.depth]
        position = np.maximum(level.existing, 0)
        is_live = level.existing >= 0
        # A rewrite returns its rows to their cubes, with the previous thresholds. New thresholds would also move rows
        # of other files, or break the order below.
        kept = is_live & (live.kept[position] < MAX_WEIGHT)
        threshold, leaf = np.where(kept, live.kept[position], threshold), leaf & ~kept
        blocks = is_live & live.has_blocks[position]
        orphaned = is_live & ~live.has_blocks[position] & live.has_descendants[position]
        # The smallest live threshold of a cube counts. If this append adds no block to the cube, the old threshold
        # stays valid, so rows below must stay above it.
        empty = blocks & (step.lowest_free(self.weights, self.row_cube) > threshold)
        threshold = np.where(empty, np.maximum(threshold, live.thresholds[position]), threshold)
        # A cube without blocks above live blocks: its new rows form a new ancestor block, whose threshold must be
        # smaller than all weights below it.
        threshold = np.where(
            orphaned, np.minimum(threshold, live.lowest_below[position].astype(np.int64) - 1), threshold
        )
        return leaf & ~orphaned if level.depth < GRID_BITS else leaf, threshold

    def finish(self) -> Assignment:
        """Drop cubes without rows and number the others in file order."""
        counts = np.bincount(self.row_cube, minlength=self.node_count)
        cubes = cubes_of_keys([level.keys for level in self.levels], len(self.cells))
        # On the Hilbert curve, neighbouring cubes get neighbouring pages, so a box reads fewer runs of pages.
        used = file_order(cubes)
        used = used[counts[used] > 0]
        is_small = len(used) <= 1 << 16
        number: CubeNumbers = (
            np.zeros(self.node_count, np.uint16) if is_small else np.zeros(self.node_count, np.int32)
        )
        number[used] = np.arange(len(used))
        return Assignment(
            cubes=cubes.at(used),
            thresholds=self.final_thresholds(counts > 0)[used],
            counts=counts[used],
            row_cube=number.take(self.row_cube),
        )

    def final_thresholds(self, used: BoolArray) -> I32Array:
        """Return the final thresholds, given which nodes have rows.

        Rows with equal weights go to one cube, so a cube may take all rows intended for its children. It is then a
        leaf, whose threshold is the maximum weight (format 8.4).
        """
        thresholds = np.concatenate([np.zeros(0, np.int32), *self.thresholds])
        below = np.concatenate([used[:0], *(level.live_below(self.tree) for level in self.levels)])
        mark_ancestors(below, used, [level.keys for level in self.levels], len(self.cells))
        thresholds[~below] = MAX_WEIGHT
        return thresholds


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class Round:
    """Row counts of the nodes of `levels` levels."""

    dimensions: int
    levels: int
    active: I64Array | None
    nodes: I64Array
    rows: I64Array
    row_node: I32Array

    @cached_property
    def ladder(self) -> list[tuple[I64Array, I64Array, I64Array]]:
        """Per level, finest last: keys and rows of the nodes, and the ancestor of each finest node."""
        nodes, rows = self.nodes, self.rows
        ancestors = np.arange(len(nodes))
        ladder: list[tuple[I64Array, I64Array, I64Array]] = []
        for _ in range(self.levels):
            above = nodes >> self.dimensions
            first = np.flatnonzero(np.diff(above, prepend=-1))
            parent = np.repeat(np.arange(len(first)), np.diff(first, append=len(above)))
            code = nodes & ((1 << self.dimensions) - 1)
            ladder.append(((parent << self.dimensions) | code, rows, ancestors))
            nodes, rows, ancestors = above[first], np.add.reduceat(rows, first), parent[ancestors]
        ladder.append((nodes, rows, ancestors))
        return ladder[::-1]

    def lowest_free(self, weights: I32Array, row_cube: I32Array) -> I32Array:
        """Return the minimum weight of the rows without a cube, by node of the round's first level."""
        nodes, _, ancestors = self.ladder[0]
        rows = slice(None) if self.active is None else self.active
        free = row_cube[rows] < 0
        return lowest_by_node(weights[rows][free], ancestors[self.row_node[free]], len(nodes))

    def place(self, weights: I32Array, row_cube: I32Array, paths: list[_Path]) -> None:
        """Write the cubes of the rows that the round's levels take."""
        ancestors = [rung[2] for rung in self.ladder]
        thresholds = [level[above] for above, (level, _) in zip(ancestors, paths, strict=False)]
        places = [above + first for above, (_, first) in zip(ancestors, paths, strict=False)]
        cubes = np.concatenate([*places, np.full(len(self.nodes), -1)]).astype(np.int32)

        def chunk(start: int, stop: int) -> None:
            rows = slice(start, stop) if self.active is None else self.active[start:stop]
            node, weight = self.row_node[start:stop].astype(np.intp), weights[rows]
            # Thresholds never decrease along a branch (format 8.4), so a weight exceeds the thresholds of
            # the first levels only. Their number is the level that takes the row.
            level = np.zeros(stop - start, np.int32)
            for threshold in thresholds:
                level += weight > threshold.take(node)
            level *= len(self.nodes)
            level += node
            before = row_cube[rows]
            row_cube[rows] = np.where(before < 0, cubes.take(level), before)

        map_chunks(chunk, len(self.row_node))

    def has_free_rows(self, row_cube: I32Array) -> BoolArray:
        """Return which of the finest nodes have rows without a cube."""
        free = np.flatnonzero((row_cube if self.active is None else row_cube[self.active]) < 0)
        left: BoolArray = np.bincount(self.row_node[free], minlength=len(self.nodes)) > 0
        return left

    def rows_below(self, kept: BoolArray) -> tuple[I64Array, I32Array]:
        """Return the rows of the kept finest nodes, and the number of each row's node among the kept nodes."""
        here = np.flatnonzero(kept[self.row_node])
        number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        return here if self.active is None else self.active[here], number[self.row_node[here]]


def _count_round(
    cells: list[U32Array], active: I64Array | None, node: I32Array, *, nodes: int, depth: int, levels: int
) -> Round:
    """Count the rows of the nodes `levels` levels below the current ones."""
    dimensions = len(cells)
    spread = _spread(levels, dimensions)
    shift, mask = np.uint32(GRID_BITS - depth - levels), np.uint32((1 << levels) - 1)
    keys = np.empty(len(node), np.int64)

    def chunk(start: int, stop: int) -> None:
        rows = slice(start, stop) if active is None else active[start:stop]
        key = node[start:stop].astype(np.int64)
        key <<= dimensions * levels
        for j, column in enumerate(cells):
            key |= spread.take((column[rows] >> shift) & mask) << (dimensions - 1 - j)
        keys[start:stop] = key

    map_chunks(chunk, len(node))
    nodes_below, rows, row_node = group_keys(keys, nodes << (dimensions * levels))
    return Round(dimensions, levels, active, nodes_below, rows, row_node)


def _spread(levels: int, dimensions: int) -> I64Array:
    """Return all numbers of `levels` bits, with their bits `dimensions` apart."""
    numbers = np.arange(1 << levels)
    spread = np.zeros(1 << levels, np.int64)
    for bit in range(levels):
        spread |= ((numbers >> bit) & 1) << (bit * dimensions)
    return spread


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Nodes with rows in their region, in cube order, as arrays of shape (n,)."""

    depth: int
    # As in `cubes_of_keys`.
    keys: I64Array
    parents_fraction: F64Array
    domains: F64Array
    rows: I64Array
    existing: I64Array
    # Whether the tree has live blocks.
    grows: BoolArray
    chain: I64Array
    open: BoolArray

    def live_below(self, tree: ExistingTree) -> BoolArray:
        """Return which nodes have live blocks below."""
        if self.depth >= len(tree.levels):
            return np.zeros(len(self.rows), np.bool_)
        is_live: BoolArray = self.existing >= 0
        return is_live & tree.levels[self.depth].has_descendants[np.maximum(self.existing, 0)]

    def only(self, kept: I64Array) -> Level:
        """Return the nodes at these positions."""
        return Level(
            depth=self.depth,
            keys=self.keys[kept],
            parents_fraction=self.parents_fraction[kept],
            domains=self.domains[kept],
            rows=self.rows[kept],
            existing=self.existing[kept],
            grows=self.grows[kept],
            chain=self.chain[kept],
            open=self.open[kept],
        )


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
