"""Tables of the JVM, changed: the rows that were meant, the dialect they have, and every block obeys the format."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import KEYS, SHIFT, assert_sound, copy_of, has_copies, last_commit, rows_of, shifted
from tests.format.collection import Golden, each

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

CHANGED = {
    "legacy/v050_num3_nulls",
    "qbeast-spark-0.7.1/append_same",
    "qbeast-spark-0.7.1/delta_delete",
    "qbeast-spark-0.8/convert_parquet_append",
    "qbeast-spark-0.8/quant_string",
}
THIRD = pl.col("id") % 3 == 0


def check_last(path: Path, before: set[str], result: qbeast.ChangeResult) -> None:
    for add in (action["add"] for action in last_commit(path) if "add" in action):
        assert all(list(block) == KEYS for block in json.loads(add["tags"]["blocks"]))
    assert_sound(path, before, result)


@each(lambda golden: not golden.is_doubled, bundled=CHANGED)
def test_rows_are_deleted_updated_and_merged(golden: Golden, tmp_path: Path) -> None:
    path = copy_of(golden, tmp_path)
    if has_copies(path):
        pytest.skip("its copies have to go first")
    table, rows = qbeast.open_table(path), golden.expected
    before = set(load_snapshot(path).files["path"])
    result = table.delete(THIRD)
    assert result.rows_deleted == rows.filter(THIRD).height
    check_last(path, before, result)
    rows = rows.filter(~THIRD)
    assert_frame_equal(rows_of(golden, table.rows().lazy()), rows, check_exact=True)
    for fraction, ids in golden.samples.items():
        expected = set(ids) & set(rows["id"])
        assert set(rows_of(golden, table.rows(sample=fraction).lazy())["id"]) == expected
    before = set(load_snapshot(path).files["path"])
    result = table.update(pl.col("id") % 3 == 1, {"id": pl.col("id") + SHIFT})
    assert result.rows_updated == rows.filter(pl.col("id") % 3 == 1).height
    check_last(path, before, result)
    again = table.merge(shifted(rows), "id", when_matched="delete")
    assert (again.rows_deleted, again.rows_inserted) == (
        result.rows_updated,
        rows.height - result.rows_updated,
    )
    left = rows.filter(pl.col("id") % 3 == 2)
    assert_frame_equal(
        rows_of(golden, table.rows().lazy()), pl.concat([left, shifted(left)]), check_exact=True
    )
