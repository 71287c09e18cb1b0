"""Appends of this library to tables of the JVM: rows, samples and filters hold, and the JVM can read on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.table.snapshot import load_snapshot
from qbeast_core.table.whole_files import scan_files
from qbeast_core.tree.columns import frame_weights, to_index_column
from tests.golden.blocks import assert_above_its_ancestors, assert_holds_its_rows
from tests.golden.collection import BUNDLE, Golden, each, find, read_collection
from tests.golden.test_filters import questions

# Rows of one key in tens of copies cluster a sample, and the write says so.
pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

SHIFT = 10_000_000
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
KEYS = ["cubeId", "minWeight", "maxWeight", "elementCount", "replicated"]


def copy_of(golden: Golden, folder: Path) -> Path:
    target = folder / "table"
    shutil.copytree(golden.path, target, copy_function=shutil.copyfile)
    for path in (target, target / "_delta_log"):
        path.chmod(0o755)
    return target


def shifted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("id") + SHIFT)


def stretched(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with other ids and far outside the ranges of their numbers and dates."""
    far = {
        name: pl.col(name).dt.offset_by("400d")
        if dtype.is_temporal()
        else pl.col(name) + "~"
        if dtype == pl.String
        else (pl.col(name) * 3 + 1000).cast(dtype)
        for name, dtype in rows.schema.items()
        if name != "id"
    }
    return shifted(rows.with_columns(**far))


def last_commit(path: Path) -> list[dict[str, Any]]:
    log = max((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def rows_of(golden: Golden, lazy: pl.LazyFrame) -> pl.DataFrame:
    found = lazy.collect()
    return (found.unique() if golden.is_doubled else found).sort("id")


@each(bundled=APPENDED)
def test_the_same_rows_again_are_in_the_same_samples_and_filters(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    rows = golden.expected
    result = qbeast.write_table(shifted(rows), path, mode="append")
    assert result.rows == rows.height
    table = qbeast.open_table(path)
    both = pl.concat([rows, shifted(rows)])
    assert_frame_equal(rows_of(golden, table.scan()), both, check_exact=True)
    for fraction, ids in golden.samples.items():
        drawn = rows_of(golden, table.scan(sample=fraction))["id"].to_list()
        assert drawn == [*ids, *(number + SHIFT for number in ids)]
    for question in questions(golden):
        ids = None if question.sample is None else golden.samples[question.sample]
        wanted = both.filter(question.predicate)
        if ids is not None:
            wanted = wanted.filter((pl.col("id") % SHIFT).is_in(ids))
        found = rows_of(golden, table.scan(sample=question.sample).filter(question.predicate))
        assert_frame_equal(found, wanted, check_exact=True)


@each(bundled=APPENDED)
def test_an_append_is_spelled_as_the_jvm_spells_it(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    before = load_snapshot(path).metadata.configuration
    result = qbeast.write_table(shifted(golden.expected), path, mode="append")
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
def test_new_blocks_hold_their_rows_and_keep_the_order_of_weights(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    files = set(load_snapshot(path).files["path"])
    result = qbeast.write_table(shifted(golden.expected), path, mode="append")
    assert_sound(path, files, result)


def assert_sound(path: Path, before: set[str], result: qbeast.WriteResult) -> None:
    """Assert the invariants of format 8 for the files that a write added."""
    table, snapshot = qbeast.open_table(path), load_snapshot(path)
    (revision,) = (one for one in table.revisions if one.revision_id == result.revision_id)
    blocks = table.blocks()
    live = blocks.filter((pl.col("revision_id") == result.revision_id) & ~pl.col("replicated"))
    new = snapshot.files.filter(~pl.col("path").is_in(before))
    assert new.height == result.files
    assert new["rules"].to_list() == ["1"] * new.height
    for name, records in new.select("path", "num_records").iter_rows():
        added = blocks.filter(pl.col("path") == name)
        rows = scan_files(snapshot.source.store, [name], list(table.schema), table.schema).collect()
        pairs = zip(revision.columns, revision.transformations, strict=True)
        points = [to_coordinates(space, to_index_column(rows[column])) for column, space in pairs]
        assert_holds_its_rows(added, np.stack(points, axis=1), frame_weights(rows, revision.columns))
        assert added["element_count"].sum() == rows.height == records
        assert_above_its_ancestors(added, live, dimensions=len(points))


STRETCHED = (
    "legacy/v050_mixed_states",
    "legacy/v050_num3_nulls",
    "qbeast-spark-0.7.1/lin_decimal25",
    "qbeast-spark-0.7.1/micros_timestamp",
    "qbeast-spark-0.8/dims3",
    "qbeast-spark-0.8/far_date",
    "qbeast-spark-0.8/null_mix",
    "qbeast-spark-0.8/quant_double",
    "qbeast-spark-0.8/quant_string",
    "qbeast-spark-0.8/single_double",
)


@pytest.mark.parametrize("name", STRETCHED)
def test_rows_far_outside_get_a_revision_of_their_own_unless_quantiles_clamp(name: str, tmp_path: Path):
    golden = find(name)
    path = copy_of(golden, tmp_path)
    files = set(load_snapshot(path).files["path"])
    rows = stretched(golden.expected)
    old = qbeast.open_table(path)
    result = qbeast.write_table(rows, path, mode="append")
    assert result.new_revision == ("quantiles" not in result.transformers.values())  # these clamp
    assert result.revision_id == max(one.revision_id for one in old.revisions) + result.new_revision
    table = qbeast.open_table(path)
    assert table.revisions[: len(old.revisions)] == old.revisions
    assert_frame_equal(
        table.scan().collect().sort("id"), pl.concat([golden.expected, rows]), check_exact=True
    )
    weights = frame_weights(rows, golden.indexed).astype(np.int64)
    for fraction, ids in golden.samples.items():
        drawn = rows["id"].filter(pl.Series(weights < int(fraction * (2**32 - 1) - 2**31)))
        assert table.scan(sample=fraction).collect()["id"].sort().to_list() == [*ids, *drawn]
    assert_sound(path, files, result)


def test_a_table_that_the_jvm_left_empty_takes_its_first_rows(tmp_path: Path):
    path = copy_of(find("qbeast-spark-0.8/empty"), tmp_path)
    rows = find("qbeast-spark-0.8/empty_append").expected
    result = qbeast.write_table(rows, path, mode="append")
    assert result.new_revision
    assert_frame_equal(qbeast.open_table(path).scan().collect().sort("id"), rows)
    assert_sound(path, set(), result)
    assert '"cubeId"' in last_commit(path)[-1]["add"]["tags"]["blocks"]


def test_no_rows_are_an_append_too(tmp_path: Path):
    golden = find("qbeast-spark-0.8/dims3")
    path = copy_of(golden, tmp_path)
    result = qbeast.write_table(golden.expected.clear(), path, mode="append")
    assert (result.rows, result.files, result.new_revision) == (0, 0, False)
    assert_frame_equal(qbeast.open_table(path).scan().collect().sort("id"), golden.expected)


def test_many_appends_go_on_with_one_tree(tmp_path: Path):
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


@pytest.mark.parametrize("name", ["qbeast-spark-0.8/dims3", "legacy/v050_histogram"])
def test_an_overwrite_begins_a_revision_and_leaves_the_old_rows_to_time_travel(name: str, tmp_path: Path):
    golden = find(name)
    path = copy_of(golden, tmp_path)
    old = qbeast.open_table(path)
    rows = shifted(golden.expected)
    result = qbeast.write_table(rows, path, mode="overwrite")
    table = qbeast.open_table(path)
    assert result.revision_id == max(one.revision_id for one in old.revisions) + 1
    assert_frame_equal(table.scan().collect().sort("id"), rows, check_exact=True)
    drawn = table.scan(sample=0.1).collect()["id"].sort().to_list()
    assert drawn == [number + SHIFT for number in golden.samples[0.1]]
    then = qbeast.open_table(path, version=old.version)
    assert_frame_equal(then.scan().collect().sort("id"), golden.expected, check_exact=True)
    assert DeltaTable(path).to_pyarrow_dataset().count_rows() == rows.height
    assert_sound(path, set(), result)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"columns": ["i", "s"]}, qbeast.InvalidColumnsError, "i, d, s|'i', 'd', 's'"),
        ({"columns": ["d", "i", "s"]}, qbeast.InvalidColumnsError, "i, d, s|'i', 'd', 's'"),
        ({"columns": ["i", "nothing", "s"]}, qbeast.InvalidColumnsError, "nothing"),
        ({"dialect": "documented"}, qbeast.InvalidInputError, "qbeast-spark"),
        ({"mode": "error"}, qbeast.TableExistsError, "already"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    options: dict[str, Any], error: type[Exception], told: str, tmp_path: Path
):
    golden = find("qbeast-spark-0.8/dims3")
    path = copy_of(golden, tmp_path)
    before = sorted(path.rglob("*"))
    with pytest.raises(error, match=told):
        qbeast.write_table(shifted(golden.expected), path, **{"mode": "append", **options})
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("golden", read_collection(BUNDLE), ids=str)
def test_rows_that_lack_an_indexed_column_are_refused_by_name(golden: Golden, tmp_path: Path):
    path = copy_of(golden, tmp_path)
    name = golden.indexed[0]
    with pytest.raises(qbeast.QbeastError, match=name):
        qbeast.write_table(golden.expected.drop(name), path, mode="append")
    assert qbeast.open_table(path).version == qbeast.open_table(golden.path).version
