from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.cubes import Cubes
from qbeast_core.tree.grid import file_order
from tests.helpers.examples import examples


def grid(dimensions: int, depth: int) -> Cubes:
    """All cubes of a depth, in order of their bits."""
    axes = np.meshgrid(*[np.arange(1 << depth, dtype=np.uint64)] * dimensions, indexing="ij")
    cells = np.stack([axis.ravel() for axis in axes], axis=1)
    return Cubes(np.full(len(cells), depth, np.uint8), cells)


@pytest.mark.parametrize(("dimensions", "depth"), [(1, 6), (2, 1), (2, 5), (3, 4), (4, 3), (5, 2)])
def test_neighbouring_cubes_differ_in_one_dimension(dimensions: int, depth: int) -> None:
    cubes = grid(dimensions, depth)
    order = file_order(cubes)
    assert sorted(order.tolist()) == list(range(len(cubes)))
    steps = np.abs(np.diff(cubes.cells[order].astype(np.int64), axis=0)).sum(axis=1)
    assert (steps == 1).all()


@pytest.mark.parametrize(("dimensions", "depth"), [(2, 4), (3, 3)])
def test_children_follow_the_order_of_parents(dimensions: int, depth: int) -> None:
    parents, children = grid(dimensions, depth - 1), grid(dimensions, depth)
    inside = children.cells[file_order(children)] >> np.uint64(1)
    assert np.array_equal(inside[:: 1 << dimensions], parents.cells[file_order(parents)])
    assert np.array_equal(np.repeat(inside[:: 1 << dimensions], 1 << dimensions, axis=0), inside)


@st.composite
def some_cubes(draw: st.DrawFn) -> Cubes:
    dimensions, deepest = draw(st.integers(1, 40)), draw(st.integers(0, 63))
    depth = draw(st.lists(st.integers(0, deepest), max_size=12))
    seed = draw(st.integers(0, 2**32))
    cells = np.random.default_rng(seed).integers(0, 2**64, (len(depth), dimensions), np.uint64)
    depths = np.array(depth, np.uint8)
    shift = (np.uint64(64) - np.maximum(depths, 1).astype(np.uint64))[:, None]
    return Cubes(depths, np.where(depths[:, None] > 0, cells >> shift, np.uint64(0)))


@examples(30, sweep=600)
@given(cubes=some_cubes(), seed=st.integers(0, 1000))
def test_order_of_two_cubes_is_independent(cubes: Cubes, seed: int) -> None:
    order = file_order(cubes)
    assert (np.diff(cubes.depth[order].astype(np.int64)) >= 0).all()
    kept = np.random.default_rng(seed).random(len(cubes)) < 0.5
    some = Cubes(cubes.depth[kept], cubes.cells[kept])
    assert np.array_equal(some.cells[file_order(some)], cubes.cells[order[kept[order]]])


def test_no_cubes_have_no_order() -> None:
    assert file_order(Cubes(np.zeros(0, np.uint8), np.zeros((0, 2), np.uint64))).tolist() == []
