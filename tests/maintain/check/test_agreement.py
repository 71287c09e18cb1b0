"""The check and the invariants as the tests know them agree on random tables, sound and spoiled."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import qbeast
from tests.helpers import damage as d
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import folder, small_files, write

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning"),
]
_BROKEN = (AssertionError, KeyError, ValueError, IndexError, OSError, pa.ArrowException)


def damages(at: int, step: int) -> dict[str, d.Damage]:
    """Name damage that both can see, which may turn out to be none."""
    return {
        "least weight": d.shift_block(at, minWeight=step),
        "threshold": d.shift_block(at, maxWeight=step),
        "rows of a block": d.shift_block(at, elementCount=1 if step > 0 else -1),
        "leaf": d.block(at, maxWeight=2**31 - 1),
        "root": d.block(at, cube=""),
        "deep": d.block(at, cube="AA"),
        "copy": d.block(at, replicated=True),
        "block twice": d.blocks(lambda actual: actual.append(actual[-1])),
        "band": d.shift_band(at, weight=step),
        "page": d.shift_bound(at, 1 if step > 0 else -1),
        "no such revision": d.tags(revision="77"),
        "rows": d.stats(lambda actual: actual.update(numRecords=actual["numRecords"] + 1)),
        "size": d.size(1),
        "truncated": d.truncated,
        "no Parquet": d.no_parquet,
        "deleted": d.deleted,
        "swapped rows": d.rewritten(d.swap_ends),
        "reversed rows": d.rewritten(d.reverse),
        "hidden weight": d.rewritten(d.other_hidden_weight),
        "lost row": d.rewritten(d.lose_a_row),
        "doubled row": d.rewritten(d.double_a_row),
    }


STEPS = st.sampled_from([-(2**20), -(2**16), -1, 1, 3, 2**17])
DAMAGES = st.tuples(st.sampled_from(list(damages(0, 1))), st.integers(0, 9), STEPS)


@examples(2, sweep=150)
@given(case=cases(most_frames=2), damage=st.none() | DAMAGES, at=st.integers(0, 20))
def test_checks_agree_on_sound_and_damaged_tables(
    case: Case, damage: tuple[str, int, int] | None, at: int
) -> None:
    with folder() as path:
        with small_files(file_rows=25, page_rows=4):
            write(path, case)
        if damage is not None and read_log(path).adds:  # not opened: opened tables are remembered
            d.spoil(path, damages(*damage[1:])[damage[0]], indexed=case.indexed, at=at)
        try:
            check_invariants(path)
            sound, why = True, ""
        except _BROKEN as error:
            why = repr(error)
            sound = False
        report = qbeast.open_table(path).check()
        event(f"sound: {sound}")
        assert report.ok == sound, (why, report)
