from __future__ import annotations

from multiprocessing.pool import Pool
from pathlib import Path

import pytest

from qbeast_core.io.stores.local import LocalStore
from qbeast_core.log.intent import WriteIntent
from qbeast_core.table.commit.commit import commit
from qbeast_core.table.snapshot.snapshot import load_snapshot, refresh
from tests.helpers.at_once import COMMITS, run
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
