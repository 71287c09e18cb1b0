"""A table with a plan file gives the same answers as the same table without one, some files at a time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.index.live_index import file_index
from qbeast_core.table.rewrite.candidates import Scope, choose_files
from tests.helpers.small_files import resized, small_files

MANY: dict[str, Any] = {
    "many_files": 1,
    "plan_chunk_files": 3,
    "plan_group_files": 2,
    "plan_batch_files": 4,
    "plan_part_files": 2,
}
FEW: dict[str, Any] = {"many_files": 1 << 30}


def rows(count: int, first: int = 0) -> pl.DataFrame:
    number = pl.int_range(first, first + count, eager=True)
    return pl.DataFrame(
        {"id": number, "x": number * 7919 % 211 / 2, "kind": (number % 2).cast(pl.String).replace("1", None)}
    )


def begin(path: Path, partitions: list[str]) -> None:
    """Write two revisions, deletion vectors and files of another writer, then a checkpoint."""
    with small_files(file_rows=20):
        qbeast.write_table(
            rows(60), path, columns=["id", "x"], cube_size=15, partition_by=partitions, deletion_vectors=True
        )
        qbeast.write_table(rows(20, 1000), path, mode="append")
    write_deltalake(path, rows(6, 50).to_arrow(), mode="append")
    qbeast.open_table(path).delete("id = 7")
    DeltaTable(path).create_checkpoint()


def go_on(path: Path) -> None:
    """Remove and add files after the checkpoint."""
    with small_files(file_rows=20):
        qbeast.write_table(rows(20, 500), path, mode="append")
    table = qbeast.open_table(path)
    table.delete("id >= 1000 AND id < 1010")
    write_deltalake(path, rows(5, 2000).to_arrow(), mode="append")
    table = qbeast.open_table(path)
    table.optimize(files=table.rows("id = 20").files()["path"].to_list()[:1])


@pytest.fixture(scope="module", params=["plain", "partitioned"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "table"
    begin(path, ["kind"] if request.param == "partitioned" else [])
    go_on(path)
    return path


@pytest.fixture
def tables(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[qbeast.Table, qbeast.Table]]:
    """Yield the table without a plan file, and a copy of it with one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shutil.copytree(made, tmp_path / "table")
    with resized(**FEW):
        plain = qbeast.open_table(made)
    with resized(**MANY):
        planned = qbeast.open_table(tmp_path / "table")
        assert planned.snapshot.planned is not None
        assert planned.snapshot.planned.count
        assert len(planned.snapshot.planned.gone)
        assert planned.snapshot.listed.height
        yield plain, planned


def listed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a list of files or blocks in an order of its own, with paths relative to the table."""
    path = pl.col("path").str.extract(r"((?:kind=[^/]*/)?[^/]*)$")
    return frame.with_columns(path).sort([name for name in frame.columns if name != "ranges"])


def test_blocks_are_those_of_the_log(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    plain, planned = tables
    assert_frame_equal(listed(planned.blocks()), listed(plain.blocks()))


def test_files_to_open_are_those_of_the_log(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    plain, planned = tables
    for where, sample in ((None, None), ("id < 30", None), (None, 0.3)):
        answers = [table.rows(where, sample=sample).files() for table in (planned, plain)]
        assert_frame_equal(listed(answers[0]), listed(answers[1]))


def test_metrics_are_those_of_the_log(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    plain, planned = (table.metrics() for table in tables)
    assert_frame_equal(planned.frame, plain.frame)
    assert_frame_equal(planned.levels, plain.levels)
    assert planned.health == plain.health
    assert planned.design_effect == plain.design_effect
    assert tables[1].snapshot.planned is not None


@pytest.mark.parametrize("data", [False, pytest.param(True, marks=pytest.mark.sweep)])
def test_check_finds_the_same_faults(tables: tuple[qbeast.Table, qbeast.Table], *, data: bool) -> None:
    plain, planned = (table.check(data=data) for table in tables)
    keys = ["path", "code", "message"]
    assert_frame_equal(planned.faults.sort(keys), plain.faults.sort(keys))
    assert (planned.files, planned.blocks, planned.rows) == (plain.files, plain.blocks, plain.rows)
    assert planned.notes == plain.notes


@pytest.mark.parametrize(
    "scope",
    [
        {"newest": True, "beyond": True, "moves": True},
        {"newest": True, "full": True, "older": True},
        {"newest": True, "beyond": True, "fraction": 0.1},
        {"newest": True, "beyond": True, "purge": True},
    ],
    ids=["usual", "full", "fraction", "purge"],
)
def test_optimize_chooses_the_same_files(
    scope: dict[str, Any], tables: tuple[qbeast.Table, qbeast.Table]
) -> None:
    plain, planned = (file_index(table.snapshot) for table in tables)
    expected, found = (choose_files(index, Scope(**scope)) for index in (plain, planned))
    keys = ["path", "reason"]
    assert_frame_equal(found.frame(planned).sort(keys), expected.frame(plain).sort(keys))
    named = [
        sorted(sorted(index.snapshot.files["path"][group]) for group in choice.groups)
        for index, choice in ((plain, expected), (planned, found))
    ]
    assert named[0] == named[1]
    assert planned.snapshot is not tables[1].snapshot


def test_optimize_keeps_all_rows_and_the_order(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    plain, planned = tables
    before = plain.rows().read().sort("id", "x")
    with small_files(file_rows=20):
        result = planned.optimize()
    assert result.files_removed
    assert planned.snapshot.planned is not None
    assert_frame_equal(planned.rows().read().sort("id", "x"), before)
    assert planned.check(data=False).ok


def test_versions_and_vacuum_keep_what_is_needed(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    plain, planned = tables
    assert planned.versions()["readable"].to_list() == plain.versions()["readable"].to_list()
    doomed: dict[str, Any] = {"retention_hours": 0, "allow_short_retention": True}
    assert planned.vacuum(**doomed).files == plain.vacuum(**doomed).files
    assert planned.vacuum().files == ()


@pytest.mark.parametrize("sizes", [FEW, MANY], ids=["log", "plan file"])
def test_vacuum_spares_files_that_a_checkpoint_removed(
    sizes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "table"
    for number in (0, 100):
        qbeast.write_table(rows(20, number), path, columns=["id"], mode="overwrite")
    DeltaTable(path).create_checkpoint()
    copy = shutil.copytree(path, tmp_path / "copy")
    for file in copy.glob("*.parquet"):
        os.utime(file, (1, 1))
    with resized(**sizes):
        table = qbeast.open_table(copy)
        assert (table.snapshot.planned is None) == (sizes is FEW)
        assert table.vacuum().files == ()
        assert len(table.vacuum(retention_hours=0, allow_short_retention=True).files) == 1


def test_missing_files_make_versions_unreadable(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    planned = tables[1]
    first, *_, last = planned.rows().files().sort("num_records")["path"]
    expected = planned.versions()["readable"].to_list()
    for path in (first, last):
        Path(path).rename(f"{path}.away")
        with resized(**FEW):
            unplanned = qbeast.open_table(planned.uri, version=planned.version).versions()
        assert planned.versions()["readable"].to_list() == unplanned["readable"].to_list() != expected
        Path(f"{path}.away").rename(path)


def test_difference_of_versions_is_that_of_the_log(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    plain, planned = tables
    for version in (0, 5):
        expected, found = (table.diff(version, key=["id", "x"]).collect() for table in (plain, planned))
        assert_frame_equal(found, expected, check_row_order=False)


@pytest.mark.parametrize("damage", [b"", b"short", bytes(4096)], ids=["empty", "cut", "zeros"])
def test_damaged_facts_are_made_again(damage: bytes, tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    planned = tables[1].snapshot
    expected = file_index(planned).revision_of.tolist()
    assert planned.planned is not None
    kept = [path for path in planned.planned.plan.folder.iterdir() if path.name.startswith("facts-")]
    assert len(kept) == 1
    kept[0].write_bytes(damage)
    assert file_index(planned).revision_of.tolist() == expected
    assert kept[0].stat().st_size not in {len(damage), 0}


def test_damaged_plan_file_is_replaced_by_the_log(tables: tuple[qbeast.Table, qbeast.Table]) -> None:
    plain, planned = tables
    assert planned.snapshot.planned is not None
    file = planned.snapshot.planned.plan.folder / "files.parquet"
    data = bytearray(file.read_bytes())
    for at in range(16, len(data) // 2, 7):
        data[at] ^= 255
    with file.open("r+b") as opened:  # the file that is open already
        opened.write(data)
    assert_frame_equal(planned.metrics().frame, plain.metrics().frame)
    assert_frame_equal(listed(planned.blocks()), listed(plain.blocks()))
    assert planned.check(data=False).faults.height == plain.check(data=False).faults.height
    found = planned.optimize(dry_run=True).plan.drop("path")
    assert_frame_equal(found, plain.optimize(dry_run=True).plan.drop("path"), check_row_order=False)
