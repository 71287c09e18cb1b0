"""An optimize puts rows into the newest revision of the table as it is then: values lie in the range of theirs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows, small_files


def rows(first: int, count: int) -> pl.DataFrame:
    return pl.DataFrame({"row": range(first, first + count)}).with_columns(
        a=pl.col("row") * 7919 % 4001, b=pl.col("row") * 104_729 % 9001
    )


ROWS = pl.concat([rows(0, 300), rows(300, 60).with_columns(pl.col("a", "b") % 50)])


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of Parquet without index, and an append whose range is narrower than theirs."""
    path = tmp_path_factory.mktemp("converted")
    for number in range(2):
        ROWS[150 * number : 150 * number + 150].write_parquet(path / f"{number}.parquet")
    qbeast.convert_table(path, columns=["a", "b"])
    with small_files():
        qbeast.write_table(ROWS[300:], path, mode="append", cube_size=30)
    return path


WAYS: dict[str, Callable[[qbeast.Table], Any]] = {
    "usual": lambda table: table.optimize(),
    "all revisions": lambda table: table.optimize(revision="all"),
    "full": lambda table: table.optimize(full=True),
    "into newest": lambda table: table.optimize(into="newest"),
    "some into newest": lambda table: table.optimize(
        files=table.rows().files()["path"].to_list()[:2], into="newest"
    ),
    "files": lambda table: table.optimize(files=table.rows().files()["path"].to_list()),
    "staged": lambda table: table.optimize(revision=0),
    "revision": lambda table: table.optimize(revision=1),
}


def ways(*few: str) -> list[Any]:
    return [pytest.param(way, marks=[] if way in few else pytest.mark.sweep) for way in WAYS]


@pytest.mark.parametrize("way", ways("usual", "full", "some into newest", "revision"))
def test_rows_are_in_range_of_their_revision(way: str, converted: Path, tmp_path: Path) -> None:
    path = shutil.copytree(converted, tmp_path / "t")
    with small_files():
        before = set(read_log(path).adds)
        result = WAYS[way](qbeast.open_table(path))
        now = set(read_log(path).adds)
        assert (result.files, result.files_removed) == (len(now - before), len(before - now))
        check_invariants(path, may_stage=way in {"revision", "some into newest"})
        assert_same_rows(qbeast.read_table(path), ROWS, "row")
        done = qbeast.open_table(path).optimize()
    assert done.revision_id == max(item.revision_id for item in qbeast.open_table(path).revisions)


@pytest.mark.parametrize("way", ["usual", "into newest", pytest.param("files", marks=pytest.mark.sweep)])
def test_concurrent_new_revision_takes_its_rows(way: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with small_files():
        qbeast.write_table(rows(0, 100), path, columns=["a", "b"], cube_size=20)
        qbeast.write_table(rows(100, 100), path, mode="append")
    wide = rows(200, 100).with_columns(pl.col("a") + 10**9)

    def widen() -> None:
        with small_files():
            qbeast.write_table(wide, path, mode="append")

    with small_files(file_rows=150), landing_first(widen, times=1):
        WAYS[way](qbeast.open_table(path))
    check_invariants(path)
    assert_same_rows(qbeast.read_table(path), pl.concat([rows(0, 200), wide]), "row")


@pytest.mark.parametrize("chosen", ["files", "revision"])
def test_chosen_old_files_move_to_newest_revision(chosen: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for step in range(3):  # each beyond the range of the one before: a revision of its own
        qbeast.write_table(
            rows(300 * step, 300).with_columns(pl.col("a") + step * 10 ** (5 + 3 * step)),
            path,
            ["a", "b"],
            mode="append",
        )
    before = qbeast.open_table(path)
    by_revision = {file["revision_id"]: file["path"] for file in before.rows().files().to_dicts()}
    assert set(by_revision) == {1, 2, 3}
    options: dict[str, Any] = {"files": [by_revision[2]]} if chosen == "files" else {"revision": 2}
    table = qbeast.open_table(path)
    result = table.optimize(**options, into="newest")
    assert result.plan.select("revision_id", "reason").rows() == [(2, "older revision")]
    assert sorted(table.rows().files()["revision_id"].unique()) == [1, 3]
    assert by_revision[1] in table.rows().files()["path"].to_list()
    check_invariants(path)
    assert_same_rows(table.read(), before.read(), "row")
    again = table.optimize(revision=3, into="newest", full=True, dry_run=True).plan
    assert again["reason"].to_list() == ["requested"] * 2
