"""Tables on a system like Windows: no `pread`, texts with other ends of lines, and folders that cannot be opened."""

from __future__ import annotations

import ntpath
import os
from pathlib import Path

import polars as pl
import pytest

import qbeast
from qbeast_core.io import address as resolve
from qbeast_core.io.address import resolve_location
from qbeast_core.io.store import LocalStore

BINARY = 1 << 30


@pytest.fixture
def other_system(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Change `os` so; return the files that are opened."""
    opened: list[str] = []
    open_file = os.open

    def open_binary(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", os.fspath(path))
        opened.append(os.fspath(path))
        assert flags & BINARY or Path(path).name == "lock", f"{path} is opened as text"
        return open_file(path, flags & ~BINARY, mode)

    monkeypatch.setattr(os, "O_BINARY", BINARY, raising=False)
    monkeypatch.setattr(os, "open", open_binary)
    for name in (
        "pread",
        "preadv",
        "posix_fadvise",
        "O_CLOEXEC",
        "O_NOFOLLOW",
        "O_DIRECTORY",
        "sysconf",
        "getuid",
    ):
        monkeypatch.delattr(os, name, raising=name in {"pread", "sysconf"})
    monkeypatch.setattr("sys.platform", "win32")
    return opened


def test_files_keep_their_bytes(tmp_path: Path, other_system: list[str]) -> None:
    store, data = LocalStore(tmp_path / "new"), b"\r\n\x1a\n" * 100
    store.put("a/b", data)
    store.put_if_absent("a/c", data)
    with pytest.raises(FileExistsError):
        store.put_if_absent("a/c", b"other")
    assert [bytes(part) for part in store.get_ranges("a/c", [(0, 4), (9, 7)])] == [data[:4], data[9:16]]
    assert store.get("a/b") == data
    assert len(other_system) == 4


def test_table_lives_through_its_operations(tmp_path: Path, other_system: list[str]) -> None:
    rows = pl.DataFrame({"id": range(400)}).with_columns(x=pl.col("id") * 7 % 101)
    qbeast.write_table(rows, tmp_path, columns=["id"], deletion_vectors=True)
    table = qbeast.open_table(tmp_path)
    table.delete("id < 10")
    table.update("id = 20", {"x": "-1"})
    qbeast.write_table(rows[:10], tmp_path, mode="append")
    table = qbeast.open_table(tmp_path)
    table.optimize(full=True)
    table.vacuum(dry_run=False)
    expected = rows.with_columns(x=pl.when(id=20).then(-1).otherwise("x"))
    assert qbeast.open_table(tmp_path).read().sort("id").equals(expected)
    assert table.check().ok
    assert other_system


def test_folder_has_slashes_on_each_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(os.path, "realpath", lambda text: ntpath.join("C:\\tables", ntpath.normpath(text)))
    assert resolve_location("shop/orders") == resolve.resolve_location("C:\\tables\\shop\\orders")
    assert resolve_location("shop/orders") == "C:/tables/shop/orders"
