"""Commits that repeat live files, while other writers change the same files."""

from __future__ import annotations

import json
from multiprocessing.pool import Pool
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from qbeast_core.io.store import LocalStore
from qbeast_core.log.actions import AddFile
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.log.values import FileChange, LiveFiles, retag
from qbeast_core.table.commit import commit
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from tests.helpers.at_once import Job, ours, run
from tests.helpers.handmade_log import replay
from tests.helpers.intents import append, create, data_file

ROUNDS = 12


def mark(value: str) -> WriteIntent:
    """Set a tag of every indexed file."""

    def edit(add: AddFile, listed: bool) -> AddFile:  # noqa: ARG001, FBT001 -- the callback's form
        marked = {**(add.tags or {}), "mark": value}
        return add if not add.tags else add.model_copy(update={"tags": marked})

    return WriteIntent(mode="metadata", files=lambda live, _: retag(live, edit))


def marks(root: Path) -> dict[str, str | None]:
    return {path: (add.get("tags") or {}).get("mark") for path, add in replay(root).items()}


def test_concurrent_adds_and_removes_survive_retag(tmp_path: Path) -> None:
    first = create(tmp_path)
    old = append(first, "old.parquet").snapshot
    assert old is not None
    append(old, "new.parquet")
    DeltaTable(tmp_path).delete("price = 1.0")
    newest = append(load_snapshot(tmp_path), "newer.parquet").snapshot
    assert newest is not None
    outcome = commit(LocalStore(tmp_path), old, mark("x"))  # planned on what has been deleted since
    assert outcome.attempts > 1
    assert marks(tmp_path) == {"newer.parquet": "x"}


def test_retag_keeps_concurrent_deletion_vector(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    live = replay(tmp_path)["first.parquet"]
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 1,
    }
    hidden = live | {
        "deletionVector": vector,
        "stats": '{"numRecords":1,"tightBounds":false}',
        "baseRowId": 3,
    }

    def hide(_: LiveFiles, __: str) -> FileChange:
        return FileChange(
            adds=(AddFile.model_validate(hidden),), removed=(AddFile.model_validate(live),), data_change=True
        )

    store = LocalStore(tmp_path)
    commit(store, snapshot, WriteIntent(mode="metadata", files=hide))
    assert commit(store, snapshot, mark("x")).attempts == 2
    expected = hidden | {"tags": hidden["tags"] | {"mark": "x"}, "dataChange": False}
    assert replay(tmp_path) == {"first.parquet": expected}


def test_unchanged_tags_make_no_commit(tmp_path: Path) -> None:
    snapshot: Snapshot | None = create(tmp_path)
    store = LocalStore(tmp_path)
    snapshot = commit(store, snapshot, mark("x")).snapshot
    outcome = commit(store, snapshot, mark("x"))
    assert (outcome.version, outcome.attempts, outcome.already_applied) == (1, 0, True)
    assert load_snapshot(tmp_path).version == 1


@pytest.mark.parametrize("keep_log", [True, False])
def test_checkpoint_is_enough_to_retag_a_file(tmp_path: Path, *, keep_log: bool) -> None:
    snapshot: Snapshot | None = create(tmp_path)
    before = replay(tmp_path)
    for number in range(10):
        assert snapshot is not None
        raw = data_file(LocalStore(tmp_path), f"{number}.parquet", blocks=None)
        adds = (raw.model_copy(update={"tags": None}),)
        snapshot = commit(LocalStore(tmp_path), snapshot, WriteIntent(mode="append", adds=adds)).snapshot
    for path in (tmp_path / "_delta_log").glob("*.json"):
        if not keep_log and int(path.stem) < 10:
            path.unlink()
    commit(LocalStore(tmp_path), load_snapshot(tmp_path), mark("x"))
    (line,) = (tmp_path / "_delta_log" / f"{11:020d}.json").read_text().splitlines()[1:]
    first = before["first.parquet"]
    assert json.loads(line)["add"] == first | {"tags": first["tags"] | {"mark": "x"}, "dataChange": False}


def marking(root: str, writer: int) -> None:
    store, snapshot = LocalStore(root), load_snapshot(root)
    for number in range(ROUNDS):
        commit(store, snapshot, mark(f"{writer}-{number}"))


def appending(root: str, writer: int) -> None:
    """Append by delta-rs, which refuses that where another writer's delete came between; then once more."""
    for number in range(ROUNDS):
        while True:
            try:
                write_deltalake(root, pl.DataFrame({"price": [float(writer + number)]}), mode="append")
                break
            except CommitFailedError as error:
                if "deleted data this operation read" not in str(error):
                    raise


def deleting(root: str, writer: int) -> None:  # noqa: ARG001 -- the job's form
    for number in range(ROUNDS):
        write_deltalake(root, pl.DataFrame({"price": [100.0 + number]}), mode="append")
        DeltaTable(root).delete(f"price = {100.0 + number}")


@pytest.mark.sweep
@pytest.mark.parametrize("others", [[deleting], [ours, appending, deleting]], ids=len)
def test_racing_writers_and_retag_lose_no_file(tmp_path: Path, four: Pool, others: list[Job]) -> None:
    create(tmp_path)
    run(four, tmp_path, marking, *others)
    live = marks(tmp_path)
    actual = DeltaTable(tmp_path)
    assert len(live) == len(actual.file_uris()) == 1 + ROUNDS * (len(others) - 1)
    assert actual.to_pyarrow_table()["price"].to_pylist().count(1.0) >= 1
    assert live["first.parquet"] == f"0-{ROUNDS - 1}"
    assert set(load_snapshot(tmp_path).files["path"]) == set(live)
