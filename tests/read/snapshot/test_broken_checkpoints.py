"""Logs with a broken hint, or broken checkpoints, are read from their commits, named by check, and repaired."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.errors import QbeastWarning
from tests.format.delta_tables import copied
from tests.helpers.handmade_log import PROTOCOL, add, metadata, write_log
from tests.helpers.requests import counted

HINT, CLASSIC = "_last_checkpoint", f"{3:020d}.checkpoint.parquet"
NEWEST = 5


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound")
    pl.DataFrame({"price": [1.5]}).write_parquet(path / "file")
    size = (path / "file").stat().st_size
    commits = [[add(f"{number}", size=size, stats='{"numRecords":1}')] for number in range(1, NEWEST + 1)]
    write_log(path, [PROTOCOL, metadata()], *commits)
    DeltaTable(path, version=3).create_checkpoint()
    for number in range(1, NEWEST + 1):
        shutil.copy(path / "file", path / str(number))
    return path


def test_missing_version_copies_no_log(sound: Path) -> None:
    with counted() as requests, pytest.raises(qbeast.VersionNotFoundError):
        qbeast.open_table(sound, version=NEWEST + 1)
    assert requests
    assert {request.path for request in requests if request.bytes} == {f"_delta_log/{HINT}"}


@pytest.fixture
def table(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "t"))


def hint(**fields: object) -> Callable[[Path], object]:
    return lambda log: (log / HINT).write_text(json.dumps(fields))


def hint_text(text: str) -> Callable[[Path], object]:
    return lambda log: (log / HINT).write_text(text)


def checkpoint(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], object]:
    return lambda log: change(pl.read_parquet(log / CLASSIC)).write_parquet(log / CLASSIC)


def one_part_of_two(log: Path) -> None:
    pl.read_parquet(log / CLASSIC).write_parquet(log / f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet")
    (log / CLASSIC).unlink()
    hint(version=3, size=5, parts=2)(log)


def classic_of_zeros(log: Path) -> None:
    (log / CLASSIC).write_bytes(bytes(3000))


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "stale hint": hint(version=5, size=5),
    "checkpoint cut": lambda log: os.truncate(log / CLASSIC, 1000),
    "hint of a future version": hint(version=999, size=5),
    "checkpoint deleted": lambda log: (log / CLASSIC).unlink(),
    "checkpoint empty": lambda log: os.truncate(log / CLASSIC, 0),
    "checkpoint of zeros": classic_of_zeros,
    "checkpoint without rows": checkpoint(lambda rows: rows.clear()),
    "checkpoint of another kind": checkpoint(lambda _: pl.DataFrame({"x": [1]})),
    "a part missing": one_part_of_two,
}
READABLE: dict[str, Callable[[Path], object]] = {
    "hint is text": hint_text("hello"),
    "hint is empty": hint_text(""),
    "hint is a list": hint_text("[1]"),
    "hint without version": hint(size=5),
    "hint of a negative version": hint(version=-1),
    "hint of a wrong size": hint(version=3, size=500, numOfAddFiles=3),
    "hint of wrong adds": hint(version=3, size=5, numOfAddFiles=30),
}


def some(cases: dict[str, Callable[[Path], object]]) -> Sequence[object]:
    first, *rest = cases.values()
    names = iter(cases)
    params = [pytest.param(first, id=next(names))]
    return params + [pytest.param(one, id=next(names), marks=pytest.mark.sweep) for one in rest]


@pytest.mark.parametrize("damage", some(UNREADABLE))
def test_log_is_read_from_commits_and_repaired(table: Path, damage: Callable[[Path], object]) -> None:
    damage(table / "_delta_log")
    with pytest.raises(DeltaError):
        DeltaTable(table)
    with pytest.warns(QbeastWarning, match="read without broken parts"):
        opened = qbeast.open_table(table)
    assert opened.count() == NEWEST
    assert set(opened.check(data=False).faults.filter(pl.col("severity") == "error")["code"]) == {
        "checkpoint"
    }
    with pytest.warns(QbeastWarning, match="read without broken parts"):
        result = opened.repair()
    assert result.remaining.is_empty()
    assert {action for actions in result.repaired_files["actions"] for action in actions} == {
        "replace checkpoint"
    }
    assert len(DeltaTable(table).file_uris()) == NEWEST
    assert qbeast.open_table(table).check().ok


@pytest.mark.parametrize("damage", some(READABLE))
def test_hint_of_no_use_is_named_and_repaired(table: Path, damage: Callable[[Path], object]) -> None:
    damage(table / "_delta_log")
    opened = qbeast.open_table(table)
    assert opened.count() == NEWEST
    assert opened.check().faults.select("code", "path").rows() == [("checkpoint", f"_delta_log/{HINT}")]
    assert opened.repair(dry_run=True).repaired_files["path"].to_list() == [f"_delta_log/{HINT}"]
    assert not opened.check().ok
    opened.repair()
    assert opened.check().ok
    assert json.loads((table / "_delta_log" / HINT).read_text())["version"] == NEWEST


def test_writes_and_old_versions_do_not_need_a_checkpoint(table: Path) -> None:
    os.truncate(table / "_delta_log" / CLASSIC, 0)
    with pytest.warns(QbeastWarning, match="read without broken parts"):
        assert qbeast.open_table(table, version=4).count() == 4
    with pytest.warns(QbeastWarning, match="read without broken parts"):
        qbeast.convert_table(table, columns=["price"])
    # The version after the commit follows from it: the log is not read again.
    assert qbeast.read_table(table, where="price > 1").height == NEWEST


def test_opened_table_survives_a_checkpoint_that_breaks(table: Path) -> None:
    opened = qbeast.open_table(table)
    write_log(table, [add("1", size=1, stats='{"numRecords":1}')], first=NEWEST + 1)
    os.truncate(table / "_delta_log" / CLASSIC, 1000)
    hint(version=NEWEST, size=5)(table / "_delta_log")
    assert opened.refresh().version == NEWEST + 1


def test_lost_versions_are_never_skipped(table: Path) -> None:
    log = table / "_delta_log"
    os.truncate(log / CLASSIC, 1000)
    for number in range(3):
        (log / f"{number:020d}.json").unlink()
    with pytest.raises(
        qbeast.InvalidMetadataError, match=r"00003\.checkpoint\.parquet: it cannot be read.*Restore"
    ):
        qbeast.open_table(table)
    shutil.copy(log / f"{5:020d}.json", log / f"{0:020d}.json")
    for number in (3, 4, 5):
        (log / f"{number:020d}.json").unlink()  # the checkpoint stands for versions that are gone
    with pytest.raises(qbeast.InvalidMetadataError, match=r"00003\.checkpoint\.parquet"):
        qbeast.open_table(table)


@pytest.mark.parametrize("pattern", ["*8.checkpoint*.json", "_sidecars/*8.checkpoint*.parquet"])
def test_older_checkpoint_with_sidecars_replaces_a_broken_one(tmp_path: Path, pattern: str) -> None:
    path = copied("identity-columns/checkpoint-v2-table", tmp_path)
    expected = qbeast.read_table(path)
    path = Path(shutil.copytree(path, tmp_path / "again"))
    log = path / "_delta_log"
    for number in range(6):
        (log / f"{number:020d}.json").unlink()
    (file,) = log.glob(pattern)
    file.unlink()
    with pytest.warns(QbeastWarning, match="read without broken parts"):
        assert_frame_equal(qbeast.read_table(path), expected, check_row_order=False)


@pytest.mark.sweep
def test_far_log_is_read_from_commits(table: Path, bucket: str, s3_options: dict[str, str]) -> None:
    from qbeast_core.io.location import open_store  # noqa: PLC0415 - for this test alone

    uri = f"s3://{bucket}/t"
    os.truncate(table / "_delta_log" / CLASSIC, 1000)
    store = open_store(uri, s3_options)
    for path in table.rglob("*"):
        if path.is_file():
            store.put(path.relative_to(table).as_posix(), path.read_bytes())
    with pytest.warns(QbeastWarning, match="read without broken parts"):
        opened = qbeast.open_table(uri, storage_options=s3_options)
    assert opened.count() == NEWEST
    opened.repair()
    assert qbeast.open_table(uri, storage_options=s3_options).check().ok
