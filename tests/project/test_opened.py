"""A table opened again comes from memory, and never from the past."""

from __future__ import annotations

import polars as pl

import qbeast
from tests.helpers.stores import located_files

ROWS = pl.DataFrame({"id": range(5000)})


def test_table_opened_twice_is_read_once(tmp_path):
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    assert qbeast.open_table(tmp_path / "t").version == 0
    with located_files() as files:
        assert qbeast.open_table(tmp_path / "t").read().height == 5000
    assert [file for file in files if file.startswith("_delta_log")] == []
