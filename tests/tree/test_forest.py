"""A forest of one tree per partition, beside each tree by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.cubes import Cubes
from qbeast_core.table.engine.distributed import draw_outline
from qbeast_core.tree.build import Assignment, ExistingTree, assign_rows, broken_order, existing_tree
from qbeast_core.tree.files import pack_cubes
from qbeast_core.tree.grid import grid
from qbeast_core.tree.summary import NO_PARTITIONS
from tests.helpers.examples import examples
from tests.tree.batches import batches, misplaced

_TREES = 4


class Rows:
    """Rows of several trees."""

    def __init__(self, batch, trees) -> None:
        d, points, weights = batch
        table = np.array(points, np.float64).reshape(-1, d)
        self.cells = [grid(table[:, j]) for j in range(d)]
        self.weights = np.array(weights, np.int32)
        self.trees = np.array(trees, np.int64)

    def of(self, tree) -> tuple:
        mine = self.trees == tree
        return [cells[mine] for cells in self.cells], self.weights[mine]


@st.composite
def rows_of_trees(draw, dimensions=None):
    batch = draw(batches(dimensions, max_rows=30))
    trees = draw(st.lists(st.integers(0, _TREES - 1), min_size=len(batch[1]), max_size=len(batch[1])))
    return Rows(batch, trees)


def blocks_of(found: Assignment, weights) -> list[tuple]:
    """(tree, depth, cells, min, max, rows) of each cube."""
    trees = np.zeros(len(found.counts), np.int64) if found.cubes.trees is None else found.cubes.trees
    lows = [int(weights[found.row_cube == cube].min()) for cube in range(len(found.counts))]
    return [
        (tree, depth, tuple(cells), low, high, rows)
        for tree, depth, cells, low, high, rows in zip(
            trees.tolist(),
            found.cubes.depth.tolist(),
            found.cubes.cells.tolist(),
            lows,
            found.thresholds.tolist(),
            found.counts.tolist(),
            strict=True,
        )
    ]


def columns_of(blocks, d) -> dict:
    return {
        "cubes": Cubes(
            np.array([block[1] for block in blocks], np.uint8),
            np.array([block[2] for block in blocks], np.uint64).reshape(-1, d),
            np.array([block[0] for block in blocks], np.int64),
        ),
        "min_weights": np.array([block[3] for block in blocks], np.int32),
        "max_weights": np.array([block[4] for block in blocks], np.int32),
    }


def forest_of(blocks, d) -> ExistingTree:
    counts = np.array([block[5] for block in blocks], np.int64)
    return existing_tree(**columns_of(blocks, d), element_counts=counts)


def alone(rows: Rows, cube_size, live, smallest) -> list[tuple]:
    """The blocks that each tree makes of its own rows."""
    found = []
    for tree in range(_TREES):
        cells, weights = rows.of(tree)
        mine = [(0, *block[1:]) for block in live if block[0] == tree]
        own = assign_rows(
            cells,
            weights,
            cube_size=cube_size,
            existing=forest_of(mine, len(cells)),
            smallest_block_rows=smallest,
        )
        found += [(tree, *block[1:]) for block in blocks_of(own, weights)]
    return found


def together(rows: Rows, cube_size, live, smallest) -> Assignment:
    return assign_rows(
        rows.cells,
        rows.weights,
        cube_size=cube_size,
        existing=forest_of(live, len(rows.cells)),
        smallest_block_rows=smallest,
        trees=rows.trees,
    )


@examples(8, sweep=500)
@given(st.data(), st.integers(1, 3), st.integers(1, 15), st.integers(0, 3))
def test_each_tree_grows_as_if_alone(data, dimensions, cube_size, smallest):
    live: list[tuple] = []
    for _ in range(3):
        rows = data.draw(rows_of_trees(dimensions))
        found = together(rows, cube_size, live, smallest)
        new = blocks_of(found, rows.weights)
        assert new == alone(rows, cube_size, live, smallest)
        live += new
    for tree in range(_TREES):
        mine = [block[1:] for block in live if block[0] == tree]
        assert not misplaced(mine)


@examples(8, sweep=500)
@given(rows_of_trees(), st.integers(1, 15), st.integers(1, 20))
def test_files_have_rows_of_one_tree(rows, cube_size, file_rows):
    found = together(rows, cube_size, [], 0)
    packed = pack_cubes(found.cubes, found.counts, None, file_rows=file_rows)
    assert packed.file_starts[-1] == len(rows.weights)
    trees = np.zeros(len(found.counts), np.int64) if found.cubes.trees is None else found.cubes.trees
    of_rows = np.repeat(trees, found.counts)
    for first, last in pairwise(packed.file_starts):
        assert len(set(of_rows[first:last])) == 1
    expected = {0}
    for tree in set(trees.tolist()):
        mine = np.flatnonzero(trees == tree)
        one = Cubes(found.cubes.depth[mine], found.cubes.cells[mine])
        starts = pack_cubes(one, found.counts[mine], None, file_rows=file_rows).file_starts
        expected.update((starts + np.searchsorted(of_rows, tree)).tolist())
    assert packed.file_starts.tolist() == sorted(expected)


@examples(8, sweep=500)
@given(rows_of_trees(), st.integers(1, 15))
def test_outline_of_all_rows_places_them_alike(rows, cube_size):
    found = together(rows, cube_size, [], 0)
    outline = draw_outline(
        rows.cells, rows.weights, rows_each=1.0, cube_size=cube_size, trees=rows.trees, tree_count=_TREES
    )
    nodes = outline.place(rows.cells, rows.weights, rows.trees)
    cubes = outline.cubes.at(nodes)
    placed = found.cubes.at(found.row_cube.astype(np.int64))
    assert cubes.depth.tolist() == placed.depth.tolist()
    assert cubes.cells.tolist() == placed.cells.tolist()
    assert outline.cubes.trees is not None
    assert outline.cubes.trees[nodes].tolist() == rows.trees.tolist()
    order = np.argsort(outline.places_in_files[nodes], kind="stable")
    assert (np.diff(rows.trees[order]) >= 0).all()
    assert outline.cubes.trees[:_TREES].tolist() == list(range(_TREES))


@examples(8, sweep=500)
@given(st.data(), st.integers(1, 3))
def test_order_is_broken_within_a_tree_alone(data, dimensions):
    blocks = []
    for tree in range(_TREES):
        rows = data.draw(rows_of_trees(dimensions))
        blocks += [(tree, *block[1:]) for block in blocks_of(together(rows, 2, [], 0), rows.weights)]
    for tree in range(_TREES):
        mine = [number for number, block in enumerate(blocks) if block[0] == tree]
        own = broken_order(**columns_of([blocks[number] for number in mine], dimensions))
        found = broken_order(**columns_of(blocks, dimensions)).filter(pl.col("block").is_in(mine))
        assert sorted(mine[block] for block in own["block"]) == sorted(found["block"])


def test_missing_values_equal_themselves():
    rows = pl.DataFrame(
        {"f": [0.0, -0.0, float("nan"), None, float("nan"), None], "t": ["", None, "a", "", "a", "b"]}
    )
    partitions = NO_PARTITIONS.with_rows(rows)
    numbers = partitions.numbers(rows)
    assert numbers is not None
    assert numbers[0] == numbers[1]
    assert numbers[2] == numbers[4]
    assert partitions.tree_count == 4
    more = partitions.with_rows(pl.DataFrame({"f": [1.0, None], "t": ["a", "b"]}))
    assert more.values[:4].equals(partitions.values)
    assert more.tree_count == 5
