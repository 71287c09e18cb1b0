"""Damaged plan files, and folders where none can be made: the log decides, with the same rows and counts."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.plan.nodes import Unknown
from qbeast_core.plan.predicate import understand
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, refresh
from tests.helpers.examples import examples
from tests.helpers.handmade_log import PROTOCOL, metadata, remove, write_log
from tests.helpers.plan_files import (
    assert_lists,
    by_deltalake,
    checkpoint,
    files_of,
    opened,
    planned,
    plans_in,
    priced,
)
from tests.helpers.small_files import resized

CHEAP = pl.col("price") < 2.5


class Made:
    """A table with a plan file, and the files that `deltalake` lists."""

    def __init__(self, folder: Path) -> None:
        adds = [priced(f"f{number}", number, 10 + number) for number in range(7)]
        self.cache, self.table = folder / "temporary", folder / "t"
        write_log(self.table, [PROTOCOL, metadata(), *adds])
        checkpoint(self.table)
        write_log(self.table, [remove("f1"), priced("g", 0.5)], first=1)
        with planned(self.cache):
            opened(self.table)
        (self.plan,) = plans_in(self.cache)
        self.sound = folder / "sound"
        shutil.copytree(self.plan, self.sound)
        self.files = by_deltalake(self.table)

    def spoilt(self, name: str, data: bytes) -> None:
        """Put the sound plan file back, with other bytes in one of its files."""
        shutil.rmtree(self.plan, ignore_errors=True)
        shutil.copytree(self.sound, self.plan)
        (self.plan / name).write_bytes(data)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


def cheap(snapshot: Snapshot) -> list[str]:
    node, _ = understand(CHEAP, snapshot.schema)
    return sorted(snapshot.narrowed(node).files["path"])


NAMES = ("files.parquet", "facts.json", "rest.parquet")


@given(name=st.sampled_from(NAMES), at=st.integers(0, 1 << 20), flip=st.integers(1, 255), cut=st.booleans())
@examples(4, sweep=300)
def test_any_damage_leaves_the_files_of_the_log(
    made: Made, name: str, at: int, flip: int, *, cut: bool
) -> None:
    data = bytearray((made.sound / name).read_bytes())
    data[at % len(data)] ^= flip
    with planned(made.cache):
        made.spoilt(name, bytes(data[: at % len(data)] if cut and at % 5 == 0 else data))
        snapshot = load_snapshot(made.table)
        assert snapshot.version == 1
        assert cheap(snapshot) == ["f0", "f2", "g"]
        assert snapshot.counted_rows == made.files["num_records"].sum()
        assert files_of(snapshot.narrowed(Unknown())).equals(made.files)


@pytest.mark.parametrize("name", NAMES)
def test_damage_after_opening_is_found_when_it_is_read(made: Made, name: str) -> None:
    data = (made.sound / name).read_bytes()
    with planned(made.cache):
        made.spoilt(name, data)
        snapshot = opened(made.table)
        with (made.plan / name).open("r+b") as file:  # the same file, which stays open
            file.write(bytes(len(data)))
        assert_lists(snapshot, made.files)
        assert cheap(snapshot) == ["f0", "f2", "g"]
        assert_lists(opened(made.table), made.files)


def test_damage_is_found_by_a_refresh(made: Made, tmp_path: Path) -> None:
    table = Path(shutil.copytree(made.table, tmp_path / "t"))
    with planned(tmp_path / "temporary") as cache:
        snapshot = opened(table)
        (plan,) = plans_in(cache)
        with (plan / "files.parquet").open("r+b") as file:
            file.write(bytes(4000))
        write_log(table, [remove("f3")], first=2)
        assert_lists(refresh(snapshot), by_deltalake(table))
        assert_lists(opened(table), by_deltalake(table))


def linked(folder: Path) -> None:
    target = folder.parent / "target"
    target.mkdir(mode=0o700)
    (folder / f"qbeast-plans-{os.getuid()}").symlink_to(target)


def open_to_others(folder: Path) -> None:
    (folder / f"qbeast-plans-{os.getuid()}").mkdir(mode=0o777)
    (folder / f"qbeast-plans-{os.getuid()}").chmod(0o777)


def of_another_user(folder: Path) -> None:
    mine = folder / f"qbeast-plans-{os.getuid()}"
    mine.mkdir(mode=0o700)
    os.chown(mine, 12345, 12345)


def a_file(folder: Path) -> None:
    (folder / f"qbeast-plans-{os.getuid()}").touch()


FOLDERS: tuple[Callable[[Path], None], ...] = (linked, open_to_others, of_another_user, a_file, shutil.rmtree)


@pytest.mark.parametrize("spoil", FOLDERS, ids=lambda spoil: spoil.__name__)
def test_log_is_read_without_a_private_folder(
    made: Made, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    if spoil is of_another_user and os.getuid():
        pytest.skip("only root gives folders away")
    with planned(tmp_path / "temporary") as cache:
        spoil(cache)
        before = sorted(tmp_path.rglob("*"))
        snapshot = load_snapshot(made.table)
        assert snapshot.planned is None
        assert_lists(snapshot, made.files)
        assert sorted(tmp_path.rglob("*")) == before


def test_full_disk_has_the_log_decide(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with planned(tmp_path / "temporary") as cache:
        snapshot = load_snapshot(made.table)
        assert snapshot.planned is None
        assert_lists(snapshot, made.files)
        assert not any(path.is_file() for path in cache.rglob("*"))


def test_cache_of_plan_files_is_bounded(made: Made, tmp_path: Path) -> None:
    with planned(tmp_path / "temporary") as cache:
        tables = [Path(shutil.copytree(made.table, tmp_path / f"t{number}")) for number in range(3)]
        for table in tables[:2]:
            opened(table)
        assert len(plans_in(cache)) == 2
        size = sum(file.stat().st_size for file in plans_in(cache)[0].iterdir())
        opened(tables[0])  # the second is now the one that was not used for the longest time
    with planned(tmp_path / "temporary") as cache, resized(plan_cache_bytes=2 * size + 10):
        assert_lists(opened(tables[2]), made.files)
        assert len(plans_in(cache)) == 2
        assert_lists(opened(tables[1]), made.files)
        assert {path.name.partition("-")[0] for path in (cache.glob("qbeast-plans*/*"))} == {f"{0:020d}"}


def test_files_beyond_the_memory_are_refused(made: Made) -> None:
    with planned(made.cache):
        made.spoilt("facts.json", (made.sound / "facts.json").read_bytes())
        snapshot = opened(made.table)
    with planned(made.cache), resized(listed_share=1e-12):
        assert (snapshot.file_count, snapshot.counted_rows) == (7, made.files["num_records"].sum())
        for read in (lambda: snapshot.files, lambda: snapshot.narrowed(Unknown())):
            with pytest.raises(qbeast.MemoryBudgetError, match=r"6 files of .*Table\.optimize\(\)") as caught:
                read()
            assert caught.value.files == sent(caught.value).files == 6
        assert sum(part.files.height for part in snapshot.parts(Unknown())) == 7


def sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 -- our own bytes


def test_pickled_parts_keep_their_files_in_order(made: Made) -> None:
    with planned(made.cache):
        snapshot = load_snapshot(made.table)
        node, _ = understand(CHEAP, snapshot.schema)
        for some in (snapshot.narrowed(node), *snapshot.parts(node)):
            again = sent(some)
            assert again.files.select(some.files.columns).equals(some.files)
            assert (again.file_count, again.counted_rows) == (some.file_count, some.counted_rows)
            shutil.rmtree(made.plan, ignore_errors=True)  # the receiver has no plan file
        assert_lists(sent(snapshot), made.files)
    again = sent(some)  # in a process that makes no plan files
    assert again.files.select(some.files.columns).equals(some.files)
