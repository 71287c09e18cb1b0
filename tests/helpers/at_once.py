"""Concurrent writers, each in a separate process."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from qbeast_core.io.store import LocalStore
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.table.commit import commit
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.intents import data_file

COMMITS = 12
Job = Callable[[str, int], Any]


def run(pool: Pool, root: Path, *jobs: Job) -> list[Any]:
    """Run the jobs concurrently in the processes of the pool."""
    waiting = [pool.apply_async(job, (str(root), writer)) for writer, job in enumerate(jobs)]
    return [result.get(timeout=120) for result in waiting]


def ours(root: str, writer: int) -> None:
    store, snapshot = LocalStore(root), load_snapshot(root)
    for number in range(COMMITS):
        adds = (data_file(store, f"{writer}-{number}.parquet"),)
        commit(store, snapshot, WriteIntent(mode="append", adds=adds, revision=snapshot.config.latest))
