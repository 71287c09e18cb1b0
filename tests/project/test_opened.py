"""A table opened again comes from memory, and never from the past."""

from __future__ import annotations

from unittest import mock

import polars as pl

import qbeast
from qbeast_core.table.snapshot import snapshot

ROWS = pl.DataFrame({"id": range(5000)})


def test_table_opened_twice_is_read_once(tmp_path):
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    assert qbeast.open_table(tmp_path / "t").version == 0
    with mock.patch.object(snapshot, "load_snapshot", side_effect=AssertionError):
        assert qbeast.open_table(tmp_path / "t").scan().collect().height == 5000
