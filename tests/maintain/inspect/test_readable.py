"""A version is listed as readable if deltalake reads all its rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.io.location import open_store
from tests.helpers.examples import examples

ROWS = pl.DataFrame({"id": range(60)})


def is_read_by_others(path: Path, version: int) -> bool:
    """Return whether deltalake reads a version; it refuses a version without log, or without files."""
    try:
        table = DeltaTable(path, version=version)
        QueryBuilder().register("t", table).execute("SELECT sum(id) FROM t").read_all()
    except Exception:  # noqa: BLE001 - it raises errors of many kinds
        return False
    return True


def assert_agrees(path: Path) -> pl.DataFrame:
    listed = qbeast.open_table(path).versions()
    expected = [is_read_by_others(path, version) for version in listed["version"]]
    assert listed["readable"].to_list() == expected
    for version, readable in listed.select("version", "readable").rows():
        table = qbeast.open_table(path, version=version) if readable else None
        assert table is None or table.versions()["readable"][0]
    return listed


def build(path: Path, steps: list[str], *, vectors: bool) -> None:
    qbeast.write_table(ROWS, path, columns=["id"], cube_size=20, deletion_vectors=vectors or None)
    for number, step in enumerate(steps):
        table = qbeast.open_table(path)
        if step == "append":
            qbeast.write_table(ROWS.with_columns(pl.col("id") + 100 * (number + 1)), path, mode="append")
        elif step == "delete":
            table.delete(pl.col("id") == number)
        elif step == "optimize":
            table.optimize(full=True)
        elif step == "checkpoint":
            DeltaTable(path).create_checkpoint()
        elif step == "restore" and table.versions()["readable"][-1]:
            table.restore(int(table.versions()["version"][-1]))
        elif step == "vacuum":
            table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)


STEPS = st.lists(
    st.sampled_from(["append", "delete", "optimize", "restore", "checkpoint", "vacuum"]), max_size=6
)


@given(steps=STEPS, vectors=st.booleans(), lost=st.integers(0, 99), cut=st.integers(0, 9))
@examples(2, sweep=60)
def test_readable_versions_are_read_by_others(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], *, vectors: bool, lost: int, cut: int
) -> None:
    path = tmp_path_factory.mktemp("life") / "t"
    build(path, steps, vectors=vectors)
    assert_agrees(path)
    files = sorted(path.glob("*.*"))
    files[lost % len(files)].unlink()
    assert_agrees(path)
    for commit in sorted((path / "_delta_log").glob("*.json"))[: cut - 5]:  # as a cleanup of the log
        if list((path / "_delta_log").glob("*.checkpoint.parquet")):
            commit.unlink()
    try:
        qbeast.open_table(path)
    except qbeast.QbeastError:
        return
    assert_agrees(path)


def test_vacuumed_versions_are_not_readable(tmp_path: Path) -> None:
    build(tmp_path / "t", ["append", "optimize", "append"], vectors=False)
    assert assert_agrees(tmp_path / "t")["readable"].to_list() == [True] * 4
    table = qbeast.open_table(tmp_path / "t")
    table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert assert_agrees(tmp_path / "t")["readable"].to_list() == [True, True, False, False]
    older = qbeast.open_table(tmp_path / "t", version=2)
    assert older.versions()["readable"].to_list() == [True, False, False]


def test_missing_vector_makes_versions_unreadable(tmp_path: Path) -> None:
    build(tmp_path / "t", ["delete", "delete", "append"], vectors=True)
    vectors = sorted((tmp_path / "t").glob("deletion_vector_*.bin"), key=lambda file: file.stat().st_mtime_ns)
    assert len(vectors) == 2
    vectors[0].unlink()
    assert assert_agrees(tmp_path / "t")["readable"].to_list() == [True, True, False, True]


def test_versions_before_a_checkpoint_need_their_log(tmp_path: Path) -> None:
    build(tmp_path / "t", ["append", "append", "checkpoint", "append"], vectors=False)
    for number in (0, 2):
        (tmp_path / "t" / "_delta_log" / f"{number:020d}.json").unlink()
    assert assert_agrees(tmp_path / "t").select("version", "readable").rows() == [(3, True), (1, False)]


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    ROWS.with_columns(day=pl.col("id") % 2).write_delta(
        tmp_path / "t", delta_write_options={"partition_by": ["day"]}
    )
    shutil.move(tmp_path / "t" / "day=1", tmp_path / "elsewhere")
    (tmp_path / "t" / "day=1").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert assert_agrees(tmp_path / "t")["readable"].to_list() == [True]


def test_versions_of_an_object_store(tmp_path: Path, bucket: str, s3_options: dict[str, str]) -> None:
    build(tmp_path / "t", ["append", "optimize", "vacuum"], vectors=False)
    store = open_store(f"s3://{bucket}/t", s3_options)
    for file in (tmp_path / "t").rglob("*.*"):
        store.put(file.relative_to(tmp_path / "t").as_posix(), file.read_bytes())
    far = qbeast.open_table(f"s3://{bucket}/t", storage_options=s3_options).versions()
    assert (
        far["readable"].to_list()
        == assert_agrees(tmp_path / "t")["readable"].to_list()
        == [True, False, False]
    )
