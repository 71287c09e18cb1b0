"""Row ids and run lengths: written as CarbonData does, and read back; what cannot be is damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_carbondata.damage import Damaged
from qbeast_carbondata.pages.page import (
    expand_pairs,
    inverse,
    row_ids,
    run_lengths,
)
from tests.foreign.carbondata.page_encoder import row_id_page
from tests.helpers.examples import examples


@examples(25, sweep=500)
@given(st.permutations(range(12)), st.booleans())
def test_row_ids_round_trip(ids: list[int], short: bool) -> None:  # noqa: FBT001 -- hypothesis gives it
    positions = row_ids(row_id_page(ids, short=short), len(ids))
    assert np.array(ids)[positions].tolist() == list(range(12))


@pytest.mark.parametrize(
    ("ids", "pairs", "rows"),
    [([0, 1], [], 3), ([0, 5], [0], 3), ([5, 0], [0], 2), ([0, 2], [1], 3), ([0, 1, 2], [0, 1], 4)],
)
def test_pairs_that_miss_rows_raise(ids: list[int], pairs: list[int], rows: int) -> None:
    with pytest.raises(Damaged):
        expand_pairs(np.array(ids), np.array(pairs, np.int64), rows)


@pytest.mark.parametrize("ids", [[0, 0], [0, 2], [-1, 0], [0]])
def test_invalid_permutation_raises(ids: list[int]) -> None:
    with pytest.raises(Damaged):
        inverse(np.array(ids), 2)


@pytest.mark.parametrize(("counts", "rows"), [([2], 3), ([-1, 3], 2), ([0, 2], 2)])
def test_runs_that_miss_rows_raise(counts: list[int], rows: int) -> None:
    pairs = np.array([[0, count] for count in counts], ">i2").tobytes()
    with pytest.raises(Damaged):
        run_lengths(pairs, rows)
