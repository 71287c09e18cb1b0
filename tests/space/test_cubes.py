from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.space.cubes import MAX_DEPTH, Cubes, cube_boxes, decode_cubes, encode_cubes
from qbeast_core.tree.build import place_cubes
from qbeast_core.tree.grid import GRID_BITS, grid
from tests.space.cube_reference import box_of_path, cells_of_path, path_of_point, text_of_path


def paths(dimensions: int, max_depth: int = 8):
    level = st.lists(st.integers(0, 1), min_size=dimensions, max_size=dimensions)
    return st.lists(st.lists(level, max_size=max_depth), max_size=12).map(lambda actual: (dimensions, actual))


spaces = st.integers(1, 40).flatmap(paths)
narrow_spaces = st.integers(1, 3).flatmap(paths)
deep_spaces = st.integers(1, 8).flatmap(lambda d: paths(d, MAX_DEPTH))


@given(spaces | deep_spaces)
def test_text_matches_scalar_rules(space):
    dimensions, actual = space
    texts = [text_of_path(path) for path in actual]
    cubes = decode_cubes(texts, dimensions=dimensions)
    assert cubes.cells.shape == (len(actual), dimensions)
    assert cubes.depth.tolist() == [len(path) for path in actual]
    assert cubes.cells.tolist() == [cells_of_path(path, dimensions) for path in actual]
    assert encode_cubes(cubes) == texts


@given(deep_spaces)
def test_boxes_are_the_halves_of_halves(space):
    dimensions, actual = space
    cubes = decode_cubes([text_of_path(path) for path in actual], dimensions=dimensions)
    lower, upper = cube_boxes(cubes)
    for row, path in enumerate(actual):
        box = box_of_path(path, dimensions)
        got = [(Fraction(low), Fraction(high)) for low, high in zip(lower[row], upper[row], strict=True)]
        assert got == box


coordinates = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5, float(np.nextafter(1, 0)), 5e-324])


@given(
    st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(coordinates, min_size=d, max_size=d), min_size=1)),
    st.integers(0, GRID_BITS),
)
def test_points_are_in_cells_found_by_halving(points, depth):
    array = np.array(points)
    columns = [
        grid(column) >> np.uint32(GRID_BITS - depth) if depth else 0 * grid(column) for column in array.T
    ]
    cells = np.stack(columns, axis=1).astype(np.uint64)
    assert cells.tolist() == [cells_of_path(path_of_point(point, depth), array.shape[1]) for point in points]
    lower, upper = cube_boxes(Cubes(np.full(len(points), depth, np.uint8), cells))
    assert ((lower <= array) & ((array < upper) | (array == 1.0))).all()


@given(narrow_spaces | spaces)
def test_order_follows_bits_and_ancestors_are_prefixes(space):
    dimensions, actual = space
    assume(actual)
    cubes = decode_cubes([text_of_path(path) for path in actual], dimensions=dimensions)
    _, positions = place_cubes(cubes)
    for level, places in enumerate(positions):
        reaching = [path[:level] for path in actual if len(path) >= level]
        bits = [[bit for item in path for bit in item] for path in reaching]
        ranks = {
            tuple(item): rank for rank, item in enumerate(sorted(map(list, {tuple(item) for item in bits})))
        }
        assert places.tolist() == [ranks[tuple(item)] for item in bits]


def test_examples_of_the_format_hold():
    cubes = decode_cubes(["", "w", "wg"], dimensions=2)
    assert cubes.depth.tolist() == [0, 1, 2]
    assert cubes.cells.tolist() == [[0, 0], [1, 1], [3, 2]]


@pytest.mark.parametrize(
    ("text", "dimensions"),
    [("w?", 2), ("wgw", 7), ("B", 2), ("wé", 2), ("w\ud800", 2), (" ", 6), ("A=", 1), ("AB", 7)],
)
def test_invalid_text_is_named(text, dimensions):
    valid = "A" * (-(-dimensions // 6))
    with pytest.raises(InvalidMetadataError) as caught:
        decode_cubes([valid, "", text, valid], dimensions=dimensions)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("dimensions", [1, 6, 7, 40])
def test_cube_too_deep_raises(dimensions):
    level = "g" + "A" * (-(-dimensions // 6) - 1)
    cubes = decode_cubes([level * MAX_DEPTH, level], dimensions=dimensions)
    assert cubes.depth.tolist() == [32, 1]
    assert cubes.cells[:, 0].tolist() == [2**32 - 1, 1]
    for depth in (33, 64, 300, 100_000):
        with pytest.raises(InvalidMetadataError, match="32 levels at most"):
            decode_cubes([level, level * depth], dimensions=dimensions)


def test_empty_and_root_cubes_work():
    assert len(decode_cubes([], dimensions=3)) == 0
    assert encode_cubes(decode_cubes([""], dimensions=3)) == [""]
    assert decode_cubes(["", ""], dimensions=3).cells.tolist() == [[0] * 3] * 2
