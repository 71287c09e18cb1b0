"""Bands of a file are ranges of weights, and its pages boxes in space."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.coordinates import step_edges
from qbeast_core.space.values import sample_values
from qbeast_core.tree.keys import HeavyKeys, keys_of_file
from qbeast_core.tree.pages import Arrangement, Grain, arrange, kd_order, page_cells, ranks
from tests.helpers.examples import examples

LOW, END = -(2**31), 2**31
CELLS = 2**32
KINDS = ("even", "few", "one", "skewed")


@dataclass(frozen=True)
class File:
    weights: np.ndarray
    cells: list[np.ndarray]
    arranged: Arrangement
    min_band_rows: int

    def bands(self) -> list[np.ndarray]:
        """The weights of each band."""
        ends = np.cumsum(self.arranged.shape.band_rows)
        return np.split(self.weights[self.arranged.order], ends[:-1])

    def pages(self) -> list[np.ndarray]:
        """The rows of each page, as numbers of the input."""
        return np.split(self.arranged.order, self.arranged.shape.page_starts()[1:])


def grain(page_rows: int, min_band_rows: int, few_rows: int = 0) -> Grain:
    return Grain(page_rows, min_page_rows=page_rows, min_band_rows=min_band_rows, few_rows=few_rows)


def column(random: np.random.Generator, kind: str, rows: int) -> np.ndarray:
    if kind == "few":
        return random.choice(random.integers(0, CELLS, 3, np.uint32), rows)
    if kind == "one":
        return np.full(rows, random.integers(0, CELLS, dtype=np.uint32))
    if kind == "skewed":
        return (2.0 ** random.uniform(0, 32, rows)).astype(np.uint32)
    return random.integers(0, CELLS, rows, np.uint32)


@st.composite
def files(draw: st.DrawFn) -> File:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    light, lowest = draw(st.integers(0, 200)), draw(st.sampled_from([LOW, 0, END - 5]))
    heavy = draw(st.lists(st.integers(1, 90), min_size=0 if light else 1, max_size=4))
    keys = random.integers(lowest, END, len(heavy))
    weights = np.concatenate([random.integers(lowest, END, light), np.repeat(keys, heavy)]).astype(np.int32)
    random.shuffle(weights)
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=3))
    cells = [column(random, kind, len(weights)) for kind in kinds]
    min_band_rows, page_rows = draw(st.sampled_from([1, 10, 30, 60])), draw(st.integers(1, 20))
    sizes = grain(page_rows, min_band_rows, draw(st.sampled_from([0, 100, 1000])))
    return File(weights, cells, arrange(weights, cells, sizes), min_band_rows)


@examples(15, sweep=1000)
@given(files())
def test_file_has_each_row_once(file: File) -> None:
    assert np.sort(file.arranged.order).tolist() == list(range(len(file.weights)))
    assert file.arranged.shape.band_rows.sum() == len(file.weights)


@examples(15, sweep=1000)
@given(files())
def test_bands_are_successive_ranges_of_weights(file: File) -> None:
    bands = file.bands()
    assert [band.min() for band in bands] == file.arranged.shape.first_weights.tolist()
    assert all(low.max() < high.min() for low, high in pairwise(bands))
    assert len(bands) == 1 or min(map(len, bands)) >= file.min_band_rows


@examples(15, sweep=1000)
@given(files())
def test_pages_of_a_band_have_equal_rows(file: File) -> None:
    sizes, at = list(map(len, file.pages())), 0
    for rows, page_rows in zip(file.arranged.shape.band_rows, file.arranged.shape.page_rows, strict=True):
        count = -(-int(rows) // int(page_rows))
        *whole, last = sizes[at : at + count]
        assert set(whole) <= {page_rows}
        assert sum(whole) + last == rows
        at += count
    assert at == len(sizes) == file.arranged.shape.pages


@examples(15, sweep=1000)
@given(files())
def test_boxes_of_pages_are_tight(file: File) -> None:
    arranged = [cells[file.arranged.order] for cells in file.cells]
    layout = file.arranged.shape.layout(arranged, tail_bytes=9, hidden_weights=True)
    assert layout.fits(len(file.weights), len(file.cells))
    boxes = page_cells(layout) if file.cells else []
    for cells, steps, (lower, upper) in zip(file.cells, layout.box, boxes, strict=True):
        assert len(steps) == 17 or steps[1] <= np.ptp(cells) // 256 + 1
        edges = step_edges(steps)
        low, high = (np.array([end(cells[page]) for page in file.pages()]) for end in (np.min, np.max))
        assert lower.tolist() == [edges[edges <= cell].max() for cell in low]
        assert (upper + 1).tolist() == [edges[edges > cell].min() for cell in high]


@examples(15, sweep=1000)
@given(files())
def test_rows_of_heavy_keys_follow_each_other(file: File) -> None:
    heavy = keys_of_file(file.weights[file.arranged.order], is_scattered=False)[1]
    assert heavy.weights.tolist() == HeavyKeys.of(np.sort(file.weights), together=True).weights.tolist()
    assert (heavy.firsts >= 0).all()
    for page in file.pages():  # the order of the input compresses best
        light = page[~np.isin(file.weights[page], heavy.weights)]
        assert (np.diff(light) > 0).all()


def test_rows_of_heavy_key_are_shuffled() -> None:
    """Means of stretches of rows that came in the order of their values vary as those of random rows do."""
    rows, length = 40_000, 500
    order = arrange(np.full(rows, 7, np.int32), [np.zeros(rows, np.uint32)], grain(100, 1)).order
    means = (order / rows).reshape(-1, length).mean(axis=1)
    assert abs(means - 0.5).max() < 4.5 * (1 / 12 / length) ** 0.5


def test_scattered_rows_of_a_key_stay_in_place() -> None:
    random = np.random.default_rng(1)
    weights, cells = np.full(4_000, 7, np.int32), random.integers(0, CELLS, 4_000, np.uint32)
    arranged = arrange(weights, [cells], grain(100, 1), is_scattered=True)
    firsts = [cells[page].min() for page in np.split(arranged.order, arranged.shape.page_starts()[1:])]
    assert firsts == sorted(firsts)


def test_samples_read_few_rows_besides_their_own() -> None:
    weights = np.random.default_rng(2).integers(LOW, END, 20_000).astype(np.int32)
    shape = arrange(weights, [], grain(10, 50)).shape
    for fraction in (0.01, 0.03, 0.1, 0.25, 0.6):
        limit = LOW + fraction * 2**32
        read, sampled = shape.band_rows[shape.first_weights < limit].sum(), (weights < limit).sum()
        assert sampled <= read <= 1.6 * sampled


DIGITS = (1, 1.3, 1.65, 2, 2.7, 3.7, 5, 6.4, 8)


@examples(5, sweep=300)
@given(st.sampled_from(DIGITS), st.integers(1, 3), st.integers(20_000, 60_000), st.integers(0, 999))
def test_stored_columns_select_the_bands_of_round_samples(
    digits: float, power: int, rows: int, seed: int
) -> None:
    """An engine reads a band by 16 bits of its smallest weight, as if it saw all 32."""
    fraction = digits / 10**power
    weights = np.random.default_rng(seed).integers(LOW, END, rows).astype(np.int32)
    firsts = arrange(weights, [], grain(10, 50)).shape.first_weights
    limit = int(fraction * (2**32 - 1) - 2**31)
    assert ((firsts >> 16 <= (limit - 1) >> 16) == (firsts < limit)).all()
    assert ((sample_values(firsts) < fraction) == (firsts < limit)).all()


def test_small_samples_of_dense_weights_read_their_own_rows() -> None:
    """Where thousands of rows have equal 16 bits, bands begin at fractions between them too."""
    weights = np.random.default_rng(8).integers(LOW, LOW + 2**20, 100_000).astype(np.int32)
    shape = arrange(weights, [], grain(10, 50)).shape
    for fraction in (1e-6, 1e-5, 2e-5, 1e-4, 2e-4):
        limit = LOW + fraction * 2**32
        assert shape.band_rows[shape.first_weights < limit].sum() <= 1.01 * (weights < limit).sum() + 50


def bands_of(weights: np.ndarray, few_rows: int) -> int:
    return len(arrange(weights, [], grain(10, 50, few_rows)).shape.band_rows)


def test_files_of_few_rows_have_fewer_bands() -> None:
    weights = np.random.default_rng(4).integers(LOW, END, 20_000).astype(np.int32)
    shape = arrange(weights, [], grain(10, 50, 22_000)).shape
    assert len(shape.band_rows) < 0.75 * bands_of(weights, 20_000 - 1)
    for fraction in (
        0.01,
        0.011,
        0.05,
        0.101,
        0.28,
        0.51,
    ):  # at the fractions that users request, or just above
        limit = LOW + fraction * 2**32
        read, sampled = shape.band_rows[shape.first_weights < limit].sum(), (weights < limit).sum()
        assert sampled <= read <= 2 * sampled


def test_small_weights_of_a_large_file_count_as_one() -> None:
    weights = (
        np.random.default_rng(5).integers(LOW, LOW + END // 10, 4_000).astype(np.int32)
    )  # a twentieth of all
    counts = {few_rows: bands_of(weights, few_rows) for few_rows in (0, 4_000, 60_000, 100_000)}
    assert counts[0] == counts[4_000] == counts[60_000] > 1.4 * counts[100_000]
    large = np.random.default_rng(6).integers(0, END, 4_000).astype(np.int32)
    assert bands_of(large, 3_999) > bands_of(large, 4_000)


def test_rows_too_few_for_two_bands_stay_together() -> None:
    weights = np.random.default_rng(3).integers(LOW, END, 400).astype(np.int32)
    bands = [arrange(weights[:rows], [], grain(10, 50)).shape.band_rows for rows in range(1, 401, 20)]
    assert min(rows.min() for rows in bands if len(rows) > 1) >= 50
    assert {len(rows) for rows in bands} >= {1, 2, 3}


def even(dimensions: int) -> list[np.ndarray]:
    """Cells of 64 pages of 64 rows."""
    random = np.random.default_rng(dimensions)
    return [random.integers(0, CELLS, 4096, np.uint32) for _ in range(dimensions)]


def extents(order: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """The width of 64 pages as a share of all cells."""
    return np.ptp(cells[order].reshape(64, 64).astype(np.int64), axis=1) / CELLS


def test_pages_are_narrow_along_every_column() -> None:
    cells = even(3)
    order = kd_order([ranks(part) for part in cells], 64, [1, 1, 1])
    for part in cells:  # 4 * 4 * 4 pages, where pages in order of weights are all as wide as the file
        assert extents(order, part).mean() < 0.3
        assert extents(np.arange(4096), part).mean() > 0.9


def test_important_columns_are_split_more_often() -> None:
    cells = even(2)
    order = kd_order([ranks(part) for part in cells], 64, [1, 4])
    assert extents(order, cells[1]).mean() < extents(order, cells[0]).mean() / 2


def test_column_of_few_values_is_split_between_them_alone() -> None:
    halves, (others,) = np.repeat(np.array([7, 9], np.uint32), 2048), even(1)
    order = kd_order([ranks(halves), ranks(others)], 64, [4, 1])
    assert (extents(order, halves) == 0).all()
    assert extents(order, others).max() < 2 / 32


def naive_order(
    rows: np.ndarray, columns: list[np.ndarray], page_rows: int, importance: list[int]
) -> np.ndarray:
    """The rows in the order of a k-d tree, one node after the other."""
    pages = -(-len(rows) // page_rows)
    extents = [int(np.ptp(part[rows].astype(np.int64))) * importance[at] for at, part in enumerate(columns)]
    widest = int(np.argmax(extents))
    if pages < 2 or not extents[widest]:
        return rows
    ordered = rows[np.lexsort((rows, columns[widest][rows]))]
    halves = np.split(ordered, [pages // 2 * page_rows])
    return np.concatenate([naive_order(half, columns, page_rows, importance) for half in halves])


@examples(10, sweep=500)
@given(st.data())
def test_pages_are_leaves_of_a_naive_tree(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 300) | st.integers(1_000, 5_000))
    page_rows, seed = data.draw(st.integers(1, 20) | st.integers(100, 600)), data.draw(st.integers(0, 999))
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    importance = data.draw(st.lists(st.integers(1, 4), min_size=len(kinds), max_size=len(kinds)))
    random = np.random.default_rng(seed)
    columns = [ranks(column(random, kind, rows)) for kind in kinds]
    actual = kd_order(columns, page_rows, importance)
    expected = naive_order(np.arange(rows), columns, page_rows, importance)
    assert np.array_equal(np.sort(actual), np.arange(rows))
    starts = np.arange(0, rows, page_rows)
    for part in columns:
        for end in (np.minimum, np.maximum):
            assert np.array_equal(end.reduceat(part[actual], starts), end.reduceat(part[expected], starts))


@examples(15, sweep=1000)
@given(st.sampled_from(KINDS), st.integers(1, 300) | st.integers(4_000, 6_000), st.integers(0, 999))
def test_ranks_are_shares_of_rows_before(kind: str, rows: int, seed: int) -> None:
    cells = column(np.random.default_rng(seed), kind, rows)
    actual = ranks(cells).astype(np.int64)
    order = np.argsort(cells, kind="stable")
    assert (np.diff(actual[order]) >= 0).all()
    assert (actual <= np.searchsorted(cells[order], cells) * 2**16 / rows).all()
    is_equal = np.diff(cells[order].astype(np.int64)) == 0
    assert (np.diff(actual[order])[is_equal] == 0).all()


def test_crowded_values_have_ranks_of_their_own() -> None:
    crowd = np.repeat(np.arange(100, dtype=np.uint32), 100)
    cells = np.concatenate([crowd, np.array([CELLS - 1], np.uint32)])
    assert len(np.unique(ranks(cells))) == 101
