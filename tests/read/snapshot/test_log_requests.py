"""How often the log is asked: a round trip to an object store costs more than all that is done with what it gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qbeast_core.io.store import LocalStore
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.table.commit import commit
from qbeast_core.table.snapshot.snapshot import load_snapshot, refresh
from tests.helpers.handmade_log import PROTOCOL, add, metadata, write_log
from tests.helpers.intents import append, create, data_file

COMMITS = [[PROTOCOL, metadata(), add("a")], [add("b")], [add("c")]]
ODD = [[PROTOCOL, metadata(), add("a%2Bb")], [add("b")], [add("c")]]


@pytest.fixture
def log_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Name every request to the log's folder from now on."""
    requests: list[str] = []

    def counting(name: str, ask: Callable) -> Callable:
        def counted(self: LocalStore, path: str, *rest: object, **named: object) -> object:
            if path.startswith("_delta_log"):
                requests.append(f"{name} {path.removeprefix('_delta_log').strip('/').lstrip('0')}")
            return ask(self, path, *rest, **named)

        return counted

    for name in ("get", "get_ranges", "size", "list", "put_if_absent"):
        monkeypatch.setattr(LocalStore, name, counting(name, getattr(LocalStore, name)))
    return requests


@pytest.mark.parametrize("commits", [COMMITS, ODD], ids=["plain names", "names of several spellings"])
def test_opening_requests_each_log_file_once(tmp_path: Path, log_requests: list[str], commits: list) -> None:
    root = write_log(tmp_path, *commits)
    log_requests.clear()
    load_snapshot(root)
    assert log_requests == ["get _last_checkpoint", "list ", "get .json", "get 1.json", "get 2.json"]


@pytest.mark.parametrize("commits", [COMMITS, ODD], ids=["plain names", "names of several spellings"])
def test_refresh_requests_only_new_commits(tmp_path: Path, log_requests: list[str], commits: list) -> None:
    snapshot = load_snapshot(write_log(tmp_path, *commits))
    log_requests.clear()
    assert refresh(snapshot) is snapshot
    assert log_requests == []
    write_log(tmp_path, [add("d")], first=3)
    assert refresh(snapshot).version == 3
    assert log_requests == ["get 3.json"]


def test_winning_append_reads_nothing(tmp_path: Path, log_requests: list[str]) -> None:
    snapshot = create(tmp_path)
    log_requests.clear()
    append(snapshot, "a.parquet")
    assert log_requests == ["put_if_absent 1.json"]


def test_losing_commit_reads_the_winner_twice(tmp_path: Path, log_requests: list[str]) -> None:
    snapshot = create(tmp_path)
    append(snapshot, "a.parquet")
    store = LocalStore(tmp_path)
    intent = WriteIntent(
        mode="append", adds=(data_file(store, "b.parquet"),), revision=snapshot.config.latest
    )
    log_requests.clear()
    assert commit(store, snapshot, intent, sleep=lambda _: None).attempts == 2
    assert log_requests == ["put_if_absent 1.json", "get 1.json", "get 1.json", "put_if_absent 2.json"]
