"""A tree drawn from a sample: every row has a place, and format 8 holds wherever the sample did not look."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.table.engine.distributed import draw_outline
from qbeast_core.tree.grid import grid
from tests.helpers.examples import examples
from tests.tree.batches import MAX, MIN, assign, batches, live_blocks, misplaced, tree_of


def table(d, points):
    values = np.array(points, np.float64).reshape(-1, d)
    return [grid(values[:, j]) for j in range(d)]


def outline_blocks(outline, cells, weights):
    """(depth, cells, min, max, count) per cube, nameless leaves included, as a writer would log them."""
    node = outline.place(cells, weights)
    beyond = weights > outline.thresholds[node]
    nodes = len(outline.thresholds)
    used = np.bincount(node[~beyond], minlength=nodes) > 0
    below = np.bincount(node[beyond], minlength=nodes) > 0
    highest = outline.max_weights(used, below)
    blocks: dict = {}
    for row in range(len(weights)):
        depth = int(outline.cubes.depth[node[row]]) + bool(beyond[row])
        cube = tuple(int(column[row]) >> (32 - depth) for column in cells)
        if not beyond[row]:
            assert cube == tuple(outline.cubes.cells[node[row]].tolist())
        high = MAX if beyond[row] else int(highest[node[row]])
        assert weights[row] <= high
        low, _, count = blocks.get((depth, cube), (MAX, high, 0))
        blocks[depth, cube] = (min(low, int(weights[row])), high, count + 1)
    return [(depth, cube, low, high, count) for (depth, cube), (low, high, count) in blocks.items()]


@examples(15, sweep=1000)
@given(batches(), st.integers(1, 20))
def test_complete_sample_gives_the_complete_tree(batch, cube_size):
    d, points, weights = batch
    weights = np.array(weights, np.int32)
    cells = table(d, points)
    outline = draw_outline(cells, weights, rows_each=1.0, cube_size=cube_size)
    actual = assign(d, points, weights, cube_size)
    assert sorted(outline_blocks(outline, cells, weights)) == sorted(live_blocks(actual, weights))
    rows_held = outline.nodes_in_files[np.isin(outline.nodes_in_files, outline.place(cells, weights))]
    assert outline.cubes.cells[rows_held].tolist() == actual.cubes.cells.tolist()
    assert outline.cubes.depth[rows_held].tolist() == actual.cubes.depth.tolist()


@examples(15, sweep=1000)
@given(st.integers(1, 3), st.integers(1, 12), st.sampled_from([0, 1, 5]), st.data())
def test_appends_by_sampled_trees_keep_order(d, cube_size, smallest, data):
    blocks: list = []
    for _ in range(data.draw(st.integers(1, 4))):
        _, points, weights = data.draw(batches(dimensions=d, max_rows=40))
        weights = np.array([max(w, MIN + 1) for w in weights], np.int32)
        cells = table(d, points)
        share = data.draw(st.sampled_from([1, 2, 5]))
        outline = draw_outline(
            [column[::share] for column in cells],
            weights[::share],
            rows_each=float(share),
            cube_size=cube_size,
            existing=tree_of(blocks, d) if blocks else None,
            smallest_block_rows=smallest,
        )
        new = outline_blocks(outline, cells, weights)
        assert sum(count for *_, count in new) == len(weights)
        assert misplaced(blocks + new) <= misplaced(blocks)
        blocks += new
        if data.draw(st.booleans()) and blocks:
            blocks.pop(data.draw(st.integers(0, len(blocks) - 1)))


def test_cubes_from_sampled_rows_have_similar_size():
    rng = np.random.default_rng(4)
    points, weights = rng.random((40_000, 2)), rng.integers(MIN, MAX, 40_000).astype(np.int32)
    cells = table(2, points)
    outline = draw_outline([column[::5] for column in cells], weights[::5], rows_each=5.0, cube_size=400)
    counts = [count for *_, count in outline_blocks(outline, cells, weights)]
    exact = assign(2, points, weights, 400).counts
    assert abs(len(counts) - len(exact)) <= 0.1 * len(exact)
    assert max(counts) <= 1.3 * exact.max()


def test_empty_outline_is_one_leaf():
    outline = draw_outline([np.zeros(0, np.uint32)], np.zeros(0, np.int32), rows_each=1.0, cube_size=5)
    assert outline.thresholds.tolist() == [MAX]
    assert outline.place([np.zeros(3, np.uint32)], np.arange(3, dtype=np.int32)).tolist() == [0, 0, 0]
