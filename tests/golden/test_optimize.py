"""Tables of the JVM, optimized: rows and samples stay, the dialect too, and every block obeys the format."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.golden.appends import (
    KEYS,
    assert_sound_after,
    copy_of,
    has_copies,
    last_commit,
    rows_of,
    shifted,
)
from tests.golden.collection import Golden, each
from tests.golden.questions import questions

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

OPTIMIZED = {
    "legacy/v050_histogram",
    "legacy/v050_num3_nulls",
    "qbeast-spark-0.7.1/append_same",
    "qbeast-spark-0.7.1/convert_parquet",
    "qbeast-spark-0.7.1/delta_delete",
    "qbeast-spark-0.7.1/nan_hash",
    "qbeast-spark-0.8/convert_parquet_append",
    "qbeast-spark-0.8/quant_string",
}


@each(bundled=OPTIMIZED)
def test_rows_samples_and_filters_stay(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    if has_copies(path):
        pytest.skip("its copies have to go first")
    table = qbeast.open_table(path)
    result = table.optimize(revision="all")
    assert result.committed == bool(result.plan.height)
    assert set(load_snapshot(path).files["rules"]) <= {"1"}
    assert_frame_equal(rows_of(golden, table.scan()), golden.expected, check_exact=True)
    for fraction, ids in golden.samples.items():
        assert rows_of(golden, table.scan(sample=fraction))["id"].to_list() == ids
    for question in questions(golden):
        expected = golden.expected.filter(question.predicate)
        if question.sample is not None:
            expected = expected.filter(pl.col("id").is_in(golden.samples[question.sample]))
        actual = rows_of(golden, table.scan(sample=question.sample).filter(question.predicate))
        assert_frame_equal(actual, expected, check_exact=True)
    assert not table.optimize(revision="all").committed


@each(bundled=OPTIMIZED)
def test_optimize_is_written_as_by_the_jvm(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    if has_copies(path):
        pytest.skip("its copies have to go first")
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


@each(lambda golden: golden.name == "v050_mixed_states")
def test_copied_rows_must_be_removed_first(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    assert has_copies(path)
    table = qbeast.open_table(path)
    with pytest.raises(qbeast.UnsupportedTableError, match="upgrade_table"):
        table.optimize(dry_run=True)
    assert table.refresh() is table
    qbeast.upgrade_table(path, replicated="drop")
    table.optimize(full=True)
    assert_frame_equal(rows_of(golden, table.scan()), golden.expected, check_exact=True)


@each(lambda golden: golden.name == "append_same")
def test_table_works_after_append_and_optimize(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    table = qbeast.open_table(path)
    table.optimize()
    qbeast.write_table(shifted(golden.expected), path, mode="append")
    table.optimize(full=True)
    both = pl.concat([golden.expected, shifted(golden.expected)])
    assert_frame_equal(rows_of(golden, table.scan()), both, check_exact=True)
