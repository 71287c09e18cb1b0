"""A table opened again comes from memory, and never from the past."""

from __future__ import annotations

import shutil
from unittest import mock

import polars as pl
import pytest

import qbeast
from qbeast_core.table.snapshot import snapshot

ROWS = pl.DataFrame({"id": range(5000)})


def test_table_opened_twice_is_read_once(tmp_path):
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    assert qbeast.open_table(tmp_path / "t").version == 0
    with mock.patch.object(snapshot, "load_snapshot", side_effect=AssertionError):
        assert qbeast.open_table(tmp_path / "t").scan().collect().height == 5000


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")  # the same rows again and again
def test_commits_are_seen_at_once(tmp_path):
    path = tmp_path / "t"
    for number in range(5):
        qbeast.write_table(ROWS, path, columns=["id"], mode="append")
        assert qbeast.open_table(path).version == number
        assert qbeast.read_table(path).height == 5000 * (number + 1)


def test_replaced_table_is_seen_at_once(tmp_path):
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=["id"])
    assert qbeast.read_table(path, sample=0.5).height > 0
    shutil.rmtree(path)
    with pytest.raises(qbeast.TableNotFoundError):
        qbeast.open_table(path)
    qbeast.write_table(ROWS.select(other=pl.col("id") * 2), path, columns=["other"])
    assert qbeast.read_table(path).columns == ["other"]


def test_relative_path_means_the_working_directory(tmp_path, monkeypatch):
    for name, rows in (("a", ROWS), ("b", ROWS.head(7))):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        qbeast.write_table(rows, "t", columns=["id"])
        assert qbeast.read_table("t").height == rows.height
