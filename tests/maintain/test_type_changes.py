"""Types that another writer, or `widen_columns` with the feature, widened in the schema alone: older files are cast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.tables import assert_same_rows, sampled, small_files
from tests.helpers.type_changes import CHANGES, ROWS, Change, widen_by_others

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
FEW = ("byte-long", "byte-decimal(10,0)", "long-decimal(20,0)", "decimal(9,2)-decimal(12,2)")
each = pytest.mark.parametrize(
    "change",
    [pytest.param(item, marks=[pytest.mark.sweep] if str(item) in FEW else []) for item in CHANGES],
    ids=str,
)


def table_of(change: Change, path: Path, columns: list[str]) -> Path:
    with small_files(file_rows=70, page_rows=8):
        qbeast.write_table(change.rows, path, columns=columns, cube_size=20)
    return path


def check_reads(path: Path, expected: pl.DataFrame, columns: list[str]) -> None:
    """Compare filters and samples with those of rows in the new types."""
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), expected, "id")
    values = expected["v"].drop_nulls().unique().sort()
    low, high = (pl.lit(values[at], values.dtype) for at in (2, -3))
    for where in (pl.col("v") > low, pl.col("v") <= high, pl.col("v") == low):
        assert_same_rows(table.read(where=where), expected.filter(where), "id")
    hashed = [name.partition(":")[0] for name in columns]
    assert_same_rows(table.read(sample=(0.2, 0.7)), sampled(expected, hashed, (0.2, 0.7)), "id")


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        (CHANGES[1], ["v"]),
        (CHANGES[9], ["v"]),
        (CHANGES[3], ["v:hash"]),
        (CHANGES[8], ["id", "v:quantiles"]),
        *(
            pytest.param(change, columns, marks=pytest.mark.sweep)
            for change in CHANGES
            for columns in (["v"], ["v:hash"], ["id"], ["id", "v:quantiles"])
            if columns != ["v:hash"] or change.old != "date"
        ),
    ],
    ids=str,
)
def test_older_files_read_and_sample_in_new_types(change: Change, columns: list[str], tmp_path: Path) -> None:
    path = table_of(change, tmp_path, columns)
    widen_by_others(path, change.new, [{"fromType": change.old, "toType": change.new}])
    check_reads(path, change.cast, columns)
    with small_files(file_rows=70, page_rows=8):
        qbeast.write_table(change.more, path, mode="append")
    both = pl.concat([change.cast, change.more])
    check_reads(path, both, columns)
    table = qbeast.open_table(path)
    assert table.rows().files()["revision_id"].drop_nulls().len() > 0, "new rows are indexed"
    table.delete(pl.col("id") % 8 == 0)
    table.optimize()
    assert table.rows().files()["revision_id"].null_count() == 0
    check_reads(path, both.filter(pl.col("id") % 8 > 0), columns)
    assert table.check().ok


@each
def test_feature_widens_the_schema_alone(change: Change, tmp_path: Path) -> None:
    path = table_of(change, tmp_path, ["id"])
    table = qbeast.open_table(path)
    files = table.rows().files()["path"].to_list()
    result = table.widen_columns({"v": change.wide}, upgrade_protocol=True)
    assert (result.rewritten_files, result.changed, table.schema["v"]) == (0, ("v",), change.wide)
    assert table.rows().files()["path"].to_list() == files
    delta = DeltaTable(path)
    assert "typeWidening" in (delta.protocol().reader_features or ())
    (field,) = [item for item in json.loads(delta.schema().to_json())["fields"] if item["name"] == "v"]
    assert field["metadata"]["delta.typeChanges"] == [{"fromType": change.old, "toType": change.new}]
    qbeast.write_table(change.more, path, mode="append")
    check_reads(path, pl.concat([change.cast, change.more]), ["id"])
    assert_same_rows(qbeast.read_table(path, version=0), change.rows, "id")


@each
def test_files_are_rewritten_without_the_feature(change: Change, tmp_path: Path) -> None:
    path = table_of(change, tmp_path, ["id"])
    table = qbeast.open_table(path)
    assert table.widen_columns({"v": change.wide}).rewritten_files > 0
    assert "typeWidening" not in (DeltaTable(path).protocol().reader_features or ())
    assert "delta.typeChanges" not in DeltaTable(path).schema().to_json()
    assert_same_rows(pl.scan_delta(str(path)).collect(), change.cast, "id")
    check_reads(path, change.cast, ["id"])


@pytest.mark.parametrize("feature", [True, False])
def test_nested_types_are_widened(tmp_path: Path, *, feature: bool) -> None:
    narrow = pl.Struct({"a": pl.Int32, "l": pl.List(pl.Int8), "m": pl.Map(pl.String, pl.Float32)})
    wide = pl.Struct({"a": pl.Decimal(12, 2), "l": pl.List(pl.Int64), "m": pl.Map(pl.String, pl.Float64)})
    value = [{"a": i % 7, "l": [i % 5, None], "m": {"k": float(np.float32(i / 10))}} for i in range(ROWS)]
    rows = pl.DataFrame([pl.Series("id", range(ROWS)), pl.Series("v", value, dtype=narrow)])
    expected = rows.cast({"v": wide})
    with small_files(file_rows=60, page_rows=16):
        qbeast.write_table(rows, tmp_path, columns=["id"], cube_size=60)
    table = qbeast.open_table(tmp_path)
    table.widen_columns({"v": wide}, upgrade_protocol=feature)
    assert_same_rows(table.read(), expected, "id")
    assert_same_rows(table.read(where="id < 50"), expected.head(50), "id")
    qbeast.write_table(expected.with_columns(pl.col("id") + ROWS), tmp_path, mode="append")
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
    path = table_of(CHANGES[1], tmp_path / "i", ["v"])
    change = {"fromType": "integer", "toType": "long", "tableVersion": "1"}
    widen_by_others(path, "long", [change], preview="-preview")
    check_reads(path, CHANGES[1].cast, ["v"])


def test_indexed_columns_are_not_widened_by_us(tmp_path: Path) -> None:
    path = table_of(CHANGES[1], tmp_path / "i", ["v"])
    for upgrade in (True, False):
        with pytest.raises(qbeast.UnsupportedTableError, match="are indexed"):
            qbeast.open_table(path).widen_columns({"v": pl.Int64}, upgrade_protocol=upgrade)
    path = table_of(CHANGES[7], tmp_path / "d", ["v"])
    qbeast.open_table(path).widen_columns({"v": pl.Decimal(12, 2)}, upgrade_protocol=True)
    check_reads(path, CHANGES[7].cast, ["v"])
    assert qbeast.open_table(path).rows().files()["revision_id"].null_count() == 0, "the hash is the same"
