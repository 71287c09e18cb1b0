"""A commit whose end is missing is refused, or is not needed; it never counts as a commit without changes."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.errors import StorageError
from qbeast_core.io.remote import RemoteStore
from qbeast_core.io.store import Entry, LocalStore
from qbeast_core.table.snapshot.log_files import LogCopy, commit_path, put_commit, read_commit
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.handmade_log import PROTOCOL, add, metadata, remove, write_log

COMMITS = [[PROTOCOL, metadata(), add("a"), add("b")], [remove("a")], [add("c")], [add("d")]]
LEFT = [{"a", "b"}, {"b"}, {"b", "c"}, {"b", "c", "d"}]
CUTS = {"all": 0, "half": 0.5, "most": 0.97}


def commit(root: Path, version: int) -> Path:
    return root / commit_path(version)


def cut(path: Path, how: str) -> None:
    body = path.read_bytes()
    path.write_bytes(body[: int(len(body) * CUTS[how])])


def paths(root: Path, version: int | None = None) -> set[str]:
    return set(load_snapshot(root, version=version).files["path"])


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("version", [1, 3])
def test_versions_from_cut_commit_are_refused(tmp_path: Path, version: int, how: str) -> None:
    write_log(tmp_path, *COMMITS)
    cut(commit(tmp_path, version), how)
    for number, left in enumerate(LEFT):
        if number < version:
            assert paths(tmp_path, number) == left
            continue
        with pytest.raises(qbeast.QbeastError):
            paths(tmp_path, number)
    with pytest.raises(qbeast.InvalidMetadataError):
        load_snapshot(tmp_path)


def test_open_table_notices_that_its_next_commit_is_empty(tmp_path: Path) -> None:
    write_log(tmp_path, *COMMITS[:2])
    table = qbeast.open_table(tmp_path)
    commit(tmp_path, 2).write_bytes(b"\n")
    with pytest.raises(qbeast.InvalidMetadataError, match=r"02\.json is empty.*version=1 can be opened"):
        table.refresh()
    with pytest.raises(qbeast.InvalidMetadataError):
        qbeast.write_table(pl.DataFrame({"price": [1.0]}), tmp_path, mode="append")
    assert not commit(tmp_path, 3).exists()


@pytest.mark.parametrize("how", CUTS)
def test_check_reports_cut_commit_behind_a_checkpoint(tmp_path: Path, how: str) -> None:
    rows = pl.DataFrame({"id": range(120)})
    qbeast.write_table(rows[:30], tmp_path, columns=["id"])
    for start in (30, 60, 90):
        qbeast.write_table(rows[start : start + 30], tmp_path, mode="append")
    DeltaTable(tmp_path, version=2).create_checkpoint()
    cut(commit(tmp_path, 1), how)
    table = qbeast.open_table(tmp_path)
    assert table.count() == rows.height
    assert table.check(data=False).faults["code"].to_list() == ["commit-unreadable"]
    assert table.versions().filter("readable")["version"].sort().to_list() == [0, 2, 3]
    assert table.history().height == 4
    assert table.changes(since=1).collect().height == 60
    with pytest.raises(qbeast.InvalidMetadataError):
        table.changes(since=0)


def test_files_of_log_that_are_empty_are_not_needed(tmp_path: Path) -> None:
    write_log(tmp_path, *COMMITS)
    DeltaTable(tmp_path).create_checkpoint()
    for path in (tmp_path / "_delta_log").glob("*checkpoint*"):
        body = path.read_bytes()
        path.write_bytes(b"")
        with (
            pytest.warns(qbeast.QbeastWarning) if path.suffix == ".parquet" else pytest.MonkeyPatch.context()
        ):
            assert paths(tmp_path) == LEFT[-1]
        path.write_bytes(body)


class Forgetful(LocalStore):
    """A store that returns only the first bytes of some files, as if they were all."""

    kept = 0

    def get(self, path: str) -> bytes:
        return super().get(path)[: self.kept]


def test_short_answer_of_store_is_not_an_empty_commit(tmp_path: Path) -> None:
    store = Forgetful(write_log(tmp_path, *COMMITS))
    with pytest.raises(StorageError, match="did not return all"):
        read_commit(store, 1)
    with pytest.raises(qbeast.CommitUnknownError):  # it may be ours
        put_commit(store, 1, b'{"commitInfo":{"txnId":"x"}}', "x")
    size = commit(tmp_path, 0).stat().st_size
    store.kept = commit(tmp_path, 0).read_bytes().index(b"\n") + 1  # cut at the end of a line
    with pytest.raises(StorageError, match="as it is listed"):
        LogCopy(store).add(None, [Entry(commit_path(0), size, 0)])


@pytest.mark.parametrize("version", [None, 3])
def test_store_that_forgets_a_commit_once_returns_no_other_rows(
    tmp_path: Path,
    bucket: str,
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    version: int | None,
) -> None:
    store = RemoteStore(f"s3://{bucket}/t", s3_options)
    for path in sorted(Path(write_log(tmp_path, *COMMITS)).rglob("*.json")):
        store.put(path.relative_to(tmp_path).as_posix(), path.read_bytes())
    asked: list[str] = []
    get = RemoteStore.get

    def forget_once(self: RemoteStore, path: str) -> bytes:
        asked.append(path)
        return b"" if path == commit_path(1) and asked.count(path) == 1 else get(self, path)

    monkeypatch.setattr(RemoteStore, "get", forget_once)
    try:
        snapshot = load_snapshot(store.uri, version=version, storage_options=s3_options)
    except StorageError:
        assert version is not None  # the newest version is read again, without a copy
    else:
        assert set(snapshot.files["path"]) == LEFT[3]
    assert commit_path(1) in asked


def test_library_that_reads_another_log_is_noticed(
    bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # `deltalake` reads an empty commit, and this library the whole one.
    store = RemoteStore(f"s3://{bucket}/t", s3_options)
    bodies = [b"".join(json.dumps(action).encode() + b"\n" for action in actions) for actions in COMMITS]
    for version, body in enumerate(bodies):
        store.put(commit_path(version), b"" if version == 1 else body)
    get = RemoteStore.get
    monkeypatch.setattr(
        RemoteStore, "get", lambda self, path: bodies[1] if path == commit_path(1) else get(self, path)
    )
    with pytest.raises(StorageError, match=r"file 'a' is part"):
        load_snapshot(store.uri, version=3, storage_options=s3_options)
