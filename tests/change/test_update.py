"""Values that an update takes, and rows that move to other cubes; `test_changes` covers what rows become."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

import qbeast
from tests.helpers.changes import spread
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def test_update_keeps_files_without_matches(tmp_path: Path) -> None:
    rows = spread(240)
    with small_files(file_rows=20, page_rows=20):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear", "a"], cube_size=30)
        table = qbeast.open_table(tmp_path / "t")
        before = set(table.rows().files()["path"])
        request = table.update(f"{ROW} < 10", {"f": "0.5"}, dry_run=True)
        assert (request.committed, request.rows_updated, table.version) == (False, 10, 0)
        result = table.update(f"{ROW} < 10", {"f": "0.5"})
    assert result.plan.filter(pl.col("action") == "rewrite").equals(request.plan)
    assert request.plan["matched"].sum() == 10
    assert request.rows_copied <= result.rows_copied
    assert (
        len(before & set(table.rows().files()["path"]))
        == len(before) - result.files_removed
        > len(before) / 2
    )
    assert "a dry run: 10 rows updated" in repr(request)
    assert "10 rows updated" in repr(result)
    check_invariants(tmp_path / "t")


def test_value_beyond_space_moves_only_its_row(tmp_path: Path) -> None:
    rows = spread(240)
    with small_files(file_rows=20, page_rows=20):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear"], cube_size=20)
        table = qbeast.open_table(tmp_path / "t")
        result = table.update(pl.col(ROW) == 100, {ROW: pl.lit(10**6)})
    assert (result.new_revision, result.revision_id, result.rows_updated) == (True, 2, 1)
    assert result.files_removed < 10
    files = table.rows().files()
    assert files.filter(pl.col("revision_id") == 2)["num_records"].to_list() == [1]
    assert files["revision_id"].unique().sort().to_list() == [1, 2]
    assert_same_rows(table.read(), rows.with_columns(pl.col(ROW).replace(100, 10**6)))
    assert table.rows(pl.col(ROW) > 5_000).explain().rows_opened == 1
    check_invariants(tmp_path / "t")
    assert table.check().faults.is_empty()


def test_unindexed_values_keep_rows_in_their_cubes(path: Path, table: qbeast.Table) -> None:
    before, revisions = table.rows(sample=0.3).lazy().select(ROW).collect(), len(table.revisions)
    with small_files():
        table.update(where=True, set={"f": pl.col("f") + 1, "d": date(2020, 1, 1)})
    assert_same_rows(table.rows(sample=0.3).lazy().select(ROW).collect(), before)
    assert len(table.revisions) == revisions
    assert table.rows().lazy().select("d").unique().collect()["d"].to_list() == [date(2020, 1, 1)]
    check_invariants(path)


def test_values_are_computed_only_for_matching_rows(tmp_path: Path) -> None:
    rows = pl.DataFrame({ROW: range(100), "s": [str(i) if i % 2 else "no number" for i in range(100)]})
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    table = qbeast.open_table(tmp_path / "t")
    digits = pl.col("s").str.contains(r"^\d+$")
    table.update(digits, {ROW: pl.col("s").cast(pl.Int64) + 1000})
    assert table.rows().lazy().filter(pl.col(ROW) >= 1000).collect().height == 50
    with pytest.raises(qbeast.InvalidInputError, match="cannot be computed"):
        table.update(~digits, {ROW: pl.col("s").cast(pl.Int64)})
    assert table.version == 1
    check_invariants(tmp_path / "t")


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"a": "b"}, qbeast.InvalidInputError, "no such column"),
        ({"a": "1.5"}, qbeast.SchemaMismatchError, "Cast it"),
        ({"a": pl.lit("x")}, qbeast.SchemaMismatchError, "Cast it"),
        ({"a": pl.col("a").sum()}, qbeast.InvalidInputError, "several columns or rows"),
        ({"d": datetime(2024, 1, 1, tzinfo=UTC)}, qbeast.SchemaMismatchError, "Cast it"),
        ({"a": object()}, qbeast.InvalidInputError, "object"),
        ({"small": "a * 1000"}, qbeast.InvalidInputError, "cannot be computed"),
    ],
)
def test_invalid_values_raise(tmp_path: Path, values: Any, error: type[Exception], message: str) -> None:
    rows = spread(100).with_columns(small=pl.lit(1, pl.Int8))
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    with pytest.raises(error, match=message):
        qbeast.open_table(tmp_path / "t").update("a > 3", values)
    assert read_log(tmp_path / "t").version == 0
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows)


def test_numbers_are_cast_to_the_column_type(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {ROW: [1], "tiny": [1], "half": [0.5], "exact": [Decimal("1.25")]},
        schema={ROW: pl.Int64, "tiny": pl.Int8, "half": pl.Float32, "exact": pl.Decimal(10, 2)},
    )
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    table = qbeast.open_table(tmp_path / "t")
    table.update(where=True, set={ROW: pl.col("tiny"), "tiny": 7, "half": "1.5", "exact": Decimal("3.5")})
    assert table.read().rows() == [(1, 7, 1.5, Decimal("3.50"))]
    assert table.read().schema == rows.schema


def test_required_column_stays_without_nulls(tmp_path: Path) -> None:
    fields = [Field("id", PrimitiveType("long"), nullable=False), Field("x", PrimitiveType("long"))]
    DeltaTable.create(tmp_path / "t", Schema(fields))
    write_deltalake(tmp_path / "t", pl.DataFrame({"id": [1, 2, 3], "x": [1, None, 3]}), mode="append")
    qbeast.convert_table(tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t")
    with pytest.raises(qbeast.SchemaMismatchError, match="may hold no nulls"):
        table.update(where=True, set={"id": "x"})
    assert table.update("x IS NOT NULL", {"id": "x + 1"}).rows_updated == 2
    assert sorted(table.read()["id"]) == [2, 2, 4]
