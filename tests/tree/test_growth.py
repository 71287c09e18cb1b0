"""What filters open, as the choice of optimize estimates it, beside counts of drawn filters and rows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.cubes import Cubes
from qbeast_core.tree.layout.cube_tree import assign_rows
from qbeast_core.tree.layout.existing import existing_tree
from qbeast_core.tree.layout.gain import Axis, Blocks, Gain, box_shares
from qbeast_core.tree.layout.upper import shares_opened, upper_cubes
from tests.tree.batches import pack_files

LOW, LAST = -(2**31), 2**31 - 1


@pytest.mark.parametrize("dimensions", [1, 2, 4])
def test_shares_opened_match_drawn_ranges(dimensions: int) -> None:
    random = np.random.default_rng(dimensions)
    parts = random.integers(1, 9, (5, dimensions))
    # Ranges of a tenth of each axis, and cells drawn from an axis of equal parts.
    begins = random.random((100_000, 1, dimensions)) * 0.9
    cells = np.floor(random.random((100_000, 5, dimensions)) * parts)
    meets = (begins < (cells + 1) / parts) & (begins + 0.1 > cells / parts)
    for columns, opened in enumerate(shares_opened(1 / parts), 1):
        sets = combinations(range(dimensions), columns)
        drawn = [meets[:, :, list(chosen)].all(axis=2).mean(axis=0) for chosen in sets]
        assert opened == pytest.approx(np.mean(drawn, axis=0), abs=0.02)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 90)), min_size=1, max_size=8)
)
def test_axis_shares_match_rows_that_spread_evenly(files: list[tuple[int, int, int]]) -> None:
    low = np.array([min(first, last) for first, last, _ in files], np.float64)
    high = np.array([max(first, last) for first, last, _ in files], np.float64)
    rows = np.array([count for *_, count in files])
    axis = Axis.of(low, high, rows, np.concatenate([low, high]) / 50)
    values = np.concatenate([np.linspace(a, b, 400) for a, b in zip(low, high, strict=True)])
    weights = np.repeat(rows / 400, 400)
    for number in range(len(files)):
        below = weights[values < low[number]].sum() / rows.sum()
        up_to = weights[values <= high[number]].sum() / rows.sum()
        assert axis.lowest[number] == pytest.approx(below, abs=0.02)
        assert axis.highest[number] == pytest.approx(up_to, abs=0.02)


def test_values_beyond_space_widen_last_cube() -> None:
    # Half of the rows have values above the space: their coordinate is 1.
    axis = Axis.of(
        np.array([0.0, 10.0]), np.array([10.0, 20.0]), np.array([50, 50]), np.array([0.0, 1.0, 1.0, 1.0])
    )
    cubes = Cubes(np.array([1, 1], np.uint8), np.array([[0], [1]], np.uint64))
    lower, _, upper = box_shares(cubes, [axis])
    assert (upper - lower).ravel().tolist() == pytest.approx([0.25, 0.75])


def test_tiny_range_counts_as_one_value() -> None:
    low, high = np.array([-0.0, 0.0]), np.array([1.1e-313, 1.0])
    axis = Axis.of(low, high, np.array([20, 60]), np.concatenate([low, high]))
    assert axis.highest.tolist() == pytest.approx([0.25, 1.0])


def files_of(ranges: list[tuple[float, float]], depth: int) -> Gain:
    """Return the gain of files with one leaf each, all in the first cube of a depth, along one dimension."""
    count = len(ranges)
    cubes = Cubes(np.full(count, depth, np.uint8), np.zeros((count, 1), np.uint64))
    low, high = (np.array(side) for side in zip(*ranges, strict=True))
    axis = Axis(np.array([0.0, 1.0]), np.array([0.0, 1.0]), low, high)
    bounds = np.full(count, LOW, np.int32), np.full(count, LAST, np.int32)
    return Gain(Blocks(cubes, *bounds, np.full(count, 40_000), np.arange(count), [axis]), cube_size=30_000)


def test_files_of_successive_days_are_left_alone() -> None:
    every, no = np.ones(8, np.bool_), np.zeros(8, np.bool_)
    days = [(day / 8, (day + 1) / 8) for day in range(8)]
    assert not files_of(days, 0).files_to_restore(every, no, max_rows=1e9).any()
    assert files_of([(0.0, 1.0)] * 8, 0).files_to_restore(every, no, max_rows=1e9).all()


def test_restored_files_fit_maximum_rows() -> None:
    every, no = np.ones(8, np.bool_), np.zeros(8, np.bool_)
    gain = files_of([(0.0, 1.0)] * 8, 0)
    chosen = [
        int(gain.files_to_restore(every, no, max_rows=rows).sum()) for rows in (1, 30_000, 125_000, 1e9)
    ]
    assert chosen == [0, 1, 3, 8]
    assert gain.shares_saved(every).sum() == pytest.approx(1 - (0.1 + 0.9 * 0.5), abs=0.1)


@given(st.integers(1, 400), st.integers(2, 60), st.integers(10, 300), st.integers(0, 99))
def test_upper_file_has_whole_levels_and_no_row_is_lost(
    rows: int, cube_size: int, file_rows: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    cells = [random.integers(0, 2**32, rows, np.uint32) for _ in range(2)]
    placed = assign_rows(cells, random.integers(LOW, LAST, rows, np.int32), cube_size=cube_size)
    first = upper_cubes(placed.cubes, placed.counts, None, file_rows=file_rows)
    packed = pack_files(placed.counts, file_rows=file_rows, first_cubes=first)
    assert packed.file_starts[0] == 0
    assert packed.file_starts[-1] == rows
    assert (np.diff(packed.file_starts) > 0).all()
    assert (
        np.bincount(packed.block_cube, np.diff(packed.block_starts), len(placed.counts)).tolist()
        == placed.counts.tolist()
    )
    if first:
        upper_rows = int(placed.counts[:first].sum())
        assert upper_rows in packed.file_starts.tolist()
        assert 3 * upper_rows <= file_rows
        assert rows > file_rows
        assert placed.cubes.depth[first - 1] < placed.cubes.depth[first]


def test_append_of_few_rows_has_no_upper_file() -> None:
    cubes = Cubes(np.array([0, 1, 1], np.uint8), np.array([[0], [0], [1]], np.uint64))
    counts = np.array([10, 45, 45])
    bounds = {"min_weights": np.full(3, LOW, np.int32), "max_weights": np.full(3, LAST, np.int32)}
    tree = existing_tree(cubes, element_counts=np.array([100, 450, 450]), **bounds)
    assert upper_cubes(cubes, counts, tree, file_rows=90) == 0
    assert upper_cubes(cubes, counts, None, file_rows=90) == 1
