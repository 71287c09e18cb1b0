from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.spec.blocks import Block
from qbeast_core.table.index.revision import blocks_in_order
from tests.helpers.examples import examples

LAST = 2**31 - 1
WEIGHTS = st.integers(-5, 5)


@st.composite
def blocks(draw: st.DrawFn, dimensions: int) -> Block:
    level = -(-dimensions // 6)
    cube = draw(st.lists(st.sampled_from(["A" * level, "g" * level]), max_size=3).map("".join))
    low, more = draw(WEIGHTS), draw(st.integers(0, 5))
    return Block(cube, low, draw(st.sampled_from([low + more, LAST])), 1)


def frame(found: Sequence[Block]) -> pl.DataFrame:
    rows = [(0, block.cube, block.min_weight, block.max_weight) for block in found]
    schema = {"tree": pl.Int64, "cube": pl.String, "min_weight": pl.Int64, "max_weight": pl.Int64}
    return pl.DataFrame(rows, schema, orient="row")


def faults(found: Sequence[Block], level: int) -> Iterator[tuple[str, int, str]]:
    """Breaches of the rule word by word: the threshold's cube, the block's place, its cube."""
    for at, block in enumerate(found):
        for cube in {other.cube for other in found}:
            above = len(cube) < len(block.cube) and block.cube.startswith(cube) and len(cube) % level == 0
            if above and block.min_weight <= min(item.max_weight for item in found if item.cube == cube):
                yield cube, at, block.cube


def leaves(found: Sequence[Block]) -> set[str]:
    """Cubes without descendants and without the threshold of a leaf."""
    lowered = {block.cube for block in found} - {block.cube for block in found if block.max_weight == LAST}
    return {
        cube
        for cube in lowered
        if not any(item.cube != cube and item.cube.startswith(cube) for item in found)
    }


@examples(25, sweep=1_500)
@given(st.data(), st.sampled_from([1, 6, 7]))
def test_published_blocks_break_no_order(data: st.DataObject, dimensions: int) -> None:
    level = -(-dimensions // 6)
    live = data.draw(st.lists(blocks(dimensions), max_size=4), label="live")
    files = data.draw(st.lists(st.lists(blocks(dimensions), min_size=1, max_size=2), max_size=4), label="new")
    fitting = blocks_in_order(files, frame(live), dimensions=dimensions)
    assert len(fitting) == len(files)
    published = [block for item in fitting if item is not None for block in item]
    actual = list(faults([*live, *published], level))
    before = set(faults(live, level))
    assert {fault for fault in actual if fault[1] < len(live)} <= before  # theirs below ours
    assert not [fault for fault in actual if fault[1] >= len(live)]  # ours below theirs, or below ours
    assert leaves([*live, *published]) <= leaves(live)
    for old, kept in zip(files, fitting, strict=True):
        assert kept is None or [replace(item, max_weight=0) for item in kept] == [
            replace(item, max_weight=0) for item in old
        ]


@examples(25, sweep=1_500)
@given(st.data(), st.sampled_from([1, 7]))
def test_blocks_in_order_are_published_unchanged(data: st.DataObject, dimensions: int) -> None:
    level = -(-dimensions // 6)
    live = data.draw(st.lists(blocks(dimensions), max_size=3))
    files = data.draw(st.lists(st.lists(blocks(dimensions), min_size=1, max_size=2), min_size=1, max_size=2))
    everything = [*live, *(block for file in files for block in file)]
    fitting = blocks_in_order(files, frame(live), dimensions=dimensions)
    if not list(faults(everything, level)) and not leaves(everything):
        assert fitting == [tuple(file) for file in files]
    elif not set(faults(everything, level)) - set(faults(live, level)):
        assert None not in fitting


def test_conflicting_new_or_lower_block_is_dropped() -> None:
    deep, root = [Block("w", -5, LAST, 2)], [Block("", -9, 8, 2)]
    low, high = [Block("", -9, -6, 2)], [Block("gg", 9, LAST, 2)]
    none = frame([])

    def left_out(new: Sequence[Sequence[Block]], live: pl.DataFrame = none) -> list[int]:
        actual = blocks_in_order(new, live, dimensions=2)
        return [at for at, item in enumerate(actual) if item is None]

    assert left_out([deep, root]) == [0]
    assert left_out([root], frame(deep)) == [0]
    assert left_out([deep], frame(root)) == [0]
    assert left_out([deep, root, low]) == []
    assert left_out([deep, root], frame(low)) == []
    assert left_out([deep, root, high], frame(deep)) == [1]


def test_blocks_relying_on_dropped_files_are_dropped() -> None:
    live = frame([Block("", -9, 5, 2), Block("gw", 6, LAST, 2)])
    leaning, wide = [Block("A", 1, LAST, 2)], [Block("", -9, 0, 2), Block("g", 1, 6, 2)]
    assert blocks_in_order([leaning, wide], live, dimensions=2) == [None, None]
    assert None not in blocks_in_order([leaning, wide[:1]], live, dimensions=2)


def test_new_leaf_gets_a_leaf_threshold() -> None:
    (fitted,) = blocks_in_order([[Block("w", -5, 7, 2)]], frame([Block("", -9, -6, 2)]), dimensions=2)
    assert fitted == (Block("w", -5, LAST, 2),)
