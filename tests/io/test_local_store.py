"""The local store: durable, all or nothing, one winner per name."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore as OtherStore

from qbeast_core.errors import StorageError
from qbeast_core.io.local import LocalStore
from qbeast_core.io.store import merge_ranges, split_blocks


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_what_is_put_is_there_and_nothing_else(store: LocalStore) -> None:
    store.put("a/b c/é.bin", b"one")
    store.put("a/b c/é.bin", memoryview(b"two"))
    store.put_if_absent("top", b"")
    assert store.get("a/b c/é.bin") == b"two"
    assert (store.size("top"), store.size("a/b c/é.bin")) == (0, 3)
    assert store.list("") == ["a/b c/é.bin", "top"]
    assert (store.list("a"), store.list("none")) == (["a/b c/é.bin"], [])
    store.delete("top")
    store.delete("top")
    assert store.list("") == ["a/b c/é.bin"]


def test_one_of_many_writers_wins_and_leaves_no_trace_of_the_others(store: LocalStore) -> None:
    def write(number: int) -> bool:
        try:
            store.put_if_absent("log/0.json", b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(32)))
    assert won.count(True) == 1
    assert store.get("log/0.json") == b"%d" % won.index(True)
    assert store.list("") == ["log/0.json"]


def test_writers_of_other_libraries_are_excluded_too(store: LocalStore) -> None:
    other = OtherStore(store.local_root)
    obstore.put(other, "1.json", b"theirs", mode="create")
    with pytest.raises(FileExistsError):
        store.put_if_absent("1.json", b"ours")
    store.put_if_absent("2.json", b"ours")
    with pytest.raises(AlreadyExistsError):
        obstore.put(other, "2.json", b"theirs", mode="create")


def test_files_and_their_folders_are_synced_before_a_put_returns(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_full_disk_is_a_storage_error_and_leaves_nothing(
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
def test_a_place_that_takes_no_folder_is_a_storage_error(action: str) -> None:
    with pytest.raises(StorageError, match=r"cannot write 'f': No such file or directory \(/proc/nowhere\)"):
        getattr(LocalStore("/proc/nowhere"), action)("f", b"x")


def test_a_missing_file_is_named_as_such(store: LocalStore) -> None:
    for read in (store.get, store.size, lambda path: store.get_range(path, 0, 1)):
        with pytest.raises(FileNotFoundError):
            read("none")
    store.put("folder/file", b"0123")
    with pytest.raises(StorageError, match="folder"):
        store.get("folder")
    with pytest.raises(StorageError, match="ends before byte 5"):
        store.get_range("folder/file", 3, 2)


def test_ranges_are_cut_out_of_merged_reads() -> None:
    data = bytes(range(100))
    ranges = [(0, 3), (3, 0), (3, 4), (10, 0), (20, 5), (25, 1), (90, 10)]
    merged = merge_ranges(ranges)
    assert merged == [(0, 7), (10, 0), (20, 6), (90, 10)]
    blocks = [memoryview(data)[start : start + length] for start, length in merged]
    assert [bytes(p) for p in split_blocks(merged, blocks, ranges)] == [data[s : s + n] for s, n in ranges]
