"""The newest version of a local table is kept between writes: whatever happens to the folder meanwhile is seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

import qbeast
from qbeast_core.table.snapshot.snapshot import newest_snapshot
from tests.helpers.requests import counted

FIRST = f"_delta_log/{0:020d}.json"
ROWS = pl.DataFrame({"id": range(50)})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    return tmp_path / "t"


def append(table: Path, first: int) -> None:
    qbeast.write_table(ROWS.head(5) + first, table, mode="append")


def ids(table: Path) -> list[int]:
    return qbeast.read_table(table)["id"].sort().to_list()


def test_own_commits_are_not_loaded_again(table: Path) -> None:
    with counted() as requests:
        append(table, 100)
        append(table, 200)
        assert newest_snapshot(str(table)).version == 2
    # A load lists the log or reads all of it; a new revision reads its own commit.
    assert not [request for request in requests if request.method == "list" or request.path == FIRST]


def test_foreign_versions_are_seen(table: Path) -> None:
    for version, first in enumerate((100, 200), start=1):
        ours, theirs = table, table.parent / "theirs"
        shutil.copytree(ours, theirs)
        append(theirs, first)
        shutil.copytree(theirs, ours, dirs_exist_ok=True)
        shutil.rmtree(theirs)
        assert newest_snapshot(str(table)).version == version
    append(table, 300)
    assert ids(table) == sorted([*range(50), *range(100, 105), *range(200, 205), *range(300, 305)])


def test_restored_table_is_the_one_written(table: Path) -> None:
    backup = table.parent / "backup"
    shutil.copytree(table, backup)
    append(table, 100)
    append(table, 200)
    shutil.rmtree(table)
    shutil.copytree(backup, table)
    append(table, 300)
    append(table, 400)
    assert qbeast.open_table(table).version == 2
    assert ids(table) == [*range(50), *range(300, 305), *range(400, 405)]


def test_replaced_table_of_equal_version_is_reloaded(table: Path) -> None:
    append(table, 100)
    shutil.rmtree(table)
    qbeast.write_table(ROWS.with_columns(b=1.5), table, columns=["id"])
    qbeast.write_table(ROWS.with_columns(b=2.5), table, mode="append")
    actual = newest_snapshot(str(table))
    assert (actual.version, list(actual.schema)) == (1, ["id", "b"])
    with pytest.raises(qbeast.SchemaMismatchError):
        qbeast.write_table(ROWS.with_columns(b=pl.lit("x")), table, mode="append")


def test_deleted_table_raises(table: Path) -> None:
    shutil.rmtree(table)
    with pytest.raises(qbeast.TableNotFoundError):
        newest_snapshot(str(table))
    qbeast.write_table(ROWS.head(3), table, columns=["id"])
    assert ids(table) == [0, 1, 2]
