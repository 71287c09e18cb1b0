"""The parts of a plan are its files, and their rows are the plan's rows."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.evolve import IndexWish, first_revision
from qbeast_core.tree.plan import plan_index
from qbeast_core.tree.plan_part import plan_parts
from qbeast_core.tree.summary import summarise


@pytest.mark.parametrize("most_rows", [1, 700, 2500, 10**9])
@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_parts_hold_the_files_of_the_plan(most_rows: int, rows: int):
    frame = pl.DataFrame({"a": np.random.default_rng(7).random(rows)})
    wish = IndexWish((ColumnSpec("a"),), 100, "documented")
    revision = first_revision(wish, summarise(frame, ["a"]), table_id="t", timestamp_ms=0)
    weights = frame_weights(frame, ["a"])
    plan = plan_index(frame, revision, weights, existing=None, file_rows=400)
    files = [plan.file(number) for number in range(plan.file_count)]
    seen = 0
    for places, part in plan_parts(plan, most_rows=most_rows):
        assert (np.diff(places) > 0).all()
        assert len(places) <= most_rows or part.file_count == 1
        for number in range(part.file_count):
            file, found = files[seen], part.file(number)
            assert places[found.rows[found.order]].tolist() == file.rows[file.order].tolist()
            assert found.weights.tolist() == file.weights.tolist()
            assert (found.blocks, found.page_rows) == (file.blocks, file.page_rows)
            seen += 1
    assert seen == plan.file_count
