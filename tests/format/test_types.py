"""Variants, voids, widened types and collations of other writers: rows are the same after each of our operations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from tests.format.collection import swept
from tests.format.delta_tables import TABLES, expected

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
FIELD = {
    "variant/spark-variant-checkpoint": "id",
    "void/void-column": "id",
    "type-widening/type-widening": "int_long",
    "type-widening/type-widening_2": "float_double",
    "collations/collations-preview-table": "utf8_binary_col",
    "byte-and-short-without-annotation/no_stats_various_types": "c_smallint",
}
VARIANT = pl.Struct({"metadata": pl.Binary, "value": pl.Binary})


def converted(name: str, folder: Path) -> Path:
    path = Path(shutil.copytree(TABLES / name, folder / "t"))
    qbeast.convert_table(path, columns=[FIELD[name]])
    return path


def same(path: Path, rows: pl.DataFrame) -> None:
    found = qbeast.read_table(path)
    assert found.schema == rows.schema
    assert_frame_equal(found, rows, check_row_order=False)


def schema_of(path: Path) -> Any:
    return json.loads(DeltaTable(path).schema().to_json())["fields"]


@pytest.mark.parametrize("name", swept(FIELD, but=["collations/collations-preview-table"]))
def test_rows_stay_after_each_operation(name: str, tmp_path: Path) -> None:
    rows, key, path = expected(name), FIELD[name], converted(name, tmp_path)
    rows = rows.select(qbeast.open_table(path).columns)
    fields, protocol = schema_of(path), DeltaTable(path).protocol()
    same(path, rows)
    qbeast.open_table(path).optimize(full=True)
    same(path, rows)
    more = rows.with_columns(pl.lit(None, rows.schema[key]).alias(key))
    qbeast.write_table(more, path, mode="append")
    same(path, pl.concat([rows, more]))
    table = qbeast.open_table(path)
    table.optimize()
    table.delete(pl.col(key).is_null())
    rows = rows.filter(pl.col(key).is_not_null())
    same(path, rows)
    other = rows.columns[-1]
    table.update(True, {other: pl.lit(None, rows.schema[other])})  # noqa: FBT003
    same(path, rows.with_columns(pl.lit(None, rows.schema[other]).alias(other)))
    if rows[key].is_unique().all():
        table.merge(rows, on=key)
        same(path, rows)
    qbeast.write_table(rows, path, mode="overwrite")
    same(path, rows)
    assert qbeast.open_table(path).check().ok
    assert (schema_of(path), DeltaTable(path).protocol()) == (fields, protocol)
    if rows.height and "type-widening" not in name:  # delta-rs does not read widened types
        found = pl.DataFrame(DeltaTable(path).to_pyarrow_table()).select(rows.columns)
        assert_frame_equal(found.cast(rows.schema), rows, check_row_order=False)


def test_files_have_variants_as_spark_reads_them(tmp_path: Path) -> None:
    path = converted("variant/spark-variant-checkpoint", tmp_path)
    table = qbeast.open_table(path)
    table.update("id < 20", {"v": pl.lit(None, VARIANT)})
    table.optimize(full=True)
    (file,) = table.rows().files()["path"].to_list()
    columns = pq.ParquetFile(path / file).schema
    binaries = [
        columns.column(i) for i in range(len(columns)) if columns.column(i).name in ("value", "metadata")
    ]
    assert len(binaries) == 12
    assert {column.path.rpartition(".")[2] for column in binaries} == {"value", "metadata"}
    arrow = pq.read_schema(path / file)
    assert not any(field.nullable for field in arrow.field("v").type)
    assert not any(field.nullable for field in arrow.field("array_of_variants").type.value_type)
    (stats,) = pl.DataFrame(DeltaTable(path).get_add_actions())["null_count"].to_list()
    assert (stats["v"], stats["struct_of_variants"]) == (table.count(pl.col("v").is_null()), {"v": 0})
    assert table.count(pl.col("v").is_null()) > 0


def test_variants_are_not_indexed(tmp_path: Path) -> None:
    path = Path(shutil.copytree(TABLES / "variant/spark-variant-checkpoint", tmp_path / "t"))
    with pytest.raises(qbeast.InvalidColumnsError, match=r"'v' has type Struct.* cannot be indexed"):
        qbeast.convert_table(path, columns=["v"])


def test_incomplete_variants_are_refused(tmp_path: Path) -> None:
    path = converted("variant/spark-variant-checkpoint", tmp_path)
    rows = qbeast.read_table(path).head(1)
    half = rows.with_columns(v=pl.struct(metadata=pl.lit(b"m"), value=pl.lit(None, pl.Binary)))
    with pytest.raises(qbeast.InvalidInputError, match="variant has no 'value'"):
        qbeast.write_table(half, path, mode="append")
    assert qbeast.read_table(path).height == 102


def test_fields_of_variants_come_in_any_order(tmp_path: Path) -> None:
    path = converted("variant/spark-variant-checkpoint", tmp_path)
    rows = qbeast.read_table(path)
    v = pl.col("v").struct
    turned = rows.with_columns(v=pl.struct(v.field("value"), v.field("metadata")))
    qbeast.write_table(turned, path, mode="append")
    same(path, pl.concat([rows, rows]))


def test_void_columns_get_a_type(tmp_path: Path) -> None:
    path = converted("void/void-column", tmp_path)
    with pytest.raises(qbeast.SchemaMismatchError, match="void_col"):
        qbeast.write_table(pl.DataFrame({"id": [9], "void_col": [1]}), path, mode="append")
    assert qbeast.open_table(path).widen_columns({"void_col": pl.Int64}).rewritten_files == 0
    qbeast.write_table(pl.DataFrame({"id": [9], "void_col": [1]}), path, mode="append")
    same(path, pl.DataFrame({"id": [1, 2, 3, 9], "void_col": [None, None, None, 1]}))


def test_files_leave_voids_out(tmp_path: Path) -> None:
    path = converted("void/void-column", tmp_path)
    table = qbeast.open_table(path)
    table.optimize()
    (file,) = table.rows().files()["path"].to_list()
    assert pq.read_schema(path / file).names == ["id", "_qbeast_weight"]


def test_voids_in_lists_are_only_read(tmp_path: Path) -> None:
    path = converted("void/void-column", tmp_path)
    for commit in (path / "_delta_log").glob("*.json"):
        array = r"{\"type\":\"array\",\"elementType\":\"void\",\"containsNull\":true}"
        commit.write_text(commit.read_text().replace(r"\"void\"", array))
    table = qbeast.open_table(path)
    assert table.read().schema["void_col"] == pl.List(pl.Null)
    for change in (lambda: qbeast.write_table(table.read(), path, mode="append"), table.optimize):
        with pytest.raises(qbeast.UnsupportedTableError, match="void inside void_col"):
            change()


def test_collated_columns_are_compared_by_bytes_and_not_pruned(tmp_path: Path) -> None:
    path = converted("collations/collations-preview-table", tmp_path)
    names = ["b", "A", "a", "B"] * 5
    rows = pl.DataFrame(
        {"id": range(20), "utf8_binary_col": names, "utf8_lcase_col": names, "unicode_col": names}
    )
    qbeast.write_table(rows.cast({"id": pl.Int32}), path, mode="append")
    commit = max((path / "_delta_log").glob("*.json"))
    # As a writer whose bounds follow the collation.
    wrong = commit.read_text().replace(r"\"unicode_col\":\"A\"", r"\"unicode_col\":\"a\"", 1)
    assert wrong != commit.read_text()
    commit.write_text(wrong)
    for name in ("utf8_binary_col", "utf8_lcase_col", "unicode_col"):
        table = qbeast.open_table(str(path))
        assert table.count(pl.col(name) == "A") == 5
        assert table.count(pl.col(name) < "B") == 5
    with pytest.raises(qbeast.InvalidColumnsError, match="collation"):
        qbeast.open_table(path).reindex(columns=["unicode_col"])
