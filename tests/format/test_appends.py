"""Appends of this library to tables of the JVM: rows, samples and filters hold, and the JVM can read on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import KEYS, SHIFT, assert_answers, assert_sound, copy_of, last_commit, shifted
from tests.format.collection import Golden, each, find

# Rows of one key in tens of copies cluster a sample, and the write says so.
pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

APPENDED = {
    "legacy/v050_histogram",
    "qbeast-spark-0.7.1/nan_hash",
    "qbeast-spark-0.8/quant_string",
    "qbeast-spark-0.8/single_double",
}
KNOWN_TO_0_7_1 = {"LinearTransformation", "HashTransformation", "StringHistogramTransformation"}


@each(fast=APPENDED)
def test_appended_rows_have_samples_tags_and_order(golden: Golden, tmp_path: Path):
    """Append the rows of a golden table with other ids."""
    path = copy_of(golden, tmp_path)
    snapshot = load_snapshot(path)
    result = qbeast.write_table(shifted(golden.expected), path, mode="append")
    assert result.rows == golden.expected.height
    assert_answers(golden, qbeast.open_table(path), pl.concat([golden.expected, shifted(golden.expected)]))
    assert_sound(path, set(snapshot.files["path"]), result)
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


def test_empty_jvm_table_takes_first_rows(tmp_path: Path):
    path = copy_of(find("qbeast-spark-0.8/empty"), tmp_path)
    rows = find("qbeast-spark-0.8/empty_append").expected
    result = qbeast.write_table(rows, path, mode="append")
    assert result.new_revision
    assert_frame_equal(qbeast.open_table(path).read().sort("id"), rows)
    assert_sound(path, set(), result)
    assert '"cubeId"' in last_commit(path)[-1]["add"]["tags"]["blocks"]


def test_append_of_no_rows_succeeds(tmp_path: Path):
    golden = find("qbeast-spark-0.8/dims3")
    path = copy_of(golden, tmp_path)
    result = qbeast.write_table(golden.expected.clear(), path, mode="append")
    assert (result.rows, result.files, result.new_revision) == (0, 0, False)
    assert_frame_equal(qbeast.open_table(path).read().sort("id"), golden.expected)


def test_appends_continue_the_same_tree(tmp_path: Path):
    golden = find("qbeast-spark-0.7.1/append_same")
    path = copy_of(golden, tmp_path)
    parts = [golden.expected.gather_every(3, start) for start in range(3)]
    for number, part in enumerate(parts, start=1):
        files = set(load_snapshot(path).files["path"])
        rows = part.with_columns(pl.col("id") + SHIFT * number)
        result = qbeast.write_table(rows, path, mode="append")
        assert not result.new_revision
        assert_sound(path, files, result)
    drawn = qbeast.open_table(path).read(sample=0.1)["id"] % SHIFT
    assert drawn.value_counts()["count"].to_list() == [2] * len(golden.samples[0.1])
