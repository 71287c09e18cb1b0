"""Vacuum: files of old versions and of interrupted writes go, everything that somebody needs stays."""

from __future__ import annotations

import json
import os
import struct
import time
import uuid
import zlib
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.table.commit import commit
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import copy_of
from tests.format.collection import find
from tests.helpers.deletion_vectors import bitmap, delete, z85

ROWS = pl.DataFrame({"id": range(100)})
NOW: dict[str, object] = {"retention_hours": 0, "allow_short_retention": True, "dry_run": False}


def table(path: Path, writes: int = 3) -> qbeast.Table:
    """Overwrite again and again."""
    for number in range(writes):
        qbeast.write_table(ROWS.with_columns(pl.col("id") + number), path, columns=["id"], mode="overwrite")
    return qbeast.open_table(path)


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86_400
    for item in path.rglob("*"):
        os.utime(item, (then, then))


def age_removes(path: Path, days: float) -> None:
    for log in (path / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] -= int(days * 86_400_000)
        log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def files(path: Path) -> set[str]:
    return {item.relative_to(path).as_posix() for item in path.rglob("*") if item.is_file()}


def test_old_files_are_deleted_after_the_retention(tmp_path: Path) -> None:
    opened = table(tmp_path)
    age(tmp_path, 30)
    assert opened.vacuum().files == ()
    age_removes(tmp_path, 8)
    opened = qbeast.open_table(tmp_path)
    dry = opened.vacuum()
    assert (len(dry.files), dry.deleted, dry.retention_hours) == (2, False, 168.0)
    assert dry.bytes == sum((tmp_path / name).stat().st_size for name in dry.files)
    before = files(tmp_path)
    done = opened.vacuum(dry_run=False)
    assert (done.files, done.deleted) == (dry.files, True)
    assert before - files(tmp_path) == set(dry.files)
    assert qbeast.read_table(tmp_path)["id"].sort()[0] == 2
    assert opened.vacuum().files == ()


def test_removes_in_checkpoint_count_like_commits(tmp_path: Path) -> None:
    opened = table(tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    for number in range(2):
        (tmp_path / "_delta_log" / f"{number:020d}.json").unlink()
    age(tmp_path, 30)
    assert opened.vacuum().files == ()
    assert len(opened.vacuum(**{**NOW, "dry_run": True}).files) == 2


def test_leftover_files_go_and_other_files_stay(tmp_path: Path) -> None:
    opened = table(tmp_path, writes=1)
    live = files(tmp_path)
    orphans = {
        f"{uuid.uuid4()}.parquet",
        "o.parquet#1",
        ".0123456789abcdef.tmp",
        "_delta_log/.0123456789abcdef.tmp",
        f"deletion_vector_{uuid.uuid4()}.bin",
        "sub/a.parquet",
    }
    others = {"notes.txt", "_qbeast/a.parquet", ".hidden.parquet", "_delta_log/x#1", "sub/x.bin", ".a.crc"}
    for name in orphans | others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert opened.vacuum(dry_run=False).files == (), "a writer may be at work"
    age(tmp_path, 8)
    assert set(opened.vacuum(dry_run=False).files) == orphans
    assert files(tmp_path) == live | others


def test_deletion_vectors_of_live_files_stay(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"])
    delete(tmp_path, [1, 2])
    name, data = uuid.uuid4(), bitmap([1, 2])
    vector = tmp_path / f"deletion_vector_{name}.bin"
    vector.write_bytes(b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    where = {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1, "sizeInBytes": len(data)}
    lines[-1]["add"]["deletionVector"] = {**where, "cardinality": 2}
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    age(tmp_path, 30)
    opened = qbeast.open_table(tmp_path)
    assert opened.vacuum(**NOW).files == ()
    assert opened.read().height == 98
    qbeast.write_table(ROWS, tmp_path, mode="overwrite")
    age(tmp_path, 30)
    assert opened.vacuum().files == ()
    assert vector.name in opened.vacuum(**{**NOW, "dry_run": True}).files
    vector.unlink()
    with pytest.raises(qbeast.VersionNotFoundError, match=vector.name):
        opened.restore(1)


def test_files_committed_since_opening_stay(tmp_path: Path) -> None:
    opened = table(tmp_path, writes=1)
    qbeast.write_table(ROWS, tmp_path, mode="append")
    age(tmp_path, 30)
    assert opened.vacuum(**NOW).files == ()
    assert qbeast.read_table(tmp_path).height == 200


def test_files_live_for_spark_stay_until_upgrade(tmp_path: Path) -> None:
    path = copy_of(find("legacy/v050_mixed_states"), tmp_path)
    (hidden,) = {item.name for item in path.glob("*.parquet")} - set(load_snapshot(path).logged_files["path"])
    age(path, 30)
    assert qbeast.open_table(path).vacuum(**NOW).files == ()
    qbeast.open_table(path).upgrade(replicated="keep")
    assert qbeast.open_table(path).vacuum(**NOW).files == (hidden,)


def set_by_another(path: Path, properties: dict[str, str]) -> None:
    """Set properties as a writer does that takes any value for them."""
    snapshot = load_snapshot(path)
    configuration = {**snapshot.metadata.configuration, **properties}
    changed = snapshot.metadata.model_copy(update={"configuration": configuration})
    commit(snapshot.source.store, snapshot, WriteIntent(mode="metadata", metadata=changed))


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("interval 2 days", 48.0),
        ("interval 30 days 12 hours", 732.0),
        ("interval 30 minutes", 0.5),
        ("1 week", 168.0),
        ("no interval", 168.0),
    ],
)
def test_table_property_sets_the_retention(text: str, hours: float, tmp_path: Path) -> None:
    opened = table(tmp_path, writes=1)
    set_by_another(tmp_path, {"delta.deletedFileRetentionDuration": text})
    opened = opened.refresh()
    assert opened.vacuum().retention_hours == hours
    with pytest.raises(qbeast.InvalidInputError, match=r"less than the .* hours that"):
        opened.vacuum(retention_hours=hours / 2)
    assert opened.vacuum(retention_hours=hours * 2).retention_hours == hours * 2
    with pytest.raises(qbeast.InvalidInputError, match="at least 0"):
        opened.vacuum(retention_hours=-1, allow_short_retention=True)
