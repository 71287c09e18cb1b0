"""The block of a row, found in all files of a tree at once, beside a walk down from the root."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.cubes import Cubes
from qbeast_core.tree.build import blocks_of_rows
from qbeast_core.tree.grid import grid
from tests.helpers.examples import examples
from tests.tree.batches import MAX, MIN, batches

CUBES = st.lists(st.tuples(st.integers(0, 59), st.sampled_from([0, 1, 2, 3, 32])), min_size=1, max_size=8)


@examples(20, sweep=1000)
@given(batches(max_rows=20), CUBES, st.data())
def test_row_is_in_first_cube_that_takes_its_weight(batch, places, data):
    dimensions, points, weights = batch
    cells = [grid(np.array(points, np.float64).reshape(-1, dimensions)[:, j]) for j in range(dimensions)]
    # Cubes around rows: others hold none.
    paths = [tuple(int(column[row]) for column in cells) for row in range(len(weights))]
    around = paths or [(0,) * dimensions]
    cubes = {(depth, cube_of(around[row % len(around)], depth)) for row, depth in places}
    ordered = sorted(cubes)
    limits = data.draw(
        st.lists(
            st.integers(MIN, MAX) | st.sampled_from([*weights, MAX]), min_size=len(cubes), max_size=len(cubes)
        )
    )
    expected = []
    for path, weight in zip(paths, weights, strict=True):
        on_path = [number for number, (depth, cube) in enumerate(ordered) if cube == cube_of(path, depth)]
        expected.append(next((number for number in on_path if weight <= limits[number]), -1))
    actual = blocks_of_rows(
        Cubes(
            np.array([depth for depth, _ in ordered], np.uint8),
            np.array([cube for _, cube in ordered], np.uint64).reshape(-1, dimensions),
        ),
        np.array(limits, np.int32),
        cells,
        np.array(weights, np.int32),
    )
    assert actual.tolist() == expected


def cube_of(path: tuple[int, ...], depth: int) -> tuple[int, ...]:
    return tuple(cell >> (32 - depth) for cell in path)
