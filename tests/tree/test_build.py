"""The level loop against the row-by-row tree, and the invariants of format 8 under appends."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.tree.files import rows_by_file
from qbeast_core.tree.grid import file_order, grid
from tests.helpers.examples import examples
from tests.helpers.small_files import resized
from tests.tree.batches import (
    MAX,
    MIN,
    assign,
    batches,
    live_blocks,
    misplaced,
    pack_files,
    tree_of,
)
from tests.tree.reference import build


@examples(15, sweep=1000)
@given(batches(), st.integers(1, 20))
def test_new_tree_equals_row_by_row_tree(batch, cube_size):
    d, points, weights = batch
    actual = assign(d, points, weights, cube_size)
    expected = build(points, weights, cube_size)
    cubes = actual.cubes
    got = {
        (int(cubes.depth[i]), tuple(cubes.cells[i].tolist())): (
            int(actual.thresholds[i]),
            sorted(np.flatnonzero(actual.row_cube == i).tolist()),
        )
        for i in range(len(actual.counts))
    }
    assert got == {(n.depth, n.cells): (n.threshold, sorted(n.taken)) for n in expected}


@examples(15, sweep=1000)
@given(batches(), st.integers(1, 5))
def test_cubes_follow_file_order_and_count_rows(batch, cube_size):
    d, points, weights = batch
    actual = assign(d, points, weights, cube_size)
    assert actual.counts.sum() == len(weights)
    assert np.array_equal(np.bincount(actual.row_cube, minlength=len(actual.counts)), actual.counts)
    assert file_order(actual.cubes).tolist() == list(range(len(actual.counts)))


@examples(12, sweep=1000)
@given(st.integers(1, 3), st.integers(1, 12), st.sampled_from([0, 1, 5]), st.data())
def test_appends_lose_no_row_and_keep_order(d, cube_size, smallest, data):
    blocks: list = []
    for _ in range(data.draw(st.integers(1, 4))):
        _, points, weights = data.draw(batches(dimensions=d, max_rows=40))
        # 8.3 speaks of weights below the least one too: no block can lie above a threshold it equals.
        weights = [max(w, MIN + 1) for w in weights]
        actual = assign(
            d, points, weights, cube_size, tree_of(blocks, d) if blocks else None, smallest=smallest
        )
        assert actual.counts.sum() == len(weights)
        new = live_blocks(actual, weights)
        for (depth, cells, *_), i in zip(new, range(len(new)), strict=True):
            for row in np.flatnonzero(actual.row_cube == i):
                assert tuple(int(g) >> (32 - depth) for g in grid(np.array(points[row]))) == cells
                assert weights[row] <= actual.thresholds[i]
        assert all(low <= high for _, _, low, high, _ in new)
        assert misplaced(blocks + new) <= misplaced(blocks)  # what a delete broke stays, nothing is added
        blocks += new
        if data.draw(st.booleans()) and blocks:  # a file of one block is deleted
            blocks.pop(data.draw(st.integers(0, len(blocks) - 1)))


def test_small_append_stays_in_few_blocks():
    rng = np.random.default_rng(1)
    points, weights = rng.random((20_000, 2)), rng.integers(MIN, MAX, 20_000)
    first = assign(2, points, weights, 100)
    tree = tree_of(live_blocks(first, weights), 2)
    more, later = rng.random((200, 2)), rng.integers(MIN, MAX, 200)
    assert len(assign(2, more, later, 100, tree).counts) > 50
    assert len(assign(2, more, later, 100, tree, smallest=256).counts) == 1


def test_domains_of_live_tree_sum_from_leaves():
    blocks = [(0, (0,), MIN, 0, 10), (1, (0,), 1, MAX, 30), (1, (1,), 1, MAX, 20)]
    tree = tree_of(blocks, 1)
    assert tree.levels[0].domains.tolist() == [60.0]
    assert tree.levels[1].domains.tolist() == [36.0, 24.0]
    assert tree.cube_count == 3


@pytest.mark.parametrize("cube_size", [1, 3, 1000])
def test_equal_keys_make_one_block(cube_size):
    actual = assign(2, [(0.3, 0.3)] * 500, [7] * 500, cube_size)
    assert actual.counts.tolist() == [500]


def test_inseparable_rows_end_in_bounded_leaf():
    rng = np.random.default_rng(2)
    weights = rng.integers(MIN, MAX, 5000)
    actual = assign(1, [(0.3,)] * 5000, weights, 10)
    assert actual.counts.sum() == 5000
    assert actual.cubes.depth.max() <= 17
    assert actual.thresholds[-1] == MAX


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 60))
def test_files_hold_rows_once_and_whole_blocks(counts, file_rows):
    packed = pack_files(np.array(counts, np.int64), file_rows=file_rows)
    rows = sum(counts)
    assert packed.file_starts[0] == 0
    assert packed.file_starts[-1] == rows
    assert (np.diff(packed.file_starts) > 0).all()
    assert np.diff(packed.file_starts).max(initial=0) <= 2 * file_rows + 2
    assert set(packed.file_starts) <= set(packed.block_starts)
    assert np.array_equal(packed.block_starts[packed.file_first_block], packed.file_starts)
    rows_held = np.zeros(len(counts), np.int64)
    np.add.at(rows_held, packed.block_cube, np.diff(packed.block_starts))
    assert rows_held.tolist() == counts


@pytest.mark.parametrize("files", [1, 1 << 16])
@pytest.mark.parametrize("chunk_rows", [64, 1 << 16])
@pytest.mark.parametrize("file_rows", [50, 700, 10_000])
def test_files_hold_rows_of_their_cubes(file_rows, chunk_rows, files):
    rng = np.random.default_rng(3)
    weights = rng.integers(MIN, MAX, 3000).astype(np.int32)
    weights[:200] = 5
    actual = assign(2, rng.random((3000, 2)), weights, 100)
    packed = pack_files(actual.counts, file_rows=file_rows)
    # Rows that are sorted by file at once, at least, and files whose numbers have 16 bits.
    with resized(chunk_rows=chunk_rows, max_counted_files=files):
        by_file = rows_by_file(actual, packed, weights)
    held = np.repeat(packed.block_cube, np.diff(packed.block_starts))
    for start, stop in pairwise(packed.file_starts):
        rows = by_file[start:stop]
        assert (np.diff(rows.astype(np.int64)) > 0).all()
        assert np.sort(actual.row_cube[rows]).tolist() == held[start:stop].tolist()
    assert sorted(by_file.tolist()) == list(range(3000))
