from __future__ import annotations

from multiprocessing.pool import Pool
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from qbeast_core.io.stores.local import LocalStore
from qbeast_core.log.intent import WriteIntent
from qbeast_core.table.commit.commit import commit
from qbeast_core.table.snapshot.snapshot import load_snapshot, refresh
from tests.helpers.at_once import COMMITS, ours, run
from tests.helpers.handmade_log import replay
from tests.helpers.intents import create, data_file, revision

pytestmark = (
    pytest.mark.sweep
)  # tests/system/test_retag_race.py and test_concurrency_order.py race in one process


def mixed(root: str, writer: int) -> tuple[int, dict[str, str]]:
    """Commit appends, new revisions and, once, an overwrite; return the attempts and each file's space."""
    store, snapshot, attempts, spaces = LocalStore(root), load_snapshot(root), 0, {}
    for number in range(COMMITS):
        name = f"{writer}-{number}.parquet"
        latest = snapshot.config.latest
        fresh = latest is None or number % 4 == 3
        space = revision(1000.0 * (writer + 1) + number) if fresh else latest
        assert space is not None
        mode = "overwrite" if (writer, number) == (0, COMMITS // 2) else "append"
        adds = (data_file(store, name),)
        intent = WriteIntent(mode=mode, adds=adds, revision=space, new_revision=fresh)
        attempts += commit(store, snapshot, intent).attempts
        spaces[name] = space.with_id(0).to_json()
        snapshot = snapshot if number % 2 else refresh(snapshot)  # every other time planned on something old
    return attempts, spaces


def theirs(root: str, writer: int) -> None:
    for number in range(COMMITS):
        write_deltalake(root, pl.DataFrame({"price": [float(writer + number)]}), mode="append")


def test_racing_writers_lose_no_rows_or_revisions(tmp_path: Path, four: Pool) -> None:
    spaces = {"first.parquet": revision(number=0).to_json()}
    create(tmp_path)
    output = run(four, tmp_path, *[mixed] * 4)
    for _, own in output:
        spaces |= own
    total = 4 * COMMITS
    assert sum(attempts for attempts, _ in output) > total, "they never raced"
    appeared = {"first.parquet"}
    for version in range(1, total + 1):
        snapshot = load_snapshot(tmp_path, version=version)
        live = dict(snapshot.files.select("path", "revision").iter_rows())
        (new,) = set(live) - appeared
        assert set(live) == ({new} if new == f"0-{COMMITS // 2}.parquet" else set(live))
        revisions = snapshot.config.revisions
        assert all(revisions[number].with_id(0).to_json() == spaces[path] for path, number in live.items())
        appeared.add(new)
    assert appeared == set(spaces)
    assert set(live) == set(replay(tmp_path))


def test_our_writers_and_deltalake_exclude_each_other(tmp_path: Path, four: Pool) -> None:
    create(tmp_path)
    run(four, tmp_path, ours, ours, theirs, theirs)
    files = load_snapshot(tmp_path).files
    assert (DeltaTable(tmp_path).version(), files.height) == (4 * COMMITS, 4 * COMMITS + 1)
    assert files["revision"].count() == 2 * COMMITS + 1, "checkpoints kept every tag"
    assert len(list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))) > 0
