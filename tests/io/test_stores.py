"""What every store keeps to, wherever its bytes lie."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qbeast_core.errors import StorageError, UnsupportedTableError
from qbeast_core.io.location import open_store
from qbeast_core.io.store import Store

ODD_NAMES = (
    "a/b c/é.bin",
    "100%",
    "%20",
    "a+b&c=d",
    "#1?x",
    "[0]*{1}",
    "x=1/y=a%2Fb/f",
    "日本/ф",
    'it\'s "so"',
    ".hidden",
    "_under",
    "10:30",
)
RANGES = [(0, 2), (2, 1), (5, 0), (8, 2)]


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "local":
        return open_store(request.getfixturevalue("tmp_path") / "not yet")
    return open_store(f"s3://{request.getfixturevalue('bucket')}/t", request.getfixturevalue("s3_options"))


class TestEveryStore:
    def test_store_holds_exactly_what_was_put(self, store: Store) -> None:
        assert store.list("") == []
        store.put("a/f", b"one")
        store.put("a/f", memoryview(b"other"))
        store.put_if_absent("top", b"")
        assert (store.get("a/f"), store.get("top")) == (b"other", b"")
        assert (store.size("a/f"), store.size("top")) == (5, 0)
        assert store.list("") == ["a/f", "top"]

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_kept(self, store: Store, name: str) -> None:
        store.put(name, b"0123")
        assert (store.get(name), store.size(name), store.get_range(name, 1, 2)) == (b"0123", 4, b"12")
        assert store.list("") == [name]
        with pytest.raises(FileExistsError):
            store.put_if_absent(name, b"")
        store.delete(name)
        assert store.list("") == []

    def test_listing_is_sorted_and_by_folder(self, store: Store) -> None:
        for name in ("b", "a/2", "a/1/x", "ab/3"):
            store.put(name, b"x")
        assert store.list("") == ["a/1/x", "a/2", "ab/3", "b"]
        assert store.list("a") == ["a/1/x", "a/2"]
        assert (store.list("a/1"), store.list("none"), store.entries("none")) == (["a/1/x"], [], [])

    def test_entries_have_length_and_age(self, store: Store) -> None:
        before = time.time_ns() // 1_000_000
        store.put("a/f", b"0123")
        store.put("g", b"")
        report = store.entries("")
        assert [(item.path, item.size) for item in report] == [("a/f", 4), ("g", 0)]
        after = time.time_ns() // 1_000_000
        assert all(
            before - 2000 <= item.modified_ms <= after + 2000 for item in report
        )  # some tell whole seconds

    def test_entries_begin_after_a_path(self, store: Store) -> None:
        for name in ("log/1", "log/2", "log/2.x", "log/3"):
            store.put(name, b"0")
        assert [item.path for item in store.entries("log", after="log/2")] == ["log/2.x", "log/3"]
        assert [item.path for item in store.entries("log", after="log/20")] == ["log/3"]
        assert store.entries("log", after="log/3") == []

    def test_ranges_are_read_to_the_byte(self, store: Store) -> None:
        store.put("f", b"0123456789")
        assert store.get_range("f", 2, 3) == b"234"
        assert [bytes(part) for part in store.get_ranges("f", RANGES)] == [b"01", b"2", b"", b"89"]
        assert store.get_ranges("f", []) == []

    @pytest.mark.parametrize(("start", "length"), [(8, 5), (10, 1)])
    def test_truncated_file_raises_storage_error(self, store: Store, start: int, length: int) -> None:
        store.put("f", b"0123456789")
        with pytest.raises(StorageError, match="'f'"):
            store.get_range("f", start, length)
        with pytest.raises(StorageError, match="'f'"):
            store.get_ranges("f", [(0, 1), (start, length)])

    def test_missing_file_is_named(self, store: Store) -> None:
        store.put("there", b"0")
        for read in (
            store.get,
            store.size,
            lambda path: store.get_range(path, 0, 1),
            lambda path: store.get_ranges(path, [(0, 1)]),
        ):
            with pytest.raises(FileNotFoundError):
                read("none")

    def test_delete_is_idempotent(self, store: Store) -> None:
        store.put("a/f", b"x")
        store.put("a/g", b"x")
        store.delete("a/f")
        store.delete("a/f")
        store.delete("never/there")
        assert store.list("") == ["a/g"]

    def test_only_first_of_many_writers_wins(self, store: Store) -> None:
        def write(number: int) -> bool:
            try:
                store.put_if_absent("log/0.json", b"%d" % number)
            except FileExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(write, range(16)))
        assert won.count(True) == 1
        assert store.get("log/0.json") == b"%d" % won.index(True)
        assert store.list("") == ["log/0.json"]

    @pytest.mark.parametrize("path", ["../f", "a/../../f", "/etc/hostname"])
    def test_paths_cannot_leave_the_root(self, store: Store, path: str) -> None:
        writes = (lambda p: store.put(p, b"x"), lambda p: store.put_if_absent(p, b"x"))
        for action in (store.get, store.size, store.delete, lambda p: store.get_range(p, 0, 1), *writes):
            with pytest.raises(UnsupportedTableError):
                action(path)
        if store.local_root is not None:
            assert not (Path(store.local_root).parent / "f").exists()
