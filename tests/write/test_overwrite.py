"""An overwrite keeps how a table is indexed, unless other columns are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows

KINDS = ["email:hash", "b:quantiles", "a:linear"]
ROWS = pl.DataFrame({"row": range(400)}).with_columns(
    email=pl.format("person{}@example.org", pl.col("row").cast(pl.String).str.zfill(4)),
    a=pl.col("row") * 7919 % 401,
    b=(pl.col("row") % 100).cast(pl.Float64) ** 3,
)
NEW = ROWS.with_columns(pl.col("row", "a") + 5000, pl.col("email").str.replace("person", "citizen"))


def kinds(path: Path) -> dict[str, str]:
    return qbeast.open_table(path).revisions[-1].transformer_kinds


@pytest.fixture
def table(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=KINDS, cube_size=50)
    return tmp_path / "t"


@pytest.mark.parametrize("schema_mode", [None, "overwrite"])
def test_overwrite_keeps_kinds_order_and_cube_size(table: Path, schema_mode: Any) -> None:
    before = kinds(table)
    assert list(before.items()) == [("email", "hash"), ("b", "quantiles"), ("a", "linear")]
    planned = qbeast.write_table(NEW, table, mode="overwrite", dry_run=True)
    done = qbeast.write_table(NEW, table, mode="overwrite", schema_mode=schema_mode)
    assert planned.transformers == done.transformers == before == kinds(table)
    assert list(kinds(table)) == list(before)
    assert (planned.cube_size, done.cube_size) == (50, 50)
    assert_same_rows(qbeast.read_table(table), NEW, "row")
    check_invariants(table)


@pytest.mark.parametrize("columns", [["email"], ["b", "email:auto"], ["a:quantiles", "email"]])
def test_hashed_column_stays_hashed_by_default(table: Path, columns: list[str]) -> None:
    qbeast.write_table(NEW, table, columns=columns, mode="overwrite")
    assert kinds(table)["email"] == "hash"
    qbeast.write_table(NEW, table, columns=["email:quantiles"], mode="overwrite")
    assert kinds(table) == {"email": "quantiles"}


def test_named_columns_reset_kinds_and_size(table: Path) -> None:
    result = qbeast.write_table(NEW, table, columns=["b", "a:quantiles"], mode="overwrite")
    assert (result.transformers, result.cube_size) == ({"b": "quantiles", "a": "quantiles"}, 4096)
    assert sorted(read_log(table).revisions) == [0, 2]
    assert_same_rows(qbeast.read_table(table), NEW)
    assert_same_rows(qbeast.read_table(table, version=0), ROWS)


def test_converted_table_keeps_requested_kinds(tmp_path: Path) -> None:
    ROWS.write_delta(tmp_path / "t")
    qbeast.convert_table(tmp_path / "t", columns=["email:hash", "b"])
    qbeast.write_table(NEW, tmp_path / "t", mode="overwrite")
    assert kinds(tmp_path / "t") == {"email": "hash", "b": "quantiles"}


def test_column_of_another_type_gets_fitting_kind(table: Path) -> None:
    other = NEW.with_columns(pl.col("a").cast(pl.String), pl.col("email").hash().cast(pl.Int64, strict=False))
    qbeast.write_table(other, table, mode="overwrite", schema_mode="overwrite")
    assert kinds(table) == {"email": "hash", "b": "quantiles", "a": "quantiles"}
    times = NEW.with_columns(email=pl.lit(0).cast(pl.Datetime("us", "UTC")))
    for columns in (None, ["email"]):
        with pytest.raises(qbeast.InvalidColumnsError, match="Write 'email:linear' or 'email:quantiles'"):
            qbeast.write_table(times, table, columns=columns, mode="overwrite", schema_mode="overwrite")
    qbeast.write_table(
        times, table, columns=["email:linear", "row"], mode="overwrite", schema_mode="overwrite"
    )
    assert kinds(table)["email"] == "linear"


def test_jvm_dialect_lists_kinds_and_cube_size(tmp_path: Path) -> None:
    options: Any = {"columns": ["email", "a"], "cube_size": 500, "dialect": "qbeast-spark"}
    qbeast.write_table(ROWS, tmp_path / "t", **options)
    qbeast.write_table(NEW, tmp_path / "t", mode="overwrite")
    configuration = read_log(tmp_path / "t").configuration
    assert (configuration["columnsToIndex"], configuration["cubeSize"]) == ("email:hashing,a:linear", "500")


def test_messages_show_column_kinds(table: Path) -> None:
    opened = qbeast.open_table(table)
    with pytest.raises(qbeast.UnsupportedTableError) as caught:
        opened.widen_columns({"b": pl.Int8})
    assert "columns=['email:hash', 'b:quantiles', 'a:linear']" in str(caught.value)
    emails = ROWS.with_columns(row=0)
    with pytest.warns(qbeast.DesignEffectWarning, match="'email:hash'"):
        qbeast.write_table(emails, table.with_name("clustered"), columns=["row"])
