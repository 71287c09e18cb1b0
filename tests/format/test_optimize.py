"""Tables of the JVM, optimized: rows and samples stay, the dialect too, and every block obeys the format."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import (
    KEYS,
    assert_answers,
    assert_sound_after,
    copy_of,
    has_copies,
    last_commit,
    rows_of,
    shifted,
)
from tests.format.collection import Golden, each, find

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

OPTIMIZED = {"legacy/v050_histogram", "qbeast-spark-0.8/convert_parquet_append"}


def without_copies(golden: Golden, folder: Path) -> Path:
    path = copy_of(golden, folder)
    if has_copies(path):
        pytest.skip("its copies have to go first")
    return path


@each(fast=OPTIMIZED)
def test_rows_samples_and_filters_stay(golden: Golden, tmp_path: Path):
    path = without_copies(golden, tmp_path)
    table = qbeast.open_table(path)
    result = table.optimize(revision="all")
    assert result.committed == bool(result.plan.height)
    assert set(load_snapshot(path).files["rules"]) <= {"1"}
    assert_answers(golden, table, golden.expected)
    assert not table.optimize(revision="all").committed


@each(fast=OPTIMIZED)
def test_optimize_is_written_as_by_the_jvm(golden: Golden, tmp_path: Path):
    path = without_copies(golden, tmp_path)
    before = load_snapshot(path)
    result = qbeast.open_table(path).optimize(into="newest", full=True)
    if not result.committed:
        assert not before.files.height
        return
    actions = last_commit(path)
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    assert not any(action["dataChange"] for action in (*adds, *removes))
    for add in adds:
        assert add["tags"]["revision"] == str(result.revision_id)
        assert all(list(block) == KEYS for block in json.loads(add["tags"]["blocks"]))
    assert_sound_after(path, result)


def test_copied_rows_must_be_removed_first(tmp_path: Path):
    golden = find("legacy/v050_mixed_states")
    path = copy_of(golden, tmp_path)
    assert has_copies(path)
    table = qbeast.open_table(path)
    with pytest.raises(qbeast.UnsupportedTableError, match=r"upgrade\(replicated="):
        table.optimize(dry_run=True)
    assert table.refresh() is table
    qbeast.open_table(path).upgrade(replicated="drop")
    table.optimize(full=True)
    assert_frame_equal(rows_of(golden, table.rows().lazy()), golden.expected, check_exact=True)


@pytest.mark.sweep
def test_table_works_after_append_and_optimize(tmp_path: Path):
    golden = find("qbeast-spark-0.7.1/append_same")
    path = copy_of(golden, tmp_path)
    table = qbeast.open_table(path)
    table.optimize()
    qbeast.write_table(shifted(golden.expected), path, mode="append")
    table.optimize(full=True)
    both = pl.concat([golden.expected, shifted(golden.expected)])
    assert_frame_equal(rows_of(golden, table.rows().lazy()), both, check_exact=True)
