"""The order of weights against the format's words, cube by cube; and mending by taking one side away."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.cubes import decode_cubes
from qbeast_core.tree.build import broken_order, existing_tree, open_where_broken
from tests.helpers.examples import examples

LAST = 2**31 - 1
Blocks = list[tuple[str, int, int]]

CUBES = ["", "A", "g", "w", "AA", "Aw", "wg", "wgw", "ggA"]
WEIGHTS = st.sampled_from([-(2**31), -9, -1, 0, 3, 8, LAST - 1, LAST])


@st.composite
def block_lists(draw: st.DrawFn) -> Blocks:
    actual = []
    for cube in draw(st.lists(st.sampled_from(CUBES), max_size=9)):
        low, high = sorted([draw(WEIGHTS), draw(WEIGHTS)])
        actual.append((cube, low, high))
    return actual


def faults(blocks: Blocks) -> dict[str, set[tuple[int, bool]]]:
    """Format 8.3 and the leaves of 8.4: for each faulty cube the blocks of both sides."""
    actual = {}
    for cube in {cube for cube, _, _ in blocks}:
        own = [i for i, block in enumerate(blocks) if block[0] == cube]
        below = [i for i, block in enumerate(blocks) if block[0].startswith(cube) and block[0] != cube]
        smallest = min(blocks[i][2] for i in own)
        low = [i for i in below if blocks[i][1] <= smallest]
        if low or (not below and max(blocks[i][2] for i in own) < LAST):
            actual[cube] = {*((i, True) for i in own), *((i, False) for i in low)}
    return actual


def bounds(blocks: Blocks) -> dict[str, np.ndarray]:
    lows, highs = ([block[at] for block in blocks] for at in (1, 2))
    return {"min_weights": np.array(lows, np.int32), "max_weights": np.array(highs, np.int32)}


def broken_sides(blocks: Blocks) -> dict[str, set[tuple[int, bool]]]:
    cubes = decode_cubes([block[0] for block in blocks], dimensions=2)
    broken = broken_order(cubes, **bounds(blocks))
    sides = {}
    for _, part in broken.group_by("cube"):
        cube = blocks[part.filter("above")["block"][0]][0]
        sides[cube] = set(part.select("block", "above").iter_rows())
    return sides


@given(block_lists())
@examples(30, sweep=3000)
def test_faulty_blocks_match_the_format(blocks: Blocks):
    assert broken_sides(blocks) == faults(blocks)


@given(block_lists(), st.integers(0, 2**9))
@examples(30, sweep=2000)
def test_removing_either_side_fixes_a_cube(blocks: Blocks, choices: int):
    for _ in range(2 * len(blocks)):
        broken = broken_sides(blocks)
        if not broken:
            return
        cube = min(broken)
        above = bool(choices & 1) or not any(not side for _, side in broken[cube])
        choices >>= 1
        gone = {number for number, side in broken[cube] if side == above}
        blocks = [block for number, block in enumerate(blocks) if number not in gone]
        # The cube may be a leaf now, with too small a threshold.
        assert cube not in broken_sides(blocks) or not above
    assert not broken_sides(blocks)


def test_cube_with_large_threshold_counts_as_empty():
    blocks = [("", -9, 5), ("w", 0, LAST), ("A", 6, LAST), ("AA", 7, LAST)]
    cubes = decode_cubes([block[0] for block in blocks], dimensions=2)
    tree = existing_tree(cubes, **bounds(blocks), element_counts=np.ones(4, np.int64))
    opened = open_where_broken(tree)
    assert [level.has_blocks.tolist() for level in tree.levels] == [[True], [True, True], [True]]
    assert [level.has_blocks.tolist() for level in opened.levels] == [[False], [False, True], [True]]
