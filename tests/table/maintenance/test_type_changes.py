"""Types that another writer, or `widen_columns` with the feature, widened in the schema alone: older files are cast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.tables import assert_same_rows, small_files
from tests.helpers.type_changes import CHANGES, ROWS, Change, widen_by_others

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
each = pytest.mark.parametrize("change", CHANGES, ids=str)


def table_of(change: Change, path: Path, columns: list[str]) -> Path:
    with small_files(file_rows=150, page_rows=16):
        qbeast.write_table(change.rows, path, columns=columns, cube_size=60)
    return path


def check_reads(path: Path, expected: pl.DataFrame, columns: list[str], other: Path) -> None:
    """Compare filters with Polars, and samples with samples of a table that was written in the new types."""
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), expected, "id")
    values = expected["v"].drop_nulls().unique().sort()
    for value in values.gather_every(6).to_list():
        literal = pl.lit(value, expected.schema["v"])
        for where in (pl.col("v") > literal, pl.col("v") <= literal, pl.col("v") == literal):
            assert_same_rows(table.read(where=where), expected.filter(where), "id")
    with small_files(file_rows=150, page_rows=16):
        qbeast.write_table(expected, other, columns=columns, cube_size=60, mode="overwrite")
    for sample in (0.03, 0.3, (0.2, 0.7)):
        assert_same_rows(table.read(sample=sample), qbeast.read_table(other, sample=sample), "id")


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        *((change, ["v"]) for change in CHANGES),
        *(
            (CHANGES[i], columns)
            for i in (1, 3, 8)
            for columns in (["v:hash"], ["id"], ["id", "v:quantiles"])
        ),
    ],
    ids=str,
)
def test_older_files_read_and_sample_in_new_types(change: Change, columns: list[str], tmp_path: Path) -> None:
    path = table_of(change, tmp_path / "t", columns)
    widen_by_others(path, change.new, [{"fromType": change.old, "toType": change.new}])
    check_reads(path, change.cast, columns, tmp_path / "fresh")
    assert qbeast.open_table(path).check().ok
    with small_files(file_rows=150, page_rows=16):
        qbeast.write_table(change.more, path, mode="append")
    both = pl.concat([change.cast, change.more])
    check_reads(path, both, columns, tmp_path / "fresh")
    table = qbeast.open_table(path)
    assert table.files()["revision_id"].drop_nulls().len() > 0, "new rows are indexed"
    table.optimize()
    assert table.files()["revision_id"].null_count() == 0
    check_reads(path, both, columns, tmp_path / "fresh")
    assert table.check().ok
    qbeast.open_table(path).delete(pl.col("id") % 2 == 0)
    check_reads(path, both.filter(pl.col("id") % 2 == 1), columns, tmp_path / "fresh")


@each
def test_feature_widens_the_schema_alone(change: Change, tmp_path: Path) -> None:
    path = table_of(change, tmp_path / "t", ["id"])
    table = qbeast.open_table(path)
    files = table.files()["path"].to_list()
    result = table.widen_columns({"v": change.wide}, upgrade_protocol=True)
    assert (result.rewritten_files, result.changed, table.schema["v"]) == (0, ("v",), change.wide)
    assert table.files()["path"].to_list() == files
    delta = DeltaTable(path)
    assert "typeWidening" in (delta.protocol().reader_features or ())
    (field,) = [item for item in json.loads(delta.schema().to_json())["fields"] if item["name"] == "v"]
    assert field["metadata"]["delta.typeChanges"] == [{"fromType": change.old, "toType": change.new}]
    check_reads(path, change.cast, ["id"], tmp_path / "fresh")
    qbeast.write_table(change.more, path, mode="append")
    check_reads(path, pl.concat([change.cast, change.more]), ["id"], tmp_path / "fresh")
    assert_same_rows(qbeast.read_table(path, version=0), change.rows, "id")


@each
def test_files_are_rewritten_without_the_feature(change: Change, tmp_path: Path) -> None:
    path = table_of(change, tmp_path / "t", ["id"])
    table = qbeast.open_table(path)
    assert table.widen_columns({"v": change.wide}).rewritten_files > 0
    assert "typeWidening" not in (DeltaTable(path).protocol().reader_features or ())
    assert "delta.typeChanges" not in DeltaTable(path).schema().to_json()
    assert_same_rows(pl.scan_delta(str(path)).collect(), change.cast, "id")
    check_reads(path, change.cast, ["id"], tmp_path / "fresh")


def test_nested_types_are_widened(tmp_path: Path) -> None:
    narrow = pl.Struct({"a": pl.Int32, "l": pl.List(pl.Int8), "m": pl.Map(pl.String, pl.Float32)})
    wide = pl.Struct({"a": pl.Decimal(12, 2), "l": pl.List(pl.Int64), "m": pl.Map(pl.String, pl.Float64)})
    value = [{"a": i % 7, "l": [i % 5, None], "m": {"k": float(np.float32(i / 10))}} for i in range(ROWS)]
    rows = pl.DataFrame([pl.Series("id", range(ROWS)), pl.Series("v", value, dtype=narrow)])
    expected = rows.cast({"v": wide})
    for feature in (True, False):
        path = tmp_path / str(feature)
        with small_files(file_rows=150, page_rows=16):
            qbeast.write_table(rows, path, columns=["id"], cube_size=60)
        table = qbeast.open_table(path)
        table.widen_columns({"v": wide}, upgrade_protocol=feature)
        assert_same_rows(table.read(), expected, "id")
        assert_same_rows(table.read(where="id < 50"), expected.head(50), "id")
        qbeast.write_table(expected.with_columns(pl.col("id") + ROWS), path, mode="append")
        table.refresh().optimize()
        assert table.count() == 2 * ROWS
        assert table.check().ok


def test_changes_are_noted_at_the_nearest_field(tmp_path: Path) -> None:
    narrow = pl.Struct({"a": pl.Int32, "l": pl.List(pl.List(pl.Int8))})
    wide = pl.Struct({"a": pl.Int64, "l": pl.List(pl.List(pl.Int32))})
    rows = pl.DataFrame({"id": [1], "v": [{"a": 1, "l": [[2]]}]}, schema={"id": pl.Int64, "v": narrow})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    qbeast.open_table(tmp_path).widen_columns({"v": wide}, upgrade_protocol=True)
    _, v = json.loads(DeltaTable(tmp_path).schema().to_json())["fields"]
    noted = {field["name"]: field["metadata"] for field in v["type"]["fields"]}
    assert v["metadata"] == {}
    assert noted["a"] == {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    change = {"fromType": "byte", "toType": "integer", "fieldPath": "element.element"}
    assert noted["l"] == {"delta.typeChanges": [change]}


def test_bounds_of_floats_enclose_the_widened_values(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": [1], "v": [3.4]}, schema={"id": pl.Int64, "v": pl.Float32})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    commit = tmp_path / "_delta_log" / f"{0:020d}.json"
    commit.write_text(commit.read_text().replace("3.4000000953674316", "3.4"))
    assert "3.4," in commit.read_text() or "3.4}" in commit.read_text()
    widen_by_others(tmp_path, "double", [{"fromType": "float", "toType": "double"}])
    assert qbeast.open_table(tmp_path).count(pl.col("v") > 3.4) == 1
    assert qbeast.open_table(tmp_path).count(pl.col("v") > 3.5) == 0


@pytest.mark.parametrize(("old", "new"), [("byte", "unsupported"), ("string", "integer"), ("long", "double")])
def test_unsupported_changes_are_refused(old: str, new: str, tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"id": [1], "v": [1]}), tmp_path, columns=["id"])
    widen_by_others(tmp_path, "long", [{"fromType": old, "toType": new}])
    with pytest.raises(qbeast.UnsupportedTableError, match=f"from {old} to {new}"):
        qbeast.open_table(tmp_path)


def test_preview_of_the_feature_is_read(tmp_path: Path) -> None:
    path = table_of(CHANGES[1], tmp_path / "t", ["v"])
    change = {"fromType": "integer", "toType": "long", "tableVersion": "1"}
    widen_by_others(path, "long", [change], preview="-preview")
    check_reads(path, CHANGES[1].cast, ["v"], tmp_path / "fresh")


def test_indexed_columns_are_not_widened_by_us(tmp_path: Path) -> None:
    path = table_of(CHANGES[1], tmp_path / "t", ["v"])
    for upgrade in (True, False):
        with pytest.raises(qbeast.UnsupportedTableError, match="are indexed"):
            qbeast.open_table(path).widen_columns({"v": pl.Int64}, upgrade_protocol=upgrade)
    path = table_of(CHANGES[7], tmp_path / "d", ["v"])
    qbeast.open_table(path).widen_columns({"v": pl.Decimal(12, 2)}, upgrade_protocol=True)
    check_reads(path, CHANGES[7].cast, ["v"], tmp_path / "fresh")
    assert qbeast.open_table(path).files()["revision_id"].null_count() == 0, "the hash is the same"
