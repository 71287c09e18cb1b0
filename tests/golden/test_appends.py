"""Appends of this library to tables of the JVM: rows, samples and filters hold, and the JVM can read on."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from tests.golden.appends import KEYS, SHIFT, assert_sound, copy_of, last_commit, rows_of, shifted
from tests.golden.collection import Golden, each, find
from tests.golden.questions import questions

# Rows of one key in tens of copies cluster a sample, and the write says so.
pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

APPENDED = {
    "legacy/v040_identity_null",
    "legacy/v050_announced_compacted",
    "legacy/v050_histogram",
    "legacy/v050_mixed_states",
    "legacy/v050_num3_nulls",
    "qbeast-spark-0.7.1/append_same",
    "qbeast-spark-0.7.1/column_stats_exceeded",
    "qbeast-spark-0.7.1/convert_parquet",
    "qbeast-spark-0.7.1/delta_delete",
    "qbeast-spark-0.7.1/lin_float",
    "qbeast-spark-0.7.1/nan_hash",
    "qbeast-spark-0.7.1/null_all",
    "qbeast-spark-0.7.1/old_timestamp",
    "qbeast-spark-0.8/allnull_then_values",
    "qbeast-spark-0.8/convert_parquet_append",
    "qbeast-spark-0.8/dims3",
    "qbeast-spark-0.8/empty_append",
    "qbeast-spark-0.8/quant_string",
    "qbeast-spark-0.8/single_double",
}
KNOWN_TO_0_7_1 = {"LinearTransformation", "HashTransformation", "StringHistogramTransformation"}


class Appended(NamedTuple):
    """A copy of a golden table to which its rows were appended with other ids; nobody changes it any more."""

    path: Path
    before: Snapshot
    result: qbeast.WriteResult


@pytest.fixture(scope="module")
def append(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Golden], Appended]:
    """Append to a copy of a golden table, once for all tests that look at what came of it."""

    @cache
    def appended(golden: Golden) -> Appended:
        path = copy_of(golden, tmp_path_factory.mktemp("appended"))
        before = load_snapshot(path)
        return Appended(path, before, qbeast.write_table(shifted(golden.expected), path, mode="append"))

    return appended


@each(bundled=APPENDED)
def test_same_rows_again_have_same_samples(golden: Golden, append):
    path, _, result = append(golden)
    rows = golden.expected
    assert result.rows == rows.height
    table = qbeast.open_table(path)
    both = pl.concat([rows, shifted(rows)])
    assert_frame_equal(rows_of(golden, table.scan()), both, check_exact=True)
    for fraction, ids in golden.samples.items():
        drawn = rows_of(golden, table.scan(sample=fraction))["id"].to_list()
        assert drawn == [*ids, *(number + SHIFT for number in ids)]
    for question in questions(golden):
        ids = None if question.sample is None else golden.samples[question.sample]
        expected = both.filter(question.predicate)
        if ids is not None:
            expected = expected.filter((pl.col("id") % SHIFT).is_in(ids))
        actual = rows_of(golden, table.scan(sample=question.sample).filter(question.predicate))
        assert_frame_equal(actual, expected, check_exact=True)


@each(bundled=APPENDED)
def test_append_is_written_as_by_the_jvm(golden: Golden, append):
    path, snapshot, result = append(golden)
    before = snapshot.metadata.configuration
    actions = last_commit(path)
    for add in (action["add"] for action in actions if "add" in action):
        assert add["tags"]["revision"] == str(result.revision_id)
        for block in json.loads(add["tags"]["blocks"]):
            assert list(block) == KEYS  # it fails on any other key
    published = [action["metaData"]["configuration"] for action in actions if "metaData" in action]
    assert bool(published) == result.new_revision
    for configuration in published:
        kept = {key: text for key, text in configuration.items() if key in before}
        assert {**kept, "qbeast.lastRevisionID": before["qbeast.lastRevisionID"]} == before
        assert configuration["qbeast.blocksDialect"] == "qbeast-spark"
        _assert_readable(json.loads(configuration[f"qbeast.revision.{result.revision_id}"]), before)


def _assert_readable(revision: dict[str, Any], before: dict[str, str]) -> None:
    """Assert that whoever read the table before can read this revision too."""
    for space in revision["transformations"]:
        name = space["className"].rpartition(".")[2]
        assert name in KNOWN_TO_0_7_1 or any(name in text for text in before.values())
        if name == "LinearTransformation":
            whole = space["orderedDataType"] in {"IntegerDataType", "LongDataType"}
            whole = whole or space["orderedDataType"] in {"DateDataType", "TimestampDataType"}
            ends = (space["minNumber"], space["maxNumber"], space["nullValue"])
            assert {type(end) for end in ends} == {int if whole else float}


@each(bundled=APPENDED)
def test_new_blocks_hold_rows_in_weight_order(golden: Golden, append):
    path, before, result = append(golden)
    assert_sound(path, set(before.files["path"]), result)


def test_empty_jvm_table_takes_first_rows(tmp_path: Path):
    path = copy_of(find("qbeast-spark-0.8/empty"), tmp_path)
    rows = find("qbeast-spark-0.8/empty_append").expected
    result = qbeast.write_table(rows, path, mode="append")
    assert result.new_revision
    assert_frame_equal(qbeast.open_table(path).scan().collect().sort("id"), rows)
    assert_sound(path, set(), result)
    assert '"cubeId"' in last_commit(path)[-1]["add"]["tags"]["blocks"]


def test_append_of_no_rows_succeeds(tmp_path: Path):
    golden = find("qbeast-spark-0.8/dims3")
    path = copy_of(golden, tmp_path)
    result = qbeast.write_table(golden.expected.clear(), path, mode="append")
    assert (result.rows, result.files, result.new_revision) == (0, 0, False)
    assert_frame_equal(qbeast.open_table(path).scan().collect().sort("id"), golden.expected)


def test_appends_continue_the_same_tree(tmp_path: Path):
    golden = find("qbeast-spark-0.7.1/append_same")
    path = copy_of(golden, tmp_path)
    parts = [golden.expected.gather_every(5, start) for start in range(5)]
    for number, part in enumerate(parts, start=1):
        files = set(load_snapshot(path).files["path"])
        rows = part.with_columns(pl.col("id") + SHIFT * number)
        result = qbeast.write_table(rows, path, mode="append")
        assert not result.new_revision
        assert_sound(path, files, result)
    drawn = qbeast.open_table(path).scan(sample=0.1).collect()["id"] % SHIFT
    assert drawn.value_counts()["count"].to_list() == [2] * len(golden.samples[0.1])
