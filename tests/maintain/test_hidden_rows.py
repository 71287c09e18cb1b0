"""Operations on tables with deletion vectors: rows that are hidden stay hidden, and the vectors are valid."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame(
    {
        "id": range(1000),
        "x": [(i * 37) % 1009 for i in range(1000)],
        "text": [f"t{i % 9}" for i in range(1000)],
    }
)
GONE = pl.col("x") % 20 == 3
LEFT = ROWS.filter(~GONE)
NOW: dict[str, Any] = {"retention_hours": 0, "allow_short_retention": True, "dry_run": False}


def hiding(path: Path, columns: list[str], properties: dict[str, str] | None = None) -> qbeast.Table:
    """Write a table, and hide some of its rows."""
    qbeast.write_table(ROWS.clear(), path, columns=columns, deletion_vectors=True)
    if properties:
        qbeast.open_table(path).set_properties(properties)
    qbeast.write_table(ROWS, path, mode="append")
    table = qbeast.open_table(path)
    table.delete(GONE)
    assert table.snapshot.files["has_deletion_vector"].any()
    return table


def vectors(path: Path) -> set[str]:
    return {item.name for item in path.rglob("deletion_vector_*.bin")}


def reindex(table: qbeast.Table) -> pl.DataFrame:
    table.reindex(["x", "text"])
    return LEFT


def convert(table: qbeast.Table) -> pl.DataFrame:
    qbeast.convert_table(table.uri, columns=["text"])
    return LEFT


def rename(table: qbeast.Table) -> pl.DataFrame:
    table.rename_column("text", "words", upgrade_protocol=True)
    return LEFT.rename({"text": "words"})


def drop(table: qbeast.Table) -> pl.DataFrame:
    table.drop_column("text", upgrade_protocol=True)
    return LEFT.drop("text")


def add(table: qbeast.Table) -> pl.DataFrame:
    table.add_columns({"more": "double"})
    return LEFT.with_columns(more=pl.lit(None, pl.Float64))


def sample(table: qbeast.Table) -> pl.DataFrame:
    table.add_sample_column("sample")
    return LEFT


def disable(table: qbeast.Table) -> pl.DataFrame:
    table.set_properties({"delta.enableDeletionVectors": None})
    return LEFT


def restore(table: qbeast.Table) -> pl.DataFrame:
    version = table.version
    table.delete(pl.col("x") % 20 == 7)
    table.optimize(purge=True)
    table.restore(version)
    return LEFT


def repair(table: qbeast.Table) -> pl.DataFrame:
    table.repair()
    return LEFT


def checkpoint(table: qbeast.Table) -> pl.DataFrame:
    DeltaTable(table.uri).create_checkpoint()
    return LEFT


OPERATIONS: list[Callable[[qbeast.Table], pl.DataFrame]] = [
    *(add, checkpoint, convert, disable, drop, rename, repair, restore, reindex, sample),
]


@pytest.mark.parametrize("columns", [["id", "x"], []], ids=["indexed", "plain"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_hidden_rows_stay_hidden(
    tmp_path: Path, operation: Callable[[qbeast.Table], pl.DataFrame], columns: list[str]
) -> None:
    if operation in ((convert,) if columns else (reindex, sample)):
        pytest.skip("for the other kind of table")
    table = hiding(tmp_path / "t", columns)
    expected = operation(table)
    table = qbeast.open_table(tmp_path / "t")
    names = expected.columns
    assert_same_rows(table.read(columns=names), expected, key="id")
    assert table.count() == expected.height
    if operation not in (rename, drop):  # Polars does not read mapped columns with vectors
        assert_same_rows(pl.read_delta(table.uri).select(names), expected, key="id")
    assert table.check().ok, table.check()
    table.delete(pl.col("x") % 20 == 9)
    left = expected.filter(pl.col("x") % 20 != 9)
    assert_same_rows(table.read(columns=names), left, key="id")
    table.optimize(purge=True)
    assert_same_rows(table.read(columns=names), left, key="id")
    assert table.check().ok, table.check()


@pytest.mark.parametrize("columns", [["id"], []], ids=["indexed", "plain"])
def test_widened_columns_keep_hidden_rows(tmp_path: Path, columns: list[str]) -> None:
    rows = ROWS.with_columns(pl.col("x").cast(pl.Int32))
    qbeast.write_table(rows, tmp_path / "t", columns=columns, deletion_vectors=True)
    table = qbeast.open_table(tmp_path / "t")
    table.delete(GONE)
    table.widen_columns({"x": pl.Int64})
    assert_same_rows(table.read(), LEFT, key="id")
    assert table.check().ok, table.check()


def test_vacuum_keeps_vectors_of_versions_within_retention(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = hiding(path, ["id"])
    first = vectors(path)
    table.delete(pl.col("x") % 20 == 9)
    both = vectors(path)
    assert len(first) == 1
    assert len(both) == 2
    then = time.time() - 30 * 86_400
    for item in path.rglob("*"):
        os.utime(item, (then, then))
    assert table.vacuum(dry_run=False).files == ()
    assert_same_rows(qbeast.read_table(path, version=table.version - 1), LEFT, key="id")
    assert set(table.vacuum(**NOW).files) == first
    assert vectors(path) == both - first
    assert_same_rows(table.read(), LEFT.filter(pl.col("x") % 20 != 9), key="id")
    assert table.check().ok
    with pytest.raises(qbeast.VersionNotFoundError, match="deletion_vector"):
        table.restore(table.version - 1)
    table.optimize(purge=True)
    table.vacuum(**NOW)
    assert vectors(path) == set()


def test_vacuum_removes_vectors_of_no_version(tmp_path: Path) -> None:
    """As a writer leaves them that is killed before its commit."""
    path = tmp_path / "t"
    table = hiding(path, ["id"])
    live = vectors(path)
    stray = path / "deletion_vector_00000000-0000-4000-8000-000000000000.bin"
    stray.write_bytes(b"\1")
    os.utime(stray, (time.time() - 60,) * 2)
    assert table.vacuum(**{**NOW, "dry_run": True}).files == (stray.name,)
    table.vacuum(**NOW)
    assert vectors(path) == live


@pytest.mark.filterwarnings("ignore::qbeast.HiddenColumnWarning")
def test_dialect_of_readers_without_vectors_needs_a_purge(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id:linear", "x:linear"], deletion_vectors=True)
    table = qbeast.open_table(tmp_path / "t")
    table.delete(GONE)
    with pytest.raises(qbeast.InvalidInputError, match=r"optimize\(purge=True\)"):
        table.switch_dialect("qbeast-spark")
    table.optimize(purge=True)
    table.set_properties({"delta.enableDeletionVectors": "false"})
    table.switch_dialect("qbeast-spark")
    table.delete(pl.col("x") % 20 == 9)
    stored = pl.concat([pl.read_parquet(path, columns=["id"]) for path in table.rows().files()["path"]])
    assert_same_rows(stored, LEFT.filter(pl.col("x") % 20 != 9).select("id"), key="id")
