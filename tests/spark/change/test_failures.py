"""Tasks fail, repeat and race, drivers die: the rows of a table are there once and whole, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.table.engine.row_change import SUFFIX
from qbeast_spark_bridge.session import ensure_java
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows, small_files
from tests.spark import sessions
from tests.spark.cluster import cluster
from tests.spark.failing_job import ROWS, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

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


def merged(rows: pl.DataFrame) -> pl.DataFrame:
    """Do what `failing_changes.merge` does."""
    source = pl.DataFrame({"row": range(0, 2500, 5)}).with_columns(a=-pl.col("row"))
    return pl.concat([rows.join(source, on="row", how="anti"), source])


def changed() -> pl.DataFrame:
    """Do what a delete and an update of `failing_changes` do."""
    five = pl.when(pl.col("a") > 900).then(5).otherwise("a")
    return before().filter(pl.col("a") >= 100).with_columns(a=five)


def make(path: Path, *, file_rows: int | None = None) -> Path:
    """Make a table of 2,000 rows, by default in one file."""
    with nullcontext() if file_rows is None else small_files(file_rows=file_rows):
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
    steps = ("lacking", "retried", "dying_merge", "ended", "killed")
    tables = {step: directory / step for step in steps}
    make(tables["retried"])
    make(tables["killed"])
    make(tables["dying_merge"], file_rows=500)
    make(tables["ended"], file_rows=500)
    return run(directory, tables)


@pytest.fixture(scope="module")
def slow_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """What would take the usual run too long; it ends without its JVM."""
    directory = tmp_path_factory.mktemp("job")
    tables = {step: directory / step for step in ("dying_changes", "ended_elsewhere", "lost")}
    for path in tables.values():
        make(path, file_rows=500)
    return run(directory, tables)


def run(directory: Path, tables: dict[str, Path]) -> Job:
    """Run steps, one after the other in one session, in a process of its own."""
    named = [file.name for path in tables.values() for file in path.glob("*.parquet")]
    (directory / "site").mkdir()
    (directory / "site" / "sitecustomize.py").write_text(LACKING)
    (directory / "nothing").touch()
    ensure_java()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = os.pathsep.join([str(directory / "site"), str(sessions.ROOT)])
    added = sessions.environment() | {"PYTHONPATH": path, "LACKING": str(directory / "nothing")}
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "local[2,2]", *(f"{step}={path}" for step, path in tables.items())],
        text=True,
        timeout=1500,
        cwd=sessions.ROOT,
        env=kept | added,
        capture_output=True,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    killed = sum(step.startswith("killed") for step in tables)  # the last one, which says nothing
    assert len(said) == len(tables) - killed, done.stdout + done.stderr
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
def test_retried_tasks_leave_only_orphans(job: Job) -> None:
    assert job.said["retried"] == {"rows": ROWS, "files": 5}
    check(job.tables["retried"], after(), orphans=5)


@pytest.mark.classic
def test_driver_killed_before_commit_keeps_table(job: Job) -> None:
    path = job.tables["killed"]
    assert job.status == -signal.SIGKILL
    assert len(list(path.glob("*.parquet"))) == 6
    check(path, before(), orphans=5)
    qbeast.write_table(after().tail(ROWS), path, mode="append")
    check(path, after(), orphans=0)


@pytest.mark.classic
def test_missing_worker_module_is_named(job: Job) -> None:
    for module in ("qbeast_spark_bridge", "numpy"):
        name, message = job.said["lacking"][module]
        assert name == "InvalidInputError"
        assert f"without the module {module!r}" in message
        assert "on every node" in message
    assert not job.tables["lacking"].exists()


def check_changed(path: Path, wanted: pl.DataFrame) -> None:
    """The table has these rows; what a vacuum leaves of the folder is what the newest version names."""
    assert_same_rows(qbeast.read_table(path), wanted)
    check_invariants(path)
    table = qbeast.open_table(path)
    assert table.check().ok
    table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert {file.name for file in path.iterdir() if file.is_file()} == set(read_log(path).adds)
    assert_same_rows(qbeast.read_table(path), wanted)


@pytest.mark.classic
def test_dying_workers_change_rows_once(job: Job) -> None:
    assert job.said["dying_merge"] == {"deleted": 0, "updated": 400, "inserted": 100}
    path = job.tables["dying_merge"]
    assert {file.suffix.removeprefix(".") for file in path.parent.glob("dying_merge.worker dies.*")} == {
        *("digest_keys", "pack_source", "pack_keys", "join_buckets", "judge_files"),
        *("answer_items", "summarise_files", "pack_files", "write_partition"),
    }
    check_changed(path, merged(before()))


@pytest.mark.classic
def test_session_ended_before_commit_keeps_table(job: Job) -> None:
    said = job.said["ended"]
    assert {phase: (item["error"], item["version"]) for phase, item in said.items()} == {
        "rewrite": ("SessionLostError", 0),
        "plan": ("SessionLostError", 0),
    }
    assert "Nothing was changed" in said["plan"]["message"]
    check_changed(job.tables["ended"], before())


@pytest.mark.classic
@pytest.mark.timeout(1800)
def test_sessions_and_workers_fail_in_other_operations(slow_job: Job) -> None:
    assert (
        slow_job.said["dying_changes"]["delete"]["deleted"]
        == 2000 - before().filter(pl.col("a") >= 100).height
    )
    check_changed(slow_job.tables["dying_changes"], changed())
    said = slow_job.said["ended_elsewhere"]
    assert (said["read"]["error"], said["read"]["version"]) == ("SessionLostError", 0)
    # All was written: nobody had to be asked.
    assert said["commit"] == {"deleted": 0, "updated": 400, "inserted": 100, "version": 1}
    check_changed(slow_job.tables["ended_elsewhere"], merged(before()))
    lost = slow_job.said["lost"]
    assert (lost["error"], lost["version"]) == ("SessionLostError", 0)
    assert any(file.name not in slow_job.named for file in slow_job.tables["lost"].glob("*.parquet"))
    check_changed(slow_job.tables["lost"], before())


@pytest.mark.classic
@pytest.mark.timeout(1800)
def test_driver_killed_before_rewrite_keeps_table(tmp_path: Path) -> None:
    path = make(tmp_path / "t", file_rows=500)
    done = run(tmp_path, {"killed_merge": path})
    assert done.status == -signal.SIGKILL
    assert list(path.glob(f"*{SUFFIX}"))
    check_changed(path, before())


@pytest.mark.classic
@pytest.mark.timeout(1800)
def test_duplicate_tasks_and_lost_executors_add_nothing(table: Path, tmp_path: Path) -> None:
    slow, lost = make(tmp_path / "slow", file_rows=500), make(tmp_path / "lost", file_rows=500)
    with cluster(tmp_path / "cluster") as running:
        steps = [f"speculated={table}", f"slow_merge={slow}"]
        job = partial(running.run, MODULE, connect=False, timeout=800)  # many processes, beside other tests
        # Spark logs to the same stream, also after the answers.
        lines = [line for line in job(*steps).splitlines() if line.startswith("{")]
        said = json.loads(job(f"lost_executors={lost}").splitlines()[-1])
    assert len(lines) == 2
    assert json.loads(lines[0]) == {"rows": ROWS, "files": 5}
    strays = len(list(table.glob("*.parquet"))) - 6
    assert strays > 0, "no task was started twice"
    check(table, after(), orphans=strays)
    assert json.loads(lines[1]) == {"deleted": 0, "updated": 400, "inserted": 100}
    assert list(slow.glob(f"*{SUFFIX}")), "no file was judged twice"
    check_changed(slow, merged(before()))
    assert said["merge"]["deleted"] == 0
    assert len(list(tmp_path.glob("lost.JVM dies.*"))) == 2
    check_changed(lost, merged(changed()))


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
