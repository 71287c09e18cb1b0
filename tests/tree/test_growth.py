"""What filters open, as the choice of optimize estimates it, beside counts of drawn filters and rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.cubes import Cubes
from qbeast_core.space.values import BoolArray
from qbeast_core.tree.build import assign_rows, existing_tree
from qbeast_core.tree.files import upper_cubes
from qbeast_core.tree.pages import Axis, Boxes, Gain
from tests.tree.batches import pack_files

LOW, LAST = -(2**31), 2**31 - 1


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 90)), min_size=1, max_size=8)
)
def test_axis_shares_match_rows_that_spread_evenly(files: list[tuple[int, int, int]]) -> None:
    low = np.array([min(first, last) for first, last, _ in files], np.float64)
    high = np.array([max(first, last) for first, last, _ in files], np.float64)
    rows = np.array([count for *_, count in files])
    axis = Axis.of(low, high, rows)
    values = np.concatenate([np.linspace(a, b, 400) for a, b in zip(low, high, strict=True)])
    weights = np.repeat(rows / 400, 400)
    for number in range(len(files)):
        below = weights[values < low[number]].sum() / rows.sum()
        up_to = weights[values <= high[number]].sum() / rows.sum()
        assert axis.lowest[number] == pytest.approx(below, abs=0.02)
        assert axis.highest[number] == pytest.approx(up_to, abs=0.02)


def test_tiny_range_counts_as_one_value() -> None:
    low, high = np.array([-0.0, 0.0]), np.array([1.1e-313, 1.0])
    axis = Axis.of(low, high, np.array([20, 60]))
    assert axis.highest.tolist() == pytest.approx([0.25, 1.0])


GAIN = Gain(table_rows=1_000_000, importance=(1.0, 1.0), file_rows=400_000)
SIZES = (300, 5_000, 20_000, 90_000, 400_000)


def boxes_of(writes: list[tuple[float, float, int]], *, files: int = 1) -> Boxes:
    """Return boxes that have all values of the second of two columns."""
    low, high, rows = (np.array(values, np.float64) for values in zip(*writes, strict=True))
    return Boxes(
        np.column_stack([low, np.zeros_like(low)]),
        np.column_stack([high, np.ones_like(low)]),
        rows,
        np.full(len(rows), float(files)),
    )


@st.composite
def written(draw: st.DrawFn) -> tuple[Boxes, BoolArray]:
    at, writes = 0.0, list[tuple[float, float, int]]()
    for _ in range(draw(st.integers(2, 6))):
        width = draw(st.sampled_from([0.02, 0.1, 1.0]))
        low = min(at, 1 - width)
        writes.append((low, low + width, draw(st.sampled_from(SIZES))))
        at = draw(st.sampled_from([at, at + width])) % 1
    is_free = draw(st.lists(st.booleans(), min_size=len(writes), max_size=len(writes)))
    return boxes_of(writes), np.array(is_free)


def saved(boxes: Boxes, run: Sequence[int], is_free: BoolArray) -> float | None:
    """Return what it saves to write boxes together; None: it must not be done."""
    rows, largest = boxes.rows[run].sum(), max((boxes.rows[at] for at in run if not is_free[at]), default=0.0)
    files = np.array([max(1.0, np.ceil(rows / GAIN.file_rows))])
    union = Boxes(
        boxes.lowest[run].min(axis=0)[None], boxes.highest[run].max(axis=0)[None], np.array([rows]), files
    )
    ratios = GAIN.opened(union)[:, 0] / GAIN.opened(boxes)[:, run].sum(axis=1)
    value = -float(np.mean(np.log(ratios))) * rows
    moved = sum(boxes.rows[at] for at in run if not is_free[at])
    allowed = ratios.max() <= 1.6 and 2 * largest <= rows and value >= -np.log(0.88) * moved
    return value if allowed and value > 0 else None


def best_of(boxes: Boxes, order: list[int], is_free: BoolArray) -> float:
    """Return what the best division of an order into runs saves, by trying all."""
    best = 0.0
    for cuts in range(1 << (len(order) - 1)):
        ends = [at + 1 for at in range(len(order) - 1) if cuts >> at & 1] + [len(order)]
        runs = [order[first:last] for first, last in pairwise([0, *ends])]
        best = max(best, sum(saved(boxes, run, is_free) or 0.0 for run in runs if len(run) > 1))
    return best


@given(written())
def test_joined_writes_save_most_of_all_divisions(drawn: tuple[Boxes, BoolArray]) -> None:
    boxes, is_free = drawn
    chosen = GAIN.joined(boxes, is_free)
    assert len(np.concatenate([*chosen, np.zeros(0, int)])) == len({*np.concatenate([*chosen, []]).tolist()})
    each = [saved(boxes, run.tolist(), is_free) for run in chosen]
    assert None not in each
    middles = boxes.lowest[:, 0] + boxes.highest[:, 0]
    orders = [np.argsort(key, kind="stable").tolist() for key in (middles, boxes.rows)]
    assert sum(value or 0 for value in each) == pytest.approx(
        max(best_of(boxes, order, is_free) for order in orders)
    )


@pytest.mark.parametrize(("low", "high", "rows"), [(0.0, 1.0, 40_000), (0.3, 0.5, 300_000)])
def test_shares_match_filters_on_pages(low: float, high: float, rows: int) -> None:
    # Pages of the largest band, which divide a box along both columns.
    parts = round(np.sqrt(0.12 * rows / 224))
    edges = np.linspace(low, high, parts + 1)
    begins = np.random.default_rng(0).uniform(low - 1 / 30, high, 20_000)[:, None]
    meets = ((begins < edges[1:]) & (begins + 1 / 30 > edges[:-1])).mean()
    # A filter meets the box with this probability; then it opens that share of it.
    drawn = meets * (high - low + 1 / 30)
    assert GAIN.sides(boxes_of([(low, high, rows)]))[0, 0] + 1 / 30 == pytest.approx(drawn, rel=0.1)


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
