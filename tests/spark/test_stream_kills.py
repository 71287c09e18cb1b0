"""A stream from a table into a table moves each row once, also if its processes are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast_spark_bridge.datasource import streams
from qbeast_spark_bridge.session import ensure_java
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows
from tests.spark import sessions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sweep
SECONDS = 120.0


def append(table: Path, first: int, times: int = 1) -> None:
    for at in range(first, first + times):
        rows = pl.DataFrame({"id": range(50 * at, 50 * at + 50), "x": [at / 7] * 50})
        qbeast.write_table(rows, table, columns=["id"], mode="append")


def start(source: Path, into: Path, home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.stream_job", str(source), str(into)]
    ensure_java()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    found = {**kept, **sessions.environment(), "TMPDIR": str(home)}
    return subprocess.Popen(command, cwd=sessions.ROOT, env=found, start_new_session=True)


def kill_after_commits(job: subprocess.Popen[bytes], into: Path, commits: int, wait_seconds: float) -> bool:
    """Kill a job and its JVM some time after it committed; return whether it was still running."""
    last = qbeast.open_table(into).version + commits
    deadline = time.monotonic() + SECONDS
    while job.poll() is None and qbeast.open_table(into).version < last:
        assert time.monotonic() < deadline, "the stream does not commit"
        time.sleep(0.02)
    time.sleep(wait_seconds)
    was_running = job.poll() is None
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(SECONDS)
    return was_running


@pytest.mark.skipif(not streams.LIMITS_BATCHES, reason="before Spark 4.2 one batch has all rows")
def test_killed_stream_moves_each_row_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    source, into = tmp_path / "t", tmp_path / "copy"
    append(source, 0, times=12)
    qbeast.write_table(qbeast.read_table(source).head(0), into, columns=["id"])
    killed = 0
    for turn in range(3):
        job = start(source, into, tmp_path)
        killed += kill_after_commits(job, into, int(rng.integers(1, 4)), float(rng.uniform(0, 0.5)))
        append(source, 12 + turn)
    assert killed > 0
    assert start(source, into, tmp_path).wait(SECONDS) == 0
    assert_same_rows(qbeast.read_table(into), qbeast.read_table(source), "id")
    check_invariants(into, may_stage=True)
