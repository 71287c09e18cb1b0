from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from qbeast_core.errors import (
    InvalidInputError,
    InvalidMetadataError,
    TableNotFoundError,
    UnsupportedTableError,
    VersionNotFoundError,
)
from qbeast_core.log.replay import TAG_COLUMNS
from qbeast_core.table.snapshot.log_files import newest_checkpoint
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, refresh
from tests.helpers.handmade_log import PROTOCOL, add, features, metadata, remove, replay, write_log

VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}
TAGS = {"revision": "1", "blocks": '[{"cube":""}]', "qbeast.layout": "{}", "qbeast.rules": "1"}
FLAT = {
    "state": "FLOODED",
    "cube": "w",
    "revision": "1",
    "minWeight": "-5",
    "maxWeight": "7",
    "elementCount": "2",
}
TRANSLATED = '[{"cubeId":"w","minWeight":-5,"maxWeight":7,"elementCount":2,"replicated":false}]'
COMMITS = [
    [PROTOCOL, metadata(), add("a", tags=TAGS), add("b%20c", tags=FLAT), add("gone", tags=TAGS)],
    [remove("gone"), add("plain"), add("foreign", tags={"INSERTION_TIME": "1", "revision": None})],
    [add("a", tags={**TAGS, "revision": "2"}), add("odd", tags={"revision": "one", "minWeight": "x"})],
    [add("a", tags={**TAGS, "revision": "3"}, dataChange=False)],
]
KEYS = {
    "revision": "revision", "blocks": "blocks", "layout": "qbeast.layout", "rules": "qbeast.rules", "state": "state",
}  # fmt: skip


def assert_as_replayed(snapshot: Snapshot) -> None:
    live = replay(snapshot.uri)
    assert sorted(snapshot.files["path"]) == sorted(live)
    for row in snapshot.files.iter_rows(named=True):
        tags = live[row["path"]].get("tags") or {}
        if tags == FLAT:
            tags = {**FLAT, "blocks": TRANSLATED}
        for column, key in KEYS.items():
            text = tags.get(key)
            if snapshot.files.schema[column] == pl.Int64:
                text = int(text) if text and text.removeprefix("-").isdigit() else None
            assert row[column] == text, (row["path"], column)
        assert row["has_deletion_vector"] == ("deletionVector" in live[row["path"]])


def checkpoint(root: Path | str, version: int) -> None:
    DeltaTable(root, version=version).create_checkpoint()


@pytest.mark.parametrize("at", [None, 0, 1, 3])
def test_tags_come_from_newest_add(tmp_path: Path, at: int | None) -> None:
    root = write_log(tmp_path, *COMMITS)
    if at is not None:
        checkpoint(root, at)
    snapshot = load_snapshot(root)
    assert_as_replayed(snapshot)
    assert (snapshot.version, snapshot.schema) == (3, pl.Schema({"price": pl.Float64}))
    assert "b c" in snapshot.data_paths


@pytest.mark.parametrize("hint", [None, "{corrupt", "[]"])
def test_lost_or_damaged_hint_is_harmless(tmp_path: Path, hint: str | None) -> None:
    root = write_log(tmp_path, *COMMITS)
    checkpoint(root, 2)
    path = tmp_path / "_delta_log" / "_last_checkpoint"
    path.unlink()
    if hint is not None:
        path.write_text(hint)
    assert_as_replayed(load_snapshot(root))


def test_older_versions_are_loaded(tmp_path: Path) -> None:
    root = write_log(tmp_path, *COMMITS)
    checkpoint(root, 2)
    for version in range(3):
        shutil.rmtree(tmp_path / "then", ignore_errors=True)
        then = load_snapshot(write_log(tmp_path / "then", *COMMITS[: version + 1]))
        now = load_snapshot(root, version=version)
        assert now.version == version
        assert now.files.sort("path").equals(then.files.sort("path"))


@pytest.mark.parametrize("parts", [1, 2])
def test_checkpoints_in_parts_hold_tags(tmp_path: Path, parts: int) -> None:
    root = write_log(tmp_path, *COMMITS)
    expected = load_snapshot(root).files.select(TAG_COLUMNS).sort("path")
    checkpoint(root, 1)
    log = tmp_path / "_delta_log"
    if parts == 2:
        whole = pl.read_parquet(log / f"{1:020d}.checkpoint.parquet")
        (log / f"{1:020d}.checkpoint.parquet").unlink()
        (log / "_last_checkpoint").unlink()
        for part, rows in enumerate(whole.iter_slices(-(-whole.height // 2)), start=1):
            rows.write_parquet(log / f"{1:020d}.checkpoint.{part:010d}.{2:010d}.parquet")
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    assert load_snapshot(root).files.select(TAG_COLUMNS).sort("path").equals(expected)


def test_v2_checkpoint_with_sidecars_holds_tags(tmp_path: Path) -> None:
    protocol = features("v2Checkpoint", reader=["v2Checkpoint"])
    root = write_log(tmp_path, [protocol, *COMMITS[0][1:]], *COMMITS[1:])
    checkpoint(root, 1)
    log = tmp_path / "_delta_log"
    expected = load_snapshot(root).files.select(TAG_COLUMNS).sort("path")
    (classic,) = log.glob("*.checkpoint*.parquet")
    whole = pl.read_parquet(classic)
    classic.unlink()
    (log / "_last_checkpoint").unlink()
    (log / "_sidecars").mkdir(exist_ok=True)
    adds = whole.filter(pl.col("add").struct.field("path").is_not_null()).select("add")
    adds.write_parquet(log / "_sidecars" / "3a0d65cd.parquet")
    size = (log / "_sidecars" / "3a0d65cd.parquet").stat().st_size
    lines = [
        {"checkpointMetadata": {"version": 1}},
        {"sidecar": {"path": "3a0d65cd.parquet", "sizeInBytes": size, "modificationTime": 1}},
        protocol,
        metadata(),
    ]
    name = f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (log / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    assert load_snapshot(root).files.select(TAG_COLUMNS).sort("path").equals(expected)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_deletion_vectors_are_kept(tmp_path: Path, *, checkpointed: bool) -> None:
    protocol = features("deletionVectors", reader=["deletionVectors"])
    stats = '{"numRecords":10}'
    root = write_log(
        tmp_path, [protocol, metadata(), add("a", stats=stats, deletionVector=VECTOR), add("b", stats=stats)]
    )
    if checkpointed:
        checkpoint(root, 0)
    files = load_snapshot(root).files.sort("path")
    assert files["has_deletion_vector"].to_list() == [True, False]
    actual = json.loads(files["deletion_vector"][0])
    assert {key: value for key, value in actual.items() if value is not None} == VECTOR


def test_typed_statistics_come_from_deltalake(tmp_path: Path) -> None:
    stats = '{"numRecords":2,"minValues":{"price":0.5},"maxValues":{"price":1.5},"nullCount":{"price":0}}'
    root = write_log(tmp_path / "t", [PROTOCOL, metadata(), add("a", stats=stats), add("b")])
    files = load_snapshot(root).files.sort("path")
    assert files["num_records"].to_list() == [2, None]
    assert files["max"].to_list()[0] == {"price": 1.5}
    lists = {"type": "array", "elementType": "long", "containsNull": True}
    schema = {"type": "struct", "fields": [{"name": "l", "type": lists, "nullable": True, "metadata": {}}]}
    bare = load_snapshot(write_log(tmp_path / "bare", [PROTOCOL, metadata(schema), add("a")]))
    assert bare.files["min"].to_list() == [None]


def test_commit_without_changes_is_a_version(tmp_path: Path) -> None:
    snapshot = load_snapshot(write_log(tmp_path, [PROTOCOL, metadata()], [{"commitInfo": {}}]))
    assert (snapshot.version, snapshot.files.height, snapshot.timestamp_ms) == (1, 0, 0)


# --- refresh ---------------------------------------------------------------------------------------------------


def test_refresh_equals_load_and_keeps_older_snapshots(tmp_path: Path) -> None:
    root = write_log(tmp_path, *COMMITS[:1])
    first = load_snapshot(root)
    height = first.files.height
    for version, actions in enumerate(COMMITS[1:], start=1):
        write_log(tmp_path, actions, first=version)
        newest = refresh(first)  # from version 0 each time: the handle below has moved on
        assert newest.version == version
        assert_as_replayed(newest)
        assert newest.files.sort("path").equals(load_snapshot(root).files.sort("path"))
    assert (first.version, first.files.height) == (0, height)


def test_refresh_detects_a_recreated_table(tmp_path: Path) -> None:
    old = load_snapshot(write_log(tmp_path / "t", *COMMITS))
    shutil.rmtree(tmp_path / "t")
    write_log(tmp_path / "t", *COMMITS[:2], [add("new")], [add("newer")])
    assert_as_replayed(refresh(old))


def test_refresh_sees_removes_under_other_encoding(tmp_path: Path) -> None:
    commits = [
        [PROTOCOL, metadata(), add("a%2Bb"), add("c%2Bd"), add("e%2Bf"), add("plain")],
        [remove("a+b")],
        [add("new")],
        [remove("c+d"), add("a+b", size=7)],
        [add("c%2Bd", size=7), remove("plain")],
    ]
    rows_held = [load_snapshot(write_log(tmp_path, *commits[:1]))]
    for version, actions in enumerate(commits[1:], start=1):
        root = write_log(tmp_path, actions, first=version)
        expected = load_snapshot(root).files.sort("path")
        for older in rows_held:
            assert refresh(older).files.sort("path").equals(expected)
        rows_held.append(refresh(rows_held[-1]))
    assert sorted(expected["path"]) == ["a+b", "c%2Bd", "e%2Bf", "new"]


def test_refresh_survives_log_cleanup(tmp_path: Path) -> None:
    root = write_log(tmp_path, *COMMITS[:1])
    old = load_snapshot(root)
    write_log(tmp_path, *COMMITS[1:], first=1)
    expected = load_snapshot(root).files.sort("path")
    checkpoint(root, 3)
    for version in (0, 1, 2):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert refresh(old).files.sort("path").equals(expected)


# --- what other programs leave ------------------------------------------------------------------------------------


def test_plain_delta_operations_drop_only_tags(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pl.DataFrame({"price": [1.0, 2.0]}))
    write_deltalake(tmp_path, pl.DataFrame({"price": [3.0]}), mode="append")
    snapshot = load_snapshot(tmp_path)
    assert snapshot.files["revision"].to_list() == [None, None]
    assert snapshot.files["num_records"].sum() == 3
    DeltaTable(tmp_path).optimize.compact()
    assert refresh(snapshot).files["num_records"].to_list() == [3]
    DeltaTable(tmp_path).restore(0)
    assert refresh(snapshot).files["num_records"].to_list() == [2]


# --- errors ---------------------------------------------------------------------------------------------------------


def test_path_without_table_is_described(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory").mkdir()
    (tmp_path / "bare" / "_delta_log").mkdir(parents=True)
    expected = {
        "nothing": "nothing is there",
        "file": "is a file",
        "directory": "is a directory, but no Delta table",
        "bare": "no Delta table",
    }
    for name, report in expected.items():
        with pytest.raises(TableNotFoundError, match=report) as caught:
            load_snapshot(tmp_path / name)
        assert caught.value.path == str(tmp_path / name)
        assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("version", [4, 10**6])
def test_missing_version_names_the_newest(tmp_path: Path, version: int) -> None:
    root = write_log(tmp_path, *COMMITS)
    with pytest.raises(VersionNotFoundError, match="newest is 3") as caught:
        load_snapshot(root, version=version)
    assert caught.value.version == version


def test_timestamps_find_the_version_of_their_time(tmp_path: Path) -> None:
    info = {"commitInfo": {"timestamp": int(datetime.now(UTC).timestamp() * 1000)}}
    root = write_log(tmp_path, [info, *COMMITS[0]], *COMMITS[1:])
    soon = datetime.now(UTC) + timedelta(minutes=1)
    assert load_snapshot(root, version=soon).version == 3
    with pytest.raises(VersionNotFoundError, match="its oldest is 0"):
        load_snapshot(root, version=datetime(2001, 1, 1, tzinfo=UTC))
    assert load_snapshot(root, version=soon.replace(tzinfo=None)).version == 3  # in UTC
    for wrong in (-1, 1.5, True, "yesterday"):
        with pytest.raises(InvalidInputError):
            load_snapshot(root, version=wrong)


@pytest.mark.parametrize(
    ("protocol", "report"),
    [
        (features("other", reader=["other"]), "other"),
        (
            features("typeWidening", "columnMapping", reader=["typeWidening", "columnMapping"]),
            "columnMapping",
        ),
        ({"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}, "cannot be read"),
        (features("catalogManaged", "inCommitTimestamp", reader=["catalogManaged"]), "(?i)catalog"),
    ],
)
def test_unreadable_tables_raise(tmp_path: Path, protocol, report: str) -> None:
    configuration = {"delta.columnMapping.mode": "name"} if report == "columnMapping" else {}
    root = write_log(tmp_path, [protocol, metadata(configuration=configuration)])
    with pytest.raises(UnsupportedTableError, match=report):
        load_snapshot(root)


def test_partition_columns_have_bounds_and_values(tmp_path: Path) -> None:
    rows = pl.DataFrame({"price": [1.0, 2.0], "k": ["x", None]})
    write_deltalake(tmp_path, rows, partition_by=["k"])
    snapshot = load_snapshot(tmp_path)
    assert sorted(snapshot.partition_texts, key=str) == [("x",), (None,)]
    bounds = [snapshot.files[side].struct.field("k").to_list() for side in ("min", "max", "null_count")]
    assert sorted(zip(*bounds, strict=True), key=str) == [("x", "x", 0), (None, None, 1)]


@pytest.mark.parametrize("actions", [["{torn"], [PROTOCOL]], ids=["torn", "no metadata"])
def test_damaged_log_does_not_panic(tmp_path: Path, actions) -> None:
    with pytest.raises(InvalidMetadataError, match="damaged"):
        load_snapshot(write_log(tmp_path, actions))


def test_damaged_index_metadata_names_the_key(tmp_path: Path) -> None:
    root = write_log(tmp_path, [PROTOCOL, metadata(configuration={"qbeast.lastRevisionID": "x"})])
    assert list(load_snapshot(root).config.faults) == ["qbeast.lastRevisionID"]


# --- names of checkpoints ---------------------------------------------------------------------------------------

CLASSIC = "00000000000000000010.checkpoint.parquet"
PARTS = [f"00000000000000000020.checkpoint.{part:010d}.0000000003.parquet" for part in (1, 2, 3)]
UUID = "00000000000000000030.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
NOISE = [
    "_last_checkpoint",
    "00000000000000000040.json",
    "00000000000000000040.crc",
    "00000000000000000000.00000000000000000040.compacted.json",
    "00000000000000000040.checkpoint.parquet#1",
    "x00000000000000000040.checkpoint.parquet",
    "backup/00000000000000000040.checkpoint.parquet",
]


@pytest.mark.parametrize(
    ("names", "version", "expected"),
    [
        ([CLASSIC, *PARTS, UUID], 99, [UUID]),
        ([CLASSIC, *PARTS, UUID], 29, PARTS),
        ([CLASSIC, *PARTS[:2]], 29, [CLASSIC]),
        ([CLASSIC, *PARTS], 20, PARTS),
        ([CLASSIC, UUID.replace("30.", "10.")], 10, [CLASSIC]),
        ([CLASSIC], 9, None),
        ([], 9, None),
    ],
)
def test_newest_complete_checkpoint_counts(names, version, expected) -> None:
    actual = newest_checkpoint([f"_delta_log/{name}" for name in (*names, *NOISE)], version=version)
    assert (actual and [path.removeprefix("_delta_log/") for path in actual.paths]) == expected
