"""Deletion vectors are read when the rows of their files are: others may be missing, and each is read once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.log.deletion_vectors import vector_path
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"id": range(900), "p": [i // 300 for i in range(900)]})
GONE = pl.col("id") % 50 == 7
LEFT = ROWS.filter(~GONE)


def vectors(path: Path, version: int) -> dict[str, dict[str, Any]]:
    """Return the vectors that a commit adds, by data file."""
    lines = (path / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    adds = [action["add"] for action in map(json.loads, lines) if "add" in action]
    return {add["path"]: add["deletionVector"] for add in adds if add.get("deletionVector")}


def remove_vectors(path: Path, version: int) -> None:
    for vector in vectors(path, version).values():
        file = vector_path(vector)
        assert file is not None
        (path / file.text).unlink(missing_ok=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of three files, each with a deletion vector in a file of its own."""
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=["id"], partition_by=["p"], deletion_vectors=True)
    for part in range(3):
        qbeast.open_table(path).delete(GONE & (pl.col("p") == part))
    return path


def test_filter_reads_vectors_of_opened_files(path: Path) -> None:
    remove_vectors(path, 1)
    remove_vectors(path, 3)
    table = qbeast.open_table(path)
    part = pl.col("p") == 1
    assert_same_rows(table.read(where=part), LEFT.filter(part), key="id")
    assert_same_rows(
        pl.concat([frame for task in table.rows(part).tasks() for frame in task.read()]),
        LEFT.filter(part),
        key="id",
    )
    assert table.delete(part & (pl.col("id") == 310)).rows_deleted == 1
    with pytest.raises(qbeast.StorageError, match="lists deleted rows"):
        table.read()


def test_counts_need_no_vector(path: Path) -> None:
    for version in (1, 2, 3):
        remove_vectors(path, version)
    table = qbeast.open_table(path)
    assert table.count() == LEFT.height
    assert table.count(pl.col("p") == 2) == LEFT.filter(p=2).height
    assert table.delete(where=True).rows_deleted == LEFT.height
    assert table.count() == 0


def test_next_version_keeps_vectors_that_were_read(path: Path) -> None:
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), LEFT, key="id")
    for version in (1, 2):
        remove_vectors(path, version)
    table.delete(pl.col("id") == 899)
    more = pl.DataFrame({"id": [1000], "p": [0]})
    qbeast.write_table(more, path, mode="append")
    expected = pl.concat([LEFT.filter(pl.col("id") != 899), more])
    table.refresh()
    assert_same_rows(table.read(), expected, key="id")


def test_all_reads_agree_with_polars(path: Path) -> None:
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), pl.read_delta(str(path)), key="id")
    middle = pl.col("id").is_between(250, 649)
    assert table.count(middle) == LEFT.filter(middle).height
