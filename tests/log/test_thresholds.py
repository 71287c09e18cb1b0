from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.log.thresholds import misplaced_cube
from qbeast_core.spec.block import Block

WEIGHTS = st.integers(-5, 5)


def blocks(dimensions: int) -> st.SearchStrategy[list[Block]]:
    level = -(-dimensions // 6)
    cube = st.lists(st.sampled_from(["A" * level, "g" * level]), max_size=3).map("".join)
    return st.lists(st.builds(Block, cube, WEIGHTS, WEIGHTS, st.just(1), st.booleans()), max_size=4)


def slowly(added: list[Block], live: list[Block], level: int) -> set[str]:
    everything = [block for block in live + added if not block.replicated]
    wrong = set()
    for block in added:
        for above in everything:
            is_above = len(above.cube) < len(block.cube) and block.cube.startswith(above.cube)
            if is_above and len(above.cube) % level == 0 and not block.replicated:
                same = [other.max_weight for other in everything if other.cube == above.cube]
                if block.min_weight <= min(same):
                    wrong.add(block.cube)
    return wrong


@given(st.data(), st.sampled_from([1, 6, 7]))
def test_a_misplaced_cube_is_found_if_there_is_one(data: st.DataObject, dimensions: int) -> None:
    added, live = data.draw(blocks(dimensions)), data.draw(blocks(dimensions))
    found = misplaced_cube(added, live, dimensions=dimensions)
    wrong = slowly(added, live, -(-dimensions // 6))
    assert (found in wrong) if wrong else (found is None)
