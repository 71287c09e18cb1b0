"""Checks and repairs of deletion vectors: missing files, other bytes, and other counts than in the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder

import qbeast
from tests.helpers import damage as d
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"id": range(900), "p": [i // 300 for i in range(900)]})
GONE = pl.col("id") % 50 == 7
LEFT = ROWS.filter(~GONE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of three files, whose vectors are in one file."""
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=["id"], partition_by=["p"], deletion_vectors=True)
    qbeast.open_table(path).delete(GONE)
    return path


def bytes_of_vectors(path: Path) -> tuple[Path, bytes]:
    (file,) = path.glob("deletion_vector_*.bin")
    return file, file.read_bytes()


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_shared_file_of_vectors_is_sound(path: Path) -> None:
    report = qbeast.open_table(path).check()
    assert report.ok, report
    assert qbeast.open_table(path).check(data=False).ok


@pytest.mark.parametrize("data", [True, False])
def test_missing_file_is_a_fault_of_each_data_file(path: Path, *, data: bool) -> None:
    file, _ = bytes_of_vectors(path)
    file.unlink()
    table = qbeast.open_table(path)
    faults = table.check(data=data).faults
    assert set(faults["code"]) == {"deletion-vector"}
    assert sorted(faults["path"]) == sorted(
        file.relative_to(path).as_posix() for file in path.glob("*/*.parquet")
    )
    repaired = table.repair()
    assert not repaired.committed
    assert repaired.remaining.height == 3
    assert table.restore(0).committed
    assert_same_rows(table.read(), ROWS, key="id")


def test_damaged_bytes_are_a_fault_of_their_file(path: Path) -> None:
    file, whole = bytes_of_vectors(path)
    file.write_bytes(flip(whole, len(whole) - 10))
    table = qbeast.open_table(path)
    faults = table.check().faults
    assert faults["code"].to_list() == ["deletion-vector"]
    file.write_bytes(whole)
    assert table.check().ok


def cardinality(change: Callable[[int], int | None]) -> d.Damage:
    def spoil(_table: Path, add: dict[str, Any], _indexed: list[str]) -> None:
        vector = add["deletionVector"]
        vector["cardinality"] = change(vector["cardinality"])

    return spoil


@pytest.mark.parametrize("wrong", [0, 5, 7, 299, 300, 1 << 40])
def test_repair_corrects_counts_of_vectors(path: Path, wrong: int) -> None:
    d.spoil(path, cardinality(lambda _: wrong), indexed=["id"], at=-1)
    table = qbeast.open_table(path)
    with pytest.raises(qbeast.InvalidMetadataError, match=r"Table.repair\(\)"):
        table.read()
    assert table.check().faults["code"].to_list() == ["vector-count"]
    assert table.repair().repaired_files["actions"].to_list() == [["set vector count"]]
    assert table.check().ok
    assert_same_rows(table.read(), LEFT, key="id")
    assert table.count() == LEFT.height
    rows = QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT id, p FROM t").read_all()
    assert_same_rows(pl.DataFrame(rows), LEFT, key="id")


def test_change_with_wrong_count_keeps_other_rows(path: Path) -> None:
    """By such a count, all rows of the file would match."""
    d.spoil(path, cardinality(lambda _: 299), indexed=["id"], at=-1)
    table = qbeast.open_table(path)
    with pytest.raises(qbeast.InvalidMetadataError):
        table.delete(pl.col("id") % 300 == 1)
    assert table.version == 1
