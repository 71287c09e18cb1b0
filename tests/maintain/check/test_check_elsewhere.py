"""Checks and repairs of tables with deleted rows, copies, added columns and files outside their folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from tests.format.collection import find
from tests.helpers import damage as d
from tests.helpers.deletion_vectors import delete
from tests.helpers.invariants import read_log
from tests.helpers.tables import small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")

ROWS = pl.DataFrame({"id": range(4000), "x": [(i * 7919) % 4001 for i in range(4000)]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id", "x"], cube_size=500)
    return tmp_path / "t"


def test_repair_keeps_deleted_rows_deleted(path: Path) -> None:
    delete(path, [0, 7, 3999])
    table = qbeast.open_table(path)
    assert table.check().ok, table.check()
    kept = table.read().sort("id")
    assert kept.height == 3997
    d.spoil(path, d.tags(blocks="oops"), indexed=["id", "x"], at=-1)
    table = qbeast.open_table(path)
    assert table.repair().repaired_files["actions"].to_list() == [["restore tags"]]
    assert table.read().sort("id").equals(kept)
    assert table.check().ok


def test_files_with_deleted_rows_keep_loose_statistics(path: Path) -> None:
    delete(path, [5])
    spoiled = d.spoil(
        path, d.stats(lambda actual: actual["maxValues"].update(id=3)), indexed=["id", "x"], at=-1
    )
    table = qbeast.open_table(path)
    assert set(table.check().faults["code"]) == {"stats-bounds"}
    table.repair()
    add = read_log(path).adds[spoiled.path]
    assert json.loads(add["stats"]) == {"numRecords": 4000, "tightBounds": False}
    assert "deletionVector" in add
    assert table.read().height == 3999


def test_unreadable_deletion_vector_is_a_fault(path: Path) -> None:
    delete(path, [5])
    d.spoil(
        path,
        lambda _table, add, _indexed: add["deletionVector"].update(pathOrInlineDv="0" * 40),
        indexed=["id", "x"],
        at=-1,
    )
    table = qbeast.open_table(path)
    report = table.check()
    assert set(report.faults["code"]) == {"deletion-vector"}
    assert not table.repair().committed


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A table of before 0.6.0 with a copy of its first file."""
    path = Path(shutil.copytree(find("legacy/v040_identity_null").path, tmp_path / "t"))
    name, add = next(iter(read_log(path).adds.items()))
    shutil.copy(path / name, path / "copy.parquet")
    commit(path, 1, {"add": add | {"path": "copy.parquet", "tags": add["tags"] | {"state": "REPLICATED"}}})
    return path


def commit(path: Path, version: int, action: dict[str, Any]) -> None:
    (path / "_delta_log" / f"{version:020}.json").write_text(json.dumps(action) + "\n")


def test_copy_without_original_is_named(copied: Path) -> None:
    assert qbeast.open_table(copied).check().ok
    original = next(iter(read_log(copied).adds))
    commit(copied, 2, {"remove": {"path": original, "deletionTimestamp": 1, "dataChange": True}})
    table = qbeast.open_table(copied)
    assert table.check().faults.select("path", "code").rows() == [("copy.parquet", "copy-alone")]
    result = table.repair()
    assert not result.committed
    assert "restore an older version" in repr(result)


def test_repair_never_shows_copies(copied: Path) -> None:
    expected = find("legacy/v040_identity_null").expected
    d.spoil(copied, d.tags(cube="!!"), indexed=[], at=-1)
    table = qbeast.open_table(copied)
    assert "which reads must skip" in repr(table.repair())
    assert table.count() == expected.height


def test_files_without_later_columns_pass(path: Path) -> None:
    later = ROWS.with_columns(pl.col("id") + 4000, note=pl.lit("new"))
    qbeast.write_table(later, path, mode="append", schema_mode="merge")
    report = qbeast.open_table(path).check()
    assert report.ok, report
    assert report.rows == 8000


def test_nested_columns_and_their_statistics_are_checked(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(300)}).with_columns(
        pl.struct(n=pl.col("id") % 7, s=pl.format("s{}", "id")).alias("deep"),
        pl.concat_list("id", "id").alias("many"),
        (pl.col("id") % 2 == 0).alias("even"),
    )
    with small_files(file_rows=100, page_rows=16):
        qbeast.write_table(rows, tmp_path / "t", columns=["id"], cube_size=50)
    assert qbeast.open_table(tmp_path / "t").check().ok
    d.spoil(tmp_path / "t", d.stats(lambda actual: actual["maxValues"]["deep"].update(n=3)), indexed=["id"])
    (fault,) = qbeast.open_table(tmp_path / "t").check().faults.iter_rows(named=True)
    assert "'deep.n' holds 6, above the max of its statistics" in fault["message"]


def test_file_outside_the_folder_is_found(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where" / "part.parquet"

    def move(table: Path, add: d.Add, _indexed: list[str]) -> None:
        elsewhere.parent.mkdir()
        shutil.move(table / add["path"], elsewhere)
        add["path"] = str(elsewhere).replace(" ", "%20")

    d.spoil(path, move, indexed=["id", "x"])
    report = qbeast.open_table(path, allow_absolute_paths=True).check()
    assert report.ok, report
    (fault,) = qbeast.open_table(path).check().faults.iter_rows(named=True)
    assert (fault["code"], fault["path"]) == ("file-outside", str(elsewhere))
    assert "allow_absolute_paths=True" in fault["message"]
    assert not qbeast.open_table(path).repair().committed
    elsewhere.unlink()
    faults = qbeast.open_table(path, allow_absolute_paths=True).check().faults
    assert faults.select("code", "path").rows() == [("file-missing", str(elsewhere))]


def test_staged_file_with_wrong_weights_is_named(path: Path) -> None:
    name = next(iter(read_log(path).adds))
    right = pl.when(pl.int_range(pl.len()) < 2500).then("_qbeast_weight")
    rows = pl.read_parquet(path / name).with_columns(right.otherwise(2**15 - 1).cast(pl.Int32))
    rows.write_parquet(path / "more.parquet", row_group_size=1000)
    add = {"path": "more.parquet", "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    commit(path, 1, {"add": add | {"size": (path / "more.parquet").stat().st_size}})
    (fault,) = qbeast.open_table(path).check().faults.iter_rows(named=True)
    assert (fault["path"], fault["code"]) == ("more.parquet", "hidden-weight")
    assert (fault["row_group"], fault["row"]) == (2, 2500)


def test_empty_and_staged_tables_pass(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.clear(), tmp_path / "empty", columns=["id", "x"])
    assert qbeast.open_table(tmp_path / "empty").check().ok
    write_deltalake(tmp_path / "staged", ROWS)
    qbeast.convert_table(tmp_path / "staged", columns=["id", "x"])
    table = qbeast.open_table(tmp_path / "staged")
    assert table.check().ok, table.check()
    assert table.check().notes[0].startswith("1 file(s) with 4,000 rows have no index")
    assert "staging" in repr(table.check())
    (staging,) = table.metrics().revisions
    assert (staging.rows, staging.files, staging.cubes) == (4000, 1, 0)
