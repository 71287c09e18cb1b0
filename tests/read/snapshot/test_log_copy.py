"""A far table opened by a copy of its log is the table that lies there, however its log looks."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from qbeast_core.errors import QbeastError
from qbeast_core.io.remote import RemoteStore
from qbeast_core.table.snapshot import log_files as log_copy
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, refresh
from tests.helpers.handmade_log import PROTOCOL, add, metadata, remove, write_log
from tests.helpers.small_files import resized

COMMITS = [
    [PROTOCOL, metadata(), add("a")],
    [add("b")],
    [add("c"), remove("a")],
    [add("d%2Be")],
    [remove("b")],
]


class Far:
    """A table in a bucket, made of the files of a local one."""

    def __init__(self, root: Path, bucket: str, options: dict[str, str]) -> None:
        self.root, self.bucket, self.options = root, bucket, options
        self.uri = f"s3://{bucket}/t"

    def upload(self) -> None:
        """Make the bucket hold what the folder holds; its server runs in this process."""
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        backend.get_bucket(self.bucket).keys.clear()
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                backend.put_object(
                    self.bucket, f"t/{path.relative_to(self.root).as_posix()}", path.read_bytes()
                )

    def load(self) -> Snapshot:
        return load_snapshot(self.uri, storage_options=self.options)


@pytest.fixture
def far(tmp_path: Path, bucket: str, s3_options: dict[str, str]) -> Far:
    return Far(Path(write_log(tmp_path / "t", *COMMITS)), bucket, s3_options)


def checkpoint(root: Path, version: int) -> None:
    DeltaTable(str(root), version=version).create_checkpoint()


def log(root: Path, name: str) -> Path:
    return root / "_delta_log" / name


def commit(root: Path, version: int) -> Path:
    return log(root, f"{version:020d}.json")


def without_commits_before(root: Path) -> None:
    checkpoint(root, 2)
    commit(root, 0).unlink()
    commit(root, 1).unlink()


def without_hint(root: Path) -> None:
    checkpoint(root, 2)
    log(root, "_last_checkpoint").unlink()


def of_an_older_hint(root: Path) -> None:
    checkpoint(root, 1)
    hint = log(root, "_last_checkpoint").read_bytes()
    checkpoint(root, 3)
    log(root, "_last_checkpoint").write_bytes(hint)


def in_parts(root: Path) -> None:
    checkpoint(root, 2)
    whole = log(root, f"{2:020d}.checkpoint.parquet")
    rows = pl.read_parquet(whole)
    whole.unlink()
    log(root, "_last_checkpoint").unlink()
    for part in (1, 2):
        half = rows[: rows.height // 2] if part == 1 else rows[rows.height // 2 :]
        half.write_parquet(log(root, f"{2:020d}.checkpoint.{part:010d}.{2:010d}.parquet"))


def with_strange_files(root: Path) -> None:
    checkpoint(root, 1)
    for name in (
        "_staged_commits/x.json",
        f"{7:020d}.{9:020d}.compacted.json",
        ".tmp",
    ):
        path = log(root, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")


LOGS = (
    lambda _: None,
    without_commits_before,
    without_hint,
    of_an_older_hint,
    in_parts,
    with_strange_files,
)


def assert_same(there: Snapshot, here: Snapshot) -> None:
    assert (there.version, there.metadata, there.protocol) == (here.version, here.metadata, here.protocol)
    assert there.timestamp_ms == here.timestamp_ms
    assert there.files.sort("path").equals(here.files.sort("path"))


@pytest.mark.parametrize("shape", LOGS, ids=lambda shape: shape.__name__)
def test_bucket_table_equals_folder_table(far: Far, shape: Callable[[Path], None]) -> None:
    shape(far.root)
    far.upload()
    there = far.load()
    assert_same(there, load_snapshot(far.root))
    assert there.uri == far.uri

    write_log(far.root, [add("f"), remove("c")], [add("g")], first=len(COMMITS))
    far.upload()
    assert_same(refresh(there), load_snapshot(far.root))
    assert refresh(refresh(there)).version == len(COMMITS) + 1


def test_large_log_is_read_where_it_is(far: Far) -> None:
    far.upload()
    copied = far.load()
    with resized(max_copied_log_bytes=0):
        assert log_copy.copy_log(copied.source.store, None) is None
        assert_same(far.load(), load_snapshot(far.root))


def without_the_first_commit(root: Path) -> None:
    commit(root, 0).unlink()


def with_a_gap(root: Path) -> None:
    checkpoint(root, 2)
    commit(root, 3).unlink()


@pytest.mark.parametrize("shape", [without_the_first_commit, with_a_gap])
def test_damaged_log_raises_equally_in_both(far: Far, shape: Callable[[Path], None]) -> None:
    shape(far.root)
    far.upload()
    with pytest.raises(QbeastError) as here:
        load_snapshot(far.root)
    with pytest.raises(QbeastError) as there:
        far.load()
    assert there.type is here.type
    assert str(there.value) == str(here.value).replace(str(far.root), far.uri)


def test_cleaned_up_commits_are_found_in_checkpoint(far: Far) -> None:
    far.upload()
    there = far.load()
    write_log(far.root, [add("f")], [add("g"), remove("c")], first=len(COMMITS))
    checkpoint(far.root, len(COMMITS) + 1)
    for version in range(len(COMMITS) + 1):
        commit(far.root, version).unlink()
    far.upload()
    assert_same(refresh(there), load_snapshot(far.root))


def test_opening_requests_hint_listing_and_files_once(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(far.root, 2)
    far.upload()
    request: list[str] = []

    def counting(name: str, ask: Callable) -> Callable:
        def counted(self: RemoteStore, path: str, *rest: object, **named: object) -> object:
            request.append(f"{name} {path.removeprefix('_delta_log').strip('/').lstrip('0')}")
            return ask(self, path, *rest, **named)

        return counted

    for name in ("get", "get_ranges", "size", "entries"):
        monkeypatch.setattr(RemoteStore, name, counting(name, getattr(RemoteStore, name)))
    far.load()
    first, second, *files = request
    assert (first, second) == ("get _last_checkpoint", "entries ")
    assert sorted(files) == ["get 2.checkpoint.parquet", "get 2.json", "get 3.json", "get 4.json"]


def test_full_disk_does_not_prevent_opening(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    far.upload()
    here = load_snapshot(far.root)
    monkeypatch.setattr(Path, "write_bytes", full)
    there = far.load()
    assert there.source.copy is None
    assert_same(there, here)


def test_deleted_copy_is_made_again(far: Far) -> None:
    far.upload()
    there = far.load()
    assert there.source.copy is not None
    shutil.rmtree(there.source.copy.path)
    assert_same(refresh(there), load_snapshot(far.root))
    there = far.load()
    assert there.source.copy is not None
    shutil.rmtree(there.source.copy.path)
    write_log(far.root, [add("f")], first=len(COMMITS))
    far.upload()
    assert_same(refresh(there), load_snapshot(far.root))


def test_copy_is_deleted_with_its_last_snapshot(far: Far) -> None:
    far.upload()
    there = far.load()
    assert there.source.copy is not None
    folder = Path(there.source.copy.path)
    assert folder.is_dir()
    del there
    gc.collect()
    assert not folder.exists()


def test_copy_of_killed_process_is_removed(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far.upload()
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    there = far.load()
    left = folder / "qbeast-log-left"
    left.mkdir()
    (left / "lock").touch()  # which nobody holds
    again = far.load()
    assert not left.exists()
    assert len(list(folder.iterdir())) == 2  # of the two tables that are open
    assert_same(again, there)
