"""The check and the invariants as the tests know them agree on random tables, sound and spoiled."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import qbeast
from tests.insight import damage as d
from tests.integration.invariants import check_invariants
from tests.integration.tables import folder, small_files, write
from tests.strategies import Case, cases

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning"),
]
_BROKEN = (AssertionError, KeyError, ValueError, IndexError, OSError, pa.ArrowException)

STEPS = st.sampled_from([-(2**20), -(2**16), -1, 1, 3, 2**17])


@st.composite
def damages(draw: st.DrawFn) -> d.Damage:
    """Damage that both can see, which may turn out to be none."""
    at, step = draw(st.integers(0, 9)), draw(STEPS)
    return draw(
        st.sampled_from(
            [
                d.shift_block(at, minWeight=step),
                d.shift_block(at, maxWeight=step),
                d.shift_block(at, elementCount=1 if step > 0 else -1),
                d.block(at, maxWeight=2**31 - 1),
                d.block(at, cube=""),
                d.block(at, cube="AA"),
                d.block(at, replicated=True),
                d.blocks(lambda found: found.reverse()),
                d.blocks(lambda found: found.append(found[-1])),
                d.shift_page(at, 1 if step > 0 else -1),
                d.tags(revision="0"),
                d.tags(revision="77"),
                d.stats(lambda found: found.update(numRecords=found["numRecords"] + 1)),
                d.size(1),
                d.truncated,
                d.no_parquet,
                d.deleted,
                d.rewritten(d.swap_ends),
                d.rewritten(d.reverse),
                d.rewritten(d.other_hidden_weight),
                d.rewritten(d.lose_a_row),
                d.rewritten(d.double_a_row),
            ]
        )
    )


def check_agreement(case: Case, damage: d.Damage | None, at: int) -> None:
    with folder() as path:
        with small_files(file_rows=25, page_rows=4):
            write(path, case)
        if damage is not None and qbeast.open_table(path).blocks().height:
            try:
                d.spoil(path, damage, indexed=case.indexed, at=at)
            except OverflowError:  # a page's first weight is the largest already
                return
        try:
            check_invariants(path)
            sound = True
        except _BROKEN:
            sound = False
        report = qbeast.open_table(path).check()
        event(f"sound: {sound}")
        assert report.ok == sound, report


@settings(max_examples=10)
@given(case=cases(most_rows=80))
def test_what_is_written_is_sound(case: Case) -> None:
    check_agreement(case, None, 0)


@settings(max_examples=30)
@given(case=cases(most_frames=2), damage=damages(), at=st.integers(0, 20))
def test_both_agree_on_spoiled_tables(case: Case, damage: d.Damage, at: int) -> None:
    check_agreement(case, damage, at)


@pytest.mark.slow
@settings(max_examples=1000)
@given(case=cases(most_rows=100), damage=st.none() | damages(), at=st.integers(0, 20))
def test_both_agree_on_many_tables(case: Case, damage: d.Damage | None, at: int) -> None:
    check_agreement(case, damage, at)
