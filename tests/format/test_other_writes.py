"""Writes to tables of the JVM that begin a revision, replace its rows, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.tree.grid import frame_weights
from tests.format.appends import SHIFT, assert_answers, assert_sound, copy_of, shifted
from tests.format.collection import find, swept

# Rows of one key in tens of copies cluster a sample, and the write says so.
pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


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


STRETCHED = (
    "qbeast-spark-0.7.1/lin_decimal25",
    "qbeast-spark-0.8/quant_string",
    "qbeast-spark-0.8/single_double",
    "qbeast-spark-0.8/null_mix",
    "legacy/v050_mixed_states",
    "legacy/v050_num3_nulls",
    "qbeast-spark-0.7.1/micros_timestamp",
    "qbeast-spark-0.8/dims3",
    "qbeast-spark-0.8/far_date",
    "qbeast-spark-0.8/quant_double",
)


@pytest.mark.parametrize("name", swept(STRETCHED, but=STRETCHED[:3]))
def test_far_rows_begin_a_revision_unless_quantiles(name: str, tmp_path: Path):
    golden = find(name)
    path = copy_of(golden, tmp_path)
    files = set(load_snapshot(path).files["path"])
    rows = stretched(golden.expected)
    old = qbeast.open_table(path)
    result = qbeast.write_table(rows, path, mode="append")
    assert result.new_revision == ("quantiles" not in result.transformers.values())  # these clamp
    assert result.revision_id == max(revision.revision_id for revision in old.revisions) + result.new_revision
    table = qbeast.open_table(path)
    assert table.revisions[: len(old.revisions)] == old.revisions
    assert_frame_equal(table.read().sort("id"), pl.concat([golden.expected, rows]), check_exact=True)
    weights = frame_weights(rows, golden.indexed).astype(np.int64)
    for fraction, ids in golden.samples.items():
        drawn = rows["id"].filter(pl.Series(weights < int(fraction * (2**32 - 1) - 2**31)))
        assert table.read(sample=fraction)["id"].sort().to_list() == [*ids, *drawn]
    assert_sound(path, files, result)


OPTIONS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("legacy/v050_histogram", {"columns": ["a", "s:quantiles"]}, ["linear", "quantiles"]),
    ("qbeast-spark-0.8/quant_int", {"column_stats": {"i_quantiles": [0, 5, 9]}}, ["quantiles"]),
    ("qbeast-spark-0.7.1/hist_string", {"columns": ["s:hashing"]}, ["hash"]),
    ("qbeast-spark-0.8/dims3", {"columns": ["i:hashing", "d", "s"]}, ["hash", "linear", "hash"]),
    ("qbeast-spark-0.8/dims3", {"columns": ["i", "d:quantiles", "s"]}, ["linear", "quantiles", "hash"]),
    ("qbeast-spark-0.8/dims3", {"cube_size": 100}, ["linear", "linear", "hash"]),
    ("qbeast-spark-0.8/dims3", {"column_stats": {"i_max": 10**9}}, ["linear", "linear", "hash"]),
    ("legacy/v050_mixed_states", {"cube_size": 1000}, ["linear", "hash"]),
]


@pytest.mark.parametrize("case", swept(OPTIONS, but=OPTIONS[:2]))
def test_other_options_begin_a_revision(case: tuple[str, dict[str, Any], list[str]], tmp_path: Path):
    name, options, transformers = case
    golden = find(name)
    path = copy_of(golden, tmp_path)
    files = set(load_snapshot(path).files["path"])
    result = qbeast.write_table(shifted(golden.expected), path, mode="append", **options)
    assert result.new_revision
    assert list(result.transformers.values()) == transformers
    assert result.cube_size == options.get("cube_size", qbeast.open_table(golden.path).cube_size)
    table = qbeast.open_table(path)
    assert_answers(golden, table, pl.concat([golden.expected, shifted(golden.expected)]))
    assert_sound(path, files, result)


@pytest.mark.parametrize("name", ["qbeast-spark-0.7.1/null_all", "legacy/v050_mixed_states"])
def test_added_column_is_null_in_jvm_rows(name: str, tmp_path: Path):
    golden = find(name)
    path = copy_of(golden, tmp_path)
    rows = shifted(golden.expected).with_columns(note=pl.lit("new"))
    with pytest.raises(qbeast.SchemaMismatchError, match="note"):
        qbeast.write_table(rows, path, mode="append")
    with pytest.warns(qbeast.AddedColumnWarning, match="note"):
        qbeast.write_table(rows, path, mode="append", schema_mode="merge")
    actual = qbeast.open_table(path).read().sort("id")
    expected = pl.concat([golden.expected, rows], how="diagonal")
    assert_frame_equal(actual, expected, check_exact=True)


@pytest.mark.parametrize("name", ["qbeast-spark-0.8/dims3", "legacy/v050_histogram"])
def test_overwrite_begins_revision_and_keeps_old_versions(name: str, tmp_path: Path):
    golden = find(name)
    path = copy_of(golden, tmp_path)
    old = qbeast.open_table(path)
    rows = shifted(golden.expected)
    result = qbeast.write_table(rows, path, mode="overwrite")
    table = qbeast.open_table(path)
    assert result.revision_id == max(revision.revision_id for revision in old.revisions) + 1
    assert_frame_equal(table.read().sort("id"), rows, check_exact=True)
    drawn = table.read(sample=0.1)["id"].sort().to_list()
    assert drawn == [number + SHIFT for number in golden.samples[0.1]]
    then = qbeast.open_table(path, version=old.version)
    assert_frame_equal(then.read().sort("id"), golden.expected, check_exact=True)
    assert DeltaTable(path).to_pyarrow_dataset().count_rows() == rows.height
    assert_sound(path, set(), result)


@pytest.mark.parametrize(
    ("options", "error", "report"),
    [
        ({"columns": ["i", "s"]}, qbeast.InvalidColumnsError, "i, d, s|'i', 'd', 's'"),
        ({"columns": ["d", "i", "s"]}, qbeast.InvalidColumnsError, "i, d, s|'i', 'd', 's'"),
        ({"columns": ["i", "nothing", "s"]}, qbeast.InvalidColumnsError, "nothing"),
        ({"dialect": "documented"}, qbeast.InvalidInputError, "qbeast-spark"),
        ({"mode": "error"}, qbeast.TableExistsError, "already"),
    ],
)
def test_mismatched_rows_raise_and_change_nothing(
    options: dict[str, Any], error: type[Exception], report: str, tmp_path: Path
):
    golden = find("qbeast-spark-0.8/dims3")
    path = copy_of(golden, tmp_path)
    before = sorted(path.rglob("*"))
    with pytest.raises(error, match=report):
        qbeast.write_table(shifted(golden.expected), path, **{"mode": "append", **options})
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("name", ["legacy/v050_histogram", "qbeast-spark-0.7.1/convert_parquet"])
def test_rows_without_an_indexed_column_raise(name: str, tmp_path: Path):
    golden = find(name)
    path = copy_of(golden, tmp_path)
    column = golden.indexed[0]
    with pytest.raises(qbeast.QbeastError, match=column):
        qbeast.write_table(golden.expected.drop(column), path, mode="append")
    assert qbeast.open_table(path).version == qbeast.open_table(golden.path).version
