"""Steps of bounds of pages fit the values: equal ones where these are spread evenly, and groups elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.coordinates import cells_of_steps, fitted_steps, step_edges, steps_of, widen
from qbeast_core.spec.blocks import group_widths

CELLS = 2**32
PAGES = 1000

cells = st.integers(0, CELLS - 1)
pages = st.lists(st.tuples(cells, cells | st.integers(0, 99)).map(sorted), min_size=1, max_size=40)


def bounds(listed: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = np.array(listed, np.int64).T
    return lower, upper


def neighbours(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pages of a few rows each, in the order of the values."""
    ordered = (
        np.sort((values - values.min()) / np.ptp(values) * (CELLS - 1)).astype(np.int64).reshape(PAGES, -1)
    )
    return ordered[:, 0], ordered[:, -1]


@given(pages)
def test_steps_hold_the_bounds_that_they_were_made_for(listed: list[list[int]]) -> None:
    lower, upper = bounds(listed)
    numbers = fitted_steps(lower, upper)
    edges = step_edges(numbers)
    assert len(numbers) in (2, 17)
    assert (np.diff(edges) > 0).all()
    first, end = widen(edges, lower, upper)
    assert first.tolist() == [edges[edges <= cell].max() for cell in lower]
    assert end.tolist() == [edges[edges > cell].min() for cell in upper]
    assert edges[0] == lower.min()


@given(st.lists(pages, min_size=1, max_size=4))
def test_bounds_of_many_files_are_decoded_together(files: list[list[list[int]]]) -> None:
    fitted = [fitted_steps(*bounds(listed)) for listed in files]
    steps = [
        [steps_of(step_edges(numbers), side) for side in bounds(listed)]
        for numbers, listed in zip(fitted, files, strict=True)
    ]
    boxes = np.array([[numbers[0], *group_widths(numbers[1:])] for numbers in fitted])
    of_page = np.repeat(np.arange(len(files)), list(map(len, files)))
    decoded = cells_of_steps(boxes, of_page, *(np.concatenate(side) for side in zip(*steps, strict=True)))
    expected = [widen(step_edges(n), *bounds(listed)) for n, listed in zip(fitted, files, strict=True)]
    for actual, sides in zip(decoded, zip(*expected, strict=True), strict=True):
        assert actual.tolist() == np.concatenate(sides).tolist()


def test_even_values_have_equal_steps() -> None:
    random = np.random.default_rng(1)
    for values in (np.arange(20 * PAGES), random.random(20 * PAGES), random.integers(0, 50, 20 * PAGES)):
        assert len(fitted_steps(*neighbours(values))) == 2


@pytest.mark.parametrize("spread", [1.0, 2.0, 3.0])
def test_pages_of_skewed_values_meet_few_others(spread: float) -> None:
    lower, upper = neighbours(np.random.default_rng(2).lognormal(0, spread, 20 * PAGES))
    first, end = widen(step_edges(fitted_steps(lower, upper)), lower, upper)
    met = np.searchsorted(lower, end) - np.searchsorted(upper, first)
    # Two bounds in steps of 1 / 256 of the pages, at best.
    assert met.mean() < 1.5 * 2 * PAGES / 256


def test_a_far_value_costs_a_group_at_most() -> None:
    values = np.append(np.random.default_rng(3).random(20 * PAGES - 1), 1e4)
    lower, upper = neighbours(values)
    first, _ = widen(step_edges(fitted_steps(lower, upper)), lower, upper)
    assert len(np.unique(first)) > 200
