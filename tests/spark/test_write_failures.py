"""Tasks fail, repeat and race, drivers die: the rows of a table are there once and whole, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from tests.spark.failing_job import ROWS, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MODULE = "tests.spark.failing_job"
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


def make(path: Path) -> Path:
    """Make a table of 2,000 rows in one file."""
    qbeast.write_table(before(), path, ["row", "a"], cube_size=100)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make(tmp_path / "t")


@dataclass(frozen=True)
class Job:
    """What a process of its own did to some tables, one after the other in one session, before it was killed."""

    said: dict[str, dict[str, Any]]
    tables: dict[str, Path]
    named: list[str]
    status: int


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    directory = tmp_path_factory.mktemp("job")
    tables = {step: directory / step for step in ("lacking", "retried", "optimized", "killed")}
    make(tables["retried"])
    make(tables["killed"])
    for part in range(3):
        third = before().gather_every(3, part)
        qbeast.write_table(third, tables["optimized"], ["row", "a"], mode="append", cube_size=100)
    named = [file.name for file in tables["optimized"].glob("*.parquet")]
    (directory / "site").mkdir()
    (directory / "site" / "sitecustomize.py").write_text(LACKING)
    (directory / "nothing").touch()
    ensure_java()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = os.pathsep.join([str(directory / "site"), str(sessions.ROOT)])
    added = sessions.environment() | {"PYTHONPATH": path, "LACKING": str(directory / "nothing")}
    steps = [f"{step}={path}" for step, path in tables.items()]
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "local[2,2]", *steps],
        text=True,
        timeout=400,
        cwd=sessions.ROOT,
        env=kept | added,
        capture_output=True,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said) == len(steps) - 1, done.stdout + done.stderr  # the last one kills it
    return Job(dict(zip(tables, said, strict=False)), tables, named, done.returncode)


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
def test_tasks_that_fail_and_are_retried_leave_orphans_alone(job: Job) -> None:
    assert job.said["retried"] == {"rows": ROWS, "files": 4}
    check(job.tables["retried"], after(), orphans=4)


@pytest.mark.classic
def test_tasks_of_an_optimize_that_are_retried_leave_orphans_alone(job: Job) -> None:
    path = job.tables["optimized"]
    assert job.said["optimized"] == {"rows": ROWS, "files": 4}
    assert_same_rows(qbeast.read_table(path), before())
    check_invariants(path)
    orphans = {file.name for file in path.glob("*.parquet")} - {*job.named, *read_log(path).adds}
    assert len(orphans) == 4
    removed = DeltaTable(path).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    assert orphans <= set(removed)
    assert_same_rows(qbeast.read_table(path), before())


@pytest.mark.classic
def test_a_driver_killed_before_the_commit_leaves_the_table_as_it_was(job: Job) -> None:
    path = job.tables["killed"]
    assert job.status == -signal.SIGKILL
    assert len(list(path.glob("*.parquet"))) == 5
    check(path, before(), orphans=4)
    qbeast.write_table(after().tail(ROWS), path, mode="append")
    check(path, after(), orphans=0)


@pytest.mark.classic
def test_workers_without_a_module_say_which(job: Job) -> None:
    for module in ("qbeast_spark_bridge", "numpy"):
        name, message = job.said["lacking"][module]
        assert name == "InvalidInputError"
        assert f"without the module {module!r}" in message
        assert "on every node" in message
    assert not job.tables["lacking"].exists()


@pytest.mark.slow
@pytest.mark.classic
def test_a_speculative_duplicate_adds_no_row(table: Path, tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as running:
        done = json.loads(running.run(MODULE, f"speculated={table}", connect=False).splitlines()[-1])
    assert done == {"rows": ROWS, "files": 4}
    strays = len(list(table.glob("*.parquet"))) - 5
    assert strays > 0, "no task was started twice"
    check(table, after(), orphans=strays)


@pytest.mark.connect
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
