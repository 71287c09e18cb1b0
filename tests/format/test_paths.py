"""Paths in a log are those that Spark writes, so its VACUUM, which compares texts, keeps our files."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Final
from unicodedata import category

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.spec.blocks import FilePath
from tests.format.spark_paths import FOLDER, NAMES, VALUES
from tests.helpers.invariants import read_log

# delta-rs lists no folder that has a control character in a name.
LISTED: Final = [name for name in NAMES if not any(category(character) == "Cc" for character in name)]
SOME: Final = ["a b", "a%b", "a*b", "aüb", "a日b", "a\u00a0b", "a\u2028b", "a😀b"]


def vacuums(path: Path) -> list[str]:
    """Return what the vacuums of delta-rs and of this library would delete, at once."""
    theirs = DeltaTable(path).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    ours = qbeast.open_table(path).vacuum(retention_hours=0, allow_short_retention=True)
    return [*theirs, *ours.files]


def test_paths_are_encoded_as_spark_does() -> None:
    ours = {name: FilePath(name).encoded for name in NAMES}
    assert ours == NAMES
    folders = [FilePath.of_log(text) for text in VALUES.values()]
    assert [folder.encoded for folder in folders] == list(VALUES.values())


@pytest.mark.parametrize(
    "values", [SOME[3:6], pytest.param(list(VALUES), marks=pytest.mark.sweep)], ids=["some", "all"]
)
def test_files_of_any_partition_value_stay(tmp_path: Path, values: list[str]) -> None:
    rows = pl.DataFrame({"id": range(len(values)), "p": values})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"], partition_by=["p"])
    adds = read_log(tmp_path / "t").adds
    files = {str(file.relative_to(tmp_path / "t")) for file in (tmp_path / "t").rglob("*.parquet")}
    assert {FilePath(file).encoded for file in files} == set(adds)
    assert all(path.isascii() for path in adds)
    assert vacuums(tmp_path / "t") == []
    # The paths of its removes are those of our adds, too, so the rows are gone for everyone.
    DeltaTable(tmp_path / "t").delete("id > 0")
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 1
    assert qbeast.read_table(tmp_path / "t")["p"].to_list() == values[:1]


@pytest.mark.parametrize(
    "names",
    [[f"{one}.parquet" for one in SOME[2:5]], pytest.param(LISTED, marks=pytest.mark.sweep)],
    ids=["some", "all"],
)
def test_files_of_any_name_stay(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "t").mkdir()
    for number, name in enumerate(names):
        pl.DataFrame({"id": [number]}).write_parquet(tmp_path / "t" / name)
    qbeast.convert_table(tmp_path / "t", columns=["id"])
    assert set(read_log(tmp_path / "t").adds) == {NAMES[name] for name in names}
    assert vacuums(tmp_path / "t") == []
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == len(names)
    table = qbeast.open_table(tmp_path / "t")
    assert table.check().ok
    table.delete(pl.col("id") == 1)
    left = sorted({*range(len(names))} - {1})
    assert DeltaTable(tmp_path / "t").to_pyarrow_table()["id"].to_pylist() == left
    assert table.read()["id"].to_list() == left


# --- the encoding of older versions ---------------------------------------------------------------------------------

OLD: Final = {"p=ü", "p=日本", "p=é+%2520", "p=😀"}
NEW: Final = {"p=ü", "p=日本", "p=é+%252520", "p=😀"}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER / "table", tmp_path / "old"))


def test_check_names_files_of_other_encodings(old: Path) -> None:
    faults = qbeast.open_table(old).check().faults
    assert set(faults["code"]) == {"path-encoding"}
    assert {path.rpartition("/")[0] for path in faults["path"]} == OLD
    dry = qbeast.open_table(old).repair(dry_run=True)
    assert set(dry.repaired_files["actions"].explode()) == {"set path"}
    assert not qbeast.open_table(old).check().ok


def test_repair_adds_files_under_paths_of_spark(old: Path) -> None:
    rows, before = qbeast.read_table(old).sort("id"), read_log(old).adds
    table = qbeast.open_table(old)
    done = table.repair()
    assert {path.rpartition("/")[0] for path in done.repaired_files["path"]} == OLD
    assert table.check().ok
    after = read_log(old).adds
    texts = {FilePath.of_log(path).encoded: add for path, add in before.items()}
    assert after.keys() == texts.keys()
    assert {path.rpartition("/")[0] for path in after.keys() - before.keys()} == NEW
    for path, add in after.items():
        assert {**add, "path": "", "dataChange": None} == {**texts[path], "path": "", "dataChange": None}
    lines = [json.loads(line) for line in (old / "_delta_log" / f"{1:020}.json").read_text().splitlines()]
    removes = [line["remove"] for line in lines if "remove" in line]
    assert {remove["path"] for remove in removes} == before.keys() - after.keys()
    assert not any(line.get(kind, {}).get("dataChange") for line in lines for kind in ("add", "remove"))
    # A vacuum by tombstones (LITE) takes what they name, once they are old: these never are.
    assert {remove["deletionTimestamp"] // 1000 for remove in removes} == {253_402_300_799}
    assert vacuums(old) == []
    for found in (
        table.read(),
        pl.scan_delta(str(old)).collect(),
        qbeast.read_table(old, version=0),
    ):
        assert found.sort("id").equals(rows)


def test_repaired_files_are_deleted_once_they_are_replaced(old: Path) -> None:
    table = qbeast.open_table(old)
    table.repair()
    DeltaTable(old).create_checkpoint()
    table.delete(pl.col("id").is_in([1, 2]))
    time.sleep(0.002)
    gone = qbeast.open_table(old).vacuum(retention_hours=0, allow_short_retention=True).files
    assert {path.rpartition("/")[0] for path in gone} == {"p=ü", "p=日本"}
    table.optimize(full=True)
    assert all(path.isascii() for path in read_log(old).adds)
    assert pl.scan_delta(str(old)).collect().height == 7


def test_restore_keeps_each_file_once(old: Path) -> None:
    rows = qbeast.read_table(old).sort("id")
    table = qbeast.open_table(old)
    table.repair()
    table.delete(pl.col("id") == 1)
    table.restore(0)
    assert table.check().ok
    assert vacuums(old) == []
    for found in (table.read(), qbeast.read_table(old), pl.scan_delta(str(old)).collect()):
        assert found.sort("id").equals(rows)
