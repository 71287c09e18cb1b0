"""Tasks fail, repeat and race, drivers die: the rows of a write are there once and whole, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.session import ensure_java
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows
from tests.spark import sessions
from tests.spark.cluster import cluster
from tests.spark.write_job import ROWS, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MODULE = "tests.spark.write_job"
LACKING = """
import os, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        # Workers alone: the driver sets the variable, and its own interpreter was started before.
        with open(os.environ["LACKING"]) as file:
            if name == file.read():
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

if sys.argv[:1] == ["-m"]:  # how Spark starts its daemon of workers
    sys.meta_path.insert(0, Lacking())
"""


def before() -> pl.DataFrame:
    return pl.DataFrame({"row": range(ROWS)}).with_columns(a=pl.col("row") * 7919 % 1009)


def after() -> pl.DataFrame:
    added = pl.DataFrame({"row": range(ROWS, 2 * ROWS)}).with_columns(a=pl.col("row") * 7919 % 1009)
    return pl.concat([before(), added])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 2,000 rows in one file."""
    path = tmp_path / "t"
    qbeast.write_table(before(), path, ["row", "a"], cube_size=100)
    return path


def run(step: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ensure_java()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return subprocess.run(
        [sys.executable, "-m", MODULE, "local[2,2]", step, str(path)],
        text=True,
        timeout=280,
        cwd=sessions.ROOT,
        env=kept | sessions.environment() | environment,
        capture_output=True,
        check=False,
    )


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(path: Path, wanted: pl.DataFrame, *, orphans: int) -> None:
    """The table has these rows; as many files are in nobody's log, and vacuum finds just them."""
    assert_same_rows(qbeast.read_table(path), wanted)
    check_invariants(path)
    live = set(read_log(path).adds)
    strays = {file.name for file in path.glob("*.parquet")} - live
    assert len(strays) == orphans
    delta = DeltaTable(path)
    removed = delta.vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    assert set(removed) == strays
    assert_same_rows(qbeast.read_table(path), wanted)


@pytest.mark.classic
def test_tasks_that_fail_and_are_retried_leave_orphans_alone(table: Path) -> None:
    done = answer(run("retried", table))
    assert done == {"rows": ROWS, "files": 4}
    check(table, after(), orphans=4)


@pytest.mark.classic
def test_a_driver_killed_before_the_commit_leaves_the_table_as_it_was(table: Path) -> None:
    assert run("killed", table).returncode == -signal.SIGKILL
    assert len(list(table.glob("*.parquet"))) == 5
    check(table, before(), orphans=4)
    qbeast.write_table(after().tail(ROWS), table, mode="append")
    check(table, after(), orphans=0)


@pytest.mark.classic
def test_workers_without_a_module_say_which(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LACKING)
    path = os.pathsep.join([str(tmp_path / "site"), str(sessions.ROOT)])
    lacking = tmp_path / "lacking"
    lacking.touch()
    said = answer(run("lacking", tmp_path / "t", PYTHONPATH=path, LACKING=str(lacking)))
    for module in ("qbeast_spark_bridge", "numpy"):
        name, message = said[module]
        assert name == "InvalidInputError"
        assert f"without the module {module!r}" in message
        assert "on every node" in message
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
@pytest.mark.classic
def test_a_speculative_duplicate_adds_no_row(table: Path, tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as running:
        done = json.loads(running.run(MODULE, "speculated", str(table), connect=False).splitlines()[-1])
    assert done == {"rows": ROWS, "files": 4}
    strays = len(list(table.glob("*.parquet"))) - 5
    assert strays > 0, "no task was started twice"
    check(table, after(), orphans=strays)


def test_two_jobs_append_at_once(spark: SparkSession, table: Path) -> None:
    both_ready = Barrier(2, timeout=200)

    def append(first: int) -> int:
        def wait(now: qbeast.Progress) -> None:
            if now.stage == "commit":
                both_ready.wait()

        return bridge.write_table(rows(spark, first), table, mode="append", progress=wait).attempts

    with ThreadPoolExecutor(2) as pool:
        attempts = list(pool.map(append, [ROWS, 2 * ROWS]))
    assert sorted(attempts) == [1, 2]
    third = pl.DataFrame({"row": range(2 * ROWS, 3 * ROWS)}).with_columns(a=pl.col("row") * 7919 % 1009)
    check(table, pl.concat([after(), third]), orphans=0)
