"""The local store: durable, all or nothing, one winner per name."""

from __future__ import annotations

import os
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore as OtherStore

from qbeast_core.errors import StorageError
from qbeast_core.io.store import LocalStore, merge_ranges, split_blocks


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_writers_of_other_libraries_are_excluded(store: LocalStore) -> None:
    other = OtherStore(store.local_root)
    obstore.put(other, "1.json", b"theirs", mode="create")
    with pytest.raises(FileExistsError):
        store.put_if_absent("1.json", b"ours")
    store.put_if_absent("2.json", b"ours")
    with pytest.raises(AlreadyExistsError):
        obstore.put(other, "2.json", b"theirs", mode="create")


def test_put_syncs_files_and_folders(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    store.put("new/sub/f", b"x")
    store.put_if_absent("g", b"x")
    root = str(store.local_root)
    folders = [path for path in synced if not path.endswith(".tmp")]
    assert folders == [root, f"{root}/new", f"{root}/new/sub", root]
    assert len(synced) - len(folders) == 2


@pytest.mark.parametrize("action", ["put", "put_if_absent"])
def test_full_disk_raises_and_leaves_no_file(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match=r"cannot write 'f'.*No space left") as caught:
        getattr(store, action)("f", b"data")
    assert caught.value.path == "f"
    assert list(Path(store.uri).iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a place that takes no folder, as Linux has one")
@pytest.mark.parametrize("action", ["put", "put_if_absent"])
def test_impossible_folder_raises_storage_error(action: str) -> None:
    with pytest.raises(StorageError, match=r"cannot write 'f': No such file or directory \(/proc/nowhere\)"):
        getattr(LocalStore("/proc/nowhere"), action)("f", b"x")


def test_folder_is_not_a_file(store: LocalStore) -> None:
    store.put("folder/file", b"0123")
    with pytest.raises(StorageError, match="folder"):
        store.get("folder")


@pytest.mark.parametrize(
    ("gap_bytes", "expected"),
    [
        (0, [(0, 7), (10, 0), (20, 6), (90, 10)]),
        (3, [(0, 10), (20, 6), (90, 10)]),
        (10, [(0, 26), (90, 10)]),
        (99, [(0, 100)]),
    ],
)
def test_ranges_are_cut_out_of_merged_reads(gap_bytes: int, expected: list[tuple[int, int]]) -> None:
    data = bytes(range(100))
    ranges = [(0, 3), (3, 0), (3, 4), (10, 0), (20, 5), (25, 1), (90, 10)]
    merged = merge_ranges(ranges, gap_bytes=gap_bytes)
    assert merged == expected
    blocks = [memoryview(data)[start : start + length] for start, length in merged]
    assert [bytes(p) for p in split_blocks(merged, blocks, ranges)] == [data[s : s + n] for s, n in ranges]
