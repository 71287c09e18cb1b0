"""A table as a stream: each row once, in batches of any size, over restarts, and errors where rows change."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.read.stream import Offset, TableStream
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.examples import examples
from tests.helpers.tables import assert_same_rows, folder, small_files

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def rows_of(first: int, count: int = 10) -> pl.DataFrame:
    return pl.DataFrame({"id": range(first, first + count), "x": [n / 7 for n in range(count)]})


def append(path: Path, first: int, count: int = 10) -> None:
    qbeast.write_table(rows_of(first, count), path, columns=["id"], mode="append")


def stream_of(path: Path, **options: Any) -> TableStream:
    return TableStream(snapshot=load_snapshot(path), **options)


def read(stream: TableStream, start: Offset, end: Offset) -> pl.DataFrame:
    """Read a batch as workers do."""
    tasks = pickle.loads(pickle.dumps(stream.tasks(start, end)))  # noqa: S301 - our own bytes
    return pl.concat(
        [pl.DataFrame(schema=stream.schema), *(frame for task in tasks for frame in task.read())]
    )


def ids(frame: pl.DataFrame) -> list[int]:
    return frame["id"].sort().to_list()


def all_of(path: Path, **options: Any) -> pl.DataFrame:
    stream = stream_of(path, **options)
    return read(stream, stream.first(), stream.end())


def test_stream_begins_with_all_rows_or_a_version(tmp_path: Path) -> None:
    for first in (0, 10, 20):
        append(tmp_path, first)
    assert ids(all_of(tmp_path)) == list(range(30))
    assert ids(all_of(tmp_path, starting_version=1)) == list(range(10, 30))
    assert ids(all_of(tmp_path, starting_version="latest")) == []
    assert ids(all_of(tmp_path, starting_version=3)) == []
    time = qbeast.open_table(tmp_path).versions()["timestamp"].sort()[1]
    assert ids(all_of(tmp_path, starting_time=str(time))) == list(range(10, 30))
    for wrong in ({"starting_version": 4}, {"starting_version": "newest"}, {"starting_time": "soon"}):
        with pytest.raises(qbeast.InvalidInputError, match="starting"):
            stream_of(tmp_path, **wrong).first()


@examples(2, sweep=120, parent=RELAXED)
@given(
    steps=st.lists(
        st.sampled_from(["append", "others", "optimize", "batch", "batch", "restart"]), max_size=14
    ),
    limits=st.sampled_from(
        [{}, {"max_files": 1}, {"max_files": 3}, {"max_bytes": 900}, {"max_files": 2, "max_bytes": 5000}]
    ),
    start=st.sampled_from([None, 0, 1, "latest"]),
)
def test_batches_have_each_row_once(steps: list[str], limits: dict[str, int], start: Any) -> None:
    with folder() as path, small_files():
        append(path, 0, 60)
        append(path, 60)
        count, stream = 70, stream_of(path, starting_version=start)
        place, got = stream.first(), list[int]()
        first = {None: 0, 0: 0, 1: 60, "latest": 70}[start]
        for step in [*steps, *["batch"] * 60]:
            if step == "append":
                append(path, count)
            elif step == "others":
                write_deltalake(path, rows_of(count), mode="append")
            elif step == "optimize":
                qbeast.open_table(path).optimize()
            elif step == "restart":  # from the checkpoint
                stream, place = stream_of(path, starting_version=start), Offset.of(place.json())
            else:
                end = stream.latest(place, **limits)
                assert read(stream, place, end).equals(read(stream, place, end))
                got, place = [*got, *ids(read(stream, place, end))], end
            count += 10 * (step in ("append", "others"))
        assert place == stream.end()
        assert sorted(got) == list(range(first, count))


def test_limits_count_files_and_bytes(tmp_path: Path) -> None:
    for first in range(0, 60, 10):
        append(tmp_path, first)
    stream = stream_of(tmp_path, starting_version=0)
    assert stream.latest(Offset(0), max_files=2) == Offset(2)
    size = qbeast.open_table(tmp_path).rows().files()["size_bytes"].max()
    assert stream.latest(Offset(0), max_bytes=1) == Offset(1)
    assert stream.latest(Offset(0), max_bytes=3 * size) >= Offset(3)
    assert stream.latest(Offset(0), max_files=2, until=Offset(1)) == Offset(1)
    assert stream.latest(Offset(6), max_files=2) == Offset(6)


@pytest.mark.parametrize("vectors", [False, True])
def test_changed_rows_stop_a_stream(tmp_path: Path, *, vectors: bool) -> None:
    qbeast.write_table(rows_of(0, 100), tmp_path, columns=["id"], deletion_vectors=vectors)
    append(tmp_path, 100)
    table = qbeast.open_table(tmp_path)
    table.delete("id = 3")
    append(tmp_path, 110)
    stream = stream_of(tmp_path, starting_version=1)
    end = stream.latest(Offset(1), max_files=1)
    assert ids(read(stream, Offset(1), end)) == list(range(100, 110)), "rows before the change arrive"
    with pytest.raises(qbeast.UnsupportedTableError, match="skipChangeCommits"):
        read(stream, end, stream.end())
    assert ids(all_of(tmp_path, starting_version=1, skips_changes=True)) == list(range(100, 120))
    with pytest.raises(qbeast.UnsupportedTableError, match="version 2"):
        all_of(tmp_path, starting_version=1, ignores_deletes=True)  # the file was written again
    assert 3 not in ids(all_of(tmp_path))


def test_deletes_of_whole_files_can_be_ignored(tmp_path: Path) -> None:
    append(tmp_path, 0)
    append(tmp_path, 10)
    qbeast.open_table(tmp_path).delete("id < 10")
    append(tmp_path, 20)
    with pytest.raises(qbeast.UnsupportedTableError, match="ignoreDeletes"):
        all_of(tmp_path, starting_version=0)
    assert ids(all_of(tmp_path, starting_version=0, ignores_deletes=True)) == list(range(30))


def test_feed_has_the_changes_of_the_table(tmp_path: Path) -> None:
    qbeast.write_table(rows_of(0, 100), tmp_path, columns=["id"], change_feed=True)
    table = qbeast.open_table(tmp_path)
    table.delete("id < 5")
    table.update("id = 7", {"x": -1.0})
    append(tmp_path, 100)
    expected = table.refresh().changes(-1).collect()
    actual = all_of(tmp_path, starting_version=0, reads_feed=True)
    assert actual.schema == expected.schema
    order = ["_commit_version", "id", "_change_type"]
    assert actual.sort(order).equals(expected.sort(order))
    inserted = all_of(tmp_path, reads_feed=True)
    assert set(inserted["_change_type"]) == {"insert"}
    assert ids(inserted) == ids(table.read())


def test_new_columns_need_a_restart(tmp_path: Path) -> None:
    append(tmp_path, 0)
    stream = stream_of(tmp_path, starting_version=0)
    more = rows_of(10).with_columns(new=pl.lit("a"))
    qbeast.write_table(more, tmp_path, mode="append", schema_mode="merge")
    with pytest.raises(qbeast.UnsupportedTableError, match="Start the query again"):
        read(stream, Offset(0), stream.end())
    again = all_of(tmp_path, starting_version=0)
    assert_same_rows(again, pl.concat([rows_of(0).with_columns(new=pl.lit(None, pl.String)), more]), "id")


def test_missing_log_and_foreign_offset_are_reported(tmp_path: Path) -> None:
    append(tmp_path, 0)
    append(tmp_path, 10)
    (tmp_path / "_delta_log" / f"{0:020}.json").rename(tmp_path / "gone")
    with pytest.raises((qbeast.VersionNotFoundError, qbeast.QbeastError)):
        all_of(tmp_path, starting_version=0)
    for wrong in ({}, {"version": "x", "index": 0, "initial": 0}, {"sourceVersion": 1}):
        with pytest.raises(qbeast.InvalidInputError, match="new checkpoint"):
            Offset.of(wrong)
