"""Reads cut into tasks: together they have the rows of one read, whatever index files tell."""

from __future__ import annotations

import pickle
from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_carbondata.reader import carbon_tasks
from tests.foreign.carbondata.collection import table_path

PATH = table_path("tx230_delete_multiblocklet")


@pytest.mark.parametrize("entries", [7, 6, 2, 0])
@pytest.mark.parametrize("predicate", [None, pl.col("id") < 3000], ids=["all", "some"])
def test_tasks_have_all_rows_once(entries: int, predicate: pl.Expr | None) -> None:
    """Index files may tell of fewer blocklets than there are; the data file counts."""
    reader = qbeast.open_carbondata(PATH).reader
    segment, file = next(
        (item, file) for item in reader.segments for file in item.files if len(file.entries) == 7
    )
    size = file.stored.size_bytes
    # Without their columns, entries rule nothing out.
    report = replace(file, entries=file.entries[:entries], columns=(), size_bytes=size)
    tasks = carbon_tasks(
        replace(reader, segments=(replace(segment, files=(report,)),)),
        ["id", "name"],
        predicate,
        task_bytes=size // 7,
    )
    assert len(tasks) == max(entries, 1)
    actual = pl.concat([frame for task in tasks for frame in pickle.loads(pickle.dumps(task)).read()])  # noqa: S301
    expected = pl.concat(list(reader.file_rows([file], ["id", "name"], predicate)))
    assert expected.height
    assert_frame_equal(actual.sort("id"), expected.sort("id"))
