"""Rows that another writer deleted by a deletion vector are never returned; the vector is made by hand here."""

from __future__ import annotations

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.deletion_vectors import GONE, ROWS, delete, left


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=["id", "x"], cube_size=300)
    delete(path, GONE)
    return path


def test_deltalake_reads_the_handmade_vector(table):
    (keep,) = pl.DataFrame(DeltaTable(table).deletion_vectors())["selection_vector"].to_list()
    assert [row for row, kept in enumerate(keep) if not kept] == GONE


def test_full_read_omits_deleted_rows(table):
    assert qbeast.read_table(table).sort("id").equals(left(table))


def test_filters_and_samples_omit_deleted_rows(table):
    truth = left(table)
    e = pl.col("x") < 1500
    assert qbeast.scan_table(table).filter(e).collect().sort("id").equals(truth.filter(e))
    some = qbeast.read_table(table, sample=0.3)
    before = qbeast.read_table(table, sample=0.3, version=0)
    assert set(some["id"]) == set(before["id"]) & set(truth["id"])


def test_append_keeps_the_vector(table):
    qbeast.write_table(ROWS.with_columns(pl.col("id") + 10_000), table, mode="append")
    assert qbeast.scan_table(table).select(pl.len()).collect().item() == 8000 - len(GONE)


def test_overwrite_removes_file_with_its_vector(table):
    qbeast.write_table(ROWS.head(10), table, mode="overwrite")
    assert qbeast.read_table(table).height == 10
    assert pl.scan_delta(str(table)).select(pl.len()).collect().item() == 10
