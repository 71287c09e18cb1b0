"""Whatever is written and appended: no row is lost, none is there twice, and the index keeps its invariants."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qbeast
from tests.integration.invariants import check_invariants
from tests.integration.tables import assert_same_rows, folder, small_files, write
from tests.strategies import Case, cases

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def check_written(case: Case, file_rows: int, page_rows: int) -> None:
    with folder() as path:
        with small_files(file_rows=file_rows, page_rows=page_rows):
            results = write(path, case)
        assert_same_rows(qbeast.read_table(path), case.rows)
        assert sum(block.rows for block in check_invariants(path)) == case.rows.height
        assert [result.version for result in results] == list(range(len(case.frames)))
        assert [result.rows for result in results] == [frame.height for frame in case.frames]
        for version in range(len(case.frames)):
            before = case.frames[: version + 1]
            assert qbeast.open_table(path, version=version).scan().collect().height == sum(
                frame.height for frame in before
            )


SHAPES = {"file_rows": st.sampled_from([5, 30, 1 << 16]), "page_rows": st.sampled_from([1, 4, 32])}


@settings(max_examples=50)
@given(case=cases(), **SHAPES)
def test_no_row_is_lost_and_the_index_holds(case: Case, file_rows: int, page_rows: int) -> None:
    check_written(case, file_rows, page_rows)


@pytest.mark.slow
@settings(max_examples=400)
@given(case=cases(most_rows=200), **SHAPES)
def test_no_row_is_lost_and_the_index_holds_in_many_tables(
    case: Case, file_rows: int, page_rows: int
) -> None:
    check_written(case, file_rows, page_rows)
