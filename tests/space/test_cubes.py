from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidInputError, InvalidMetadataError
from qbeast_core.space.cubes import (
    MAX_DEPTH,
    Cubes,
    by_depth_order,
    cube_boxes,
    decode_cubes,
    depth_first_order,
    encode_cubes,
    is_ancestor,
    points_to_cells,
)
from tests.space.cube_reference import box_of_path, cells_of_path, path_of_point, text_of_path


def paths(dimensions: int, max_depth: int = 8):
    level = st.lists(st.integers(0, 1), min_size=dimensions, max_size=dimensions)
    return st.lists(st.lists(level, max_size=max_depth), max_size=12).map(lambda found: (dimensions, found))


spaces = st.integers(1, 40).flatmap(paths)
narrow_spaces = st.integers(1, 3).flatmap(paths)
deep_spaces = st.integers(1, 8).flatmap(lambda d: paths(d, MAX_DEPTH))


@given(spaces | deep_spaces)
def test_text_is_read_and_written_as_the_scalar_rules_say(space):
    dimensions, found = space
    texts = [text_of_path(path) for path in found]
    cubes = decode_cubes(texts, dimensions=dimensions)
    assert cubes.cells.shape == (len(found), dimensions)
    assert cubes.depth.tolist() == [len(path) for path in found]
    assert cubes.cells.tolist() == [cells_of_path(path, dimensions) for path in found]
    assert encode_cubes(cubes) == texts


@given(deep_spaces)
def test_boxes_are_the_halves_of_halves(space):
    dimensions, found = space
    cubes = decode_cubes([text_of_path(path) for path in found], dimensions=dimensions)
    lower, upper = cube_boxes(cubes)
    for row, path in enumerate(found):
        box = box_of_path(path, dimensions)
        got = [(Fraction(low), Fraction(high)) for low, high in zip(lower[row], upper[row], strict=True)]
        if len(path) <= 53:
            assert got == box
        assert all(
            low <= exact_low and exact_high <= high
            for (low, high), (exact_low, exact_high) in zip(got, box, strict=True)
        )


coordinates = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5, float(np.nextafter(1, 0)), 5e-324])


@given(
    st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(coordinates, min_size=d, max_size=d), min_size=1)),
    st.integers(0, MAX_DEPTH),
)
def test_points_fall_in_the_cell_that_halving_finds(points, depth):
    array = np.array(points)
    expected = [cells_of_path(path_of_point(point, depth), array.shape[1]) for point in points]
    cells = points_to_cells(array, depth)
    assert cells.tolist() == expected
    depths = np.full(len(points), depth, np.uint8)
    assert points_to_cells(array, depths).tolist() == expected
    lower, upper = cube_boxes(Cubes(depths, cells))
    assert ((lower <= array) & ((array < upper) | (array == 1.0))).all()


@given(narrow_spaces | spaces)
def test_order_is_that_of_the_bits_with_ancestors_first(space):
    dimensions, found = space
    cubes = decode_cubes([text_of_path(path) for path in found], dimensions=dimensions)
    bits = [[bit for level in path for bit in level] for path in found]  # a prefix sorts first in Python too
    rows = range(len(found))
    assert depth_first_order(cubes).tolist() == sorted(rows, key=lambda row: bits[row])
    assert by_depth_order(cubes).tolist() == sorted(rows, key=lambda row: (len(found[row]), bits[row]))


@given(narrow_spaces)
def test_ancestors_are_proper_prefixes(space):
    dimensions, found = space
    pairs = [(a, b) for a in found for b in found] or [([], [])]
    above = decode_cubes([text_of_path(a) for a, _ in pairs], dimensions=dimensions)
    below = decode_cubes([text_of_path(b) for _, b in pairs], dimensions=dimensions)
    expected = [len(a) < len(b) and b[: len(a)] == a for a, b in pairs]
    assert is_ancestor(above, below).tolist() == expected
    parents = below.at_depth(np.maximum(below.depth, 1) - np.uint8(1))
    assert encode_cubes(parents) == [text_of_path(b[:-1]) for _, b in pairs]


def test_the_format_s_own_examples():
    cubes = decode_cubes(["", "w", "wg"], dimensions=2)
    assert cubes.depth.tolist() == [0, 1, 2]
    assert cubes.cells.tolist() == [[0, 0], [1, 1], [3, 2]]


@pytest.mark.parametrize(
    ("text", "dimensions"),
    [("w?", 2), ("wgw", 7), ("B", 2), ("wé", 2), ("w\ud800", 2), (" ", 6), ("A=", 1), ("AB", 7)],
)
def test_an_invalid_text_is_named(text, dimensions):
    valid = "A" * (-(-dimensions // 6))
    with pytest.raises(InvalidMetadataError) as caught:
        decode_cubes([valid, "", text, valid], dimensions=dimensions)
    assert repr(text) in str(caught.value)


def test_a_cube_too_deep_becomes_its_ancestor():
    cubes = decode_cubes(["g" * 70, "g", "g" * 63], dimensions=1)
    assert cubes.depth.tolist() == [63, 1, 63]
    assert cubes.cells.tolist() == [[2**63 - 1], [1], [2**63 - 1]]


def test_no_cubes_and_roots_alone_are_fine():
    assert len(decode_cubes([], dimensions=3)) == 0
    assert encode_cubes(Cubes.root(3)) == [""]
    assert decode_cubes(["", ""], dimensions=3).cells.tolist() == [[0] * 3] * 2
    assert depth_first_order(decode_cubes(["", ""], dimensions=3)).tolist() == [0, 1]
    assert by_depth_order(decode_cubes([], dimensions=3)).tolist() == []


def test_buffers_of_the_wrong_kind_are_refused():
    with pytest.raises(InvalidInputError):
        Cubes(np.zeros(1, np.int64), np.zeros((1, 2), np.uint64))
    with pytest.raises(InvalidInputError):
        Cubes(np.zeros(1, np.uint8), np.zeros(2, np.uint64))
