"""What goes wrong while rows change, a step each: `tests.spark.failing_job` runs them in its session."""

from __future__ import annotations

import os
import signal
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.errors import QbeastError
from qbeast_core.table.engine.row_change import ChangeFile
from qbeast_spark_bridge.worker.call import WorkerCall
from tests.helpers.tables import small_files

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyspark.sql import DataFrame

SLOW_SECONDS = 15.0
Trouble = Literal["fails", "worker dies", "JVM dies", "is slow"]
MATCHING = ("answer_items", "digest_keys", "pack_source", "pack_keys", "join_buckets", "judge_files")
WRITING = ("summarise_files", "pack_files", "write_partition")


@dataclass(frozen=True)
class Troubled:
    """A call of which one task, the first to be done, does not live to tell of it, or takes very long.

    If it fails, the first attempt of each task does, after its work.

    Attributes
    ----------
    call : WorkerCall
        What is to be done.
    trouble : str
        What happens: to the Python worker, or to the JVM that started it.
    flag : str
        A file that says it happened.
    """

    call: WorkerCall
    trouble: Trouble
    flag: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        answers = list(self.call(batches))
        if self.trouble == "fails":
            _fail_first()
            yield from answers
            return
        try:
            Path(self.flag).touch(exist_ok=False)
        except FileExistsError:
            yield from answers
            return
        if self.trouble == "is slow":
            time.sleep(SLOW_SECONDS)
            yield from answers
        else:
            yield from answers
            os.kill(os.getpid() if self.trouble == "worker dies" else _jvm(), signal.SIGKILL)
            time.sleep(600)  # until the JVM takes us along


@contextmanager
def calling(change: Callable[[WorkerCall, str, object], Any]) -> Generator[None]:
    """Let the driver change the calls that it sends to workers, by the names of functions and their arguments."""
    of = WorkerCall.of

    def changed(function: Callable[..., Iterator[Any]], argument: object) -> Any:
        return change(of(function, argument), function.__name__, argument)

    with mock.patch.object(WorkerCall, "of", changed):
        yield


def troubles(path: str, trouble: Trouble, functions: tuple[str, ...]) -> AbstractContextManager[None]:
    """Let it happen once to each of these functions of workers."""

    def change(call: WorkerCall, name: str, _: object) -> WorkerCall | Troubled:
        return Troubled(call, trouble, f"{path}.{trouble}.{name}") if name in functions else call

    return calling(change)


def before_rewrite(act: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something when rows are matched, and no file is written: the first rewrite is of files in place."""

    def change(call: WorkerCall, _: str, argument: object) -> WorkerCall:
        if isinstance(argument, ChangeFile):
            act()
        return call

    return calling(change)


def source(spark: SparkSession) -> DataFrame:
    """Rows to merge: every fifth of the table's 2,000, and a hundred new ones."""
    return spark.range(0, 2500, 5, 2).selectExpr("id AS row", "-id AS a")


def merge(spark: SparkSession, path: str, **options: Any) -> dict[str, int]:
    with small_files(file_rows=500):
        return _counts(bridge.open_table(spark, path).merge(source(spark), "row", **options))


def all_three(spark: SparkSession, path: str) -> dict[str, Any]:
    """Delete, update and merge."""
    table = bridge.open_table(spark, path)
    with small_files(file_rows=500):
        return {
            "delete": _counts(table.delete("a < 100")),
            "update": _counts(table.update("a > 900", {"a": 5})),
            "merge": merge(spark, path),
        }


def dying_changes(spark: SparkSession, path: str) -> dict[str, Any]:
    """Kill a worker in each step of a delete and of an update, after its work."""
    table = bridge.open_table(spark, path)
    with small_files(file_rows=500):
        with troubles(f"{path}.delete", "worker dies", MATCHING + WRITING):
            deleted = table.delete("a < 100")
        with troubles(f"{path}.update", "worker dies", MATCHING + WRITING):
            updated = table.update("a > 900", {"a": 5})
    return {"delete": _counts(deleted), "update": _counts(updated)}


def dying_merge(spark: SparkSession, path: str) -> dict[str, Any]:
    """Kill a worker in each step of a merge, after its work."""
    with troubles(path, "worker dies", MATCHING + WRITING):
        return merge(spark, path)


def ended(spark: SparkSession, path: str) -> dict[str, Any]:
    """End the session when rows are matched, and when they are planned."""
    return _ended(spark, path, "rewrite", "plan")


def ended_elsewhere(spark: SparkSession, path: str) -> dict[str, Any]:
    """End the session before anything is read, and when all files are written."""
    return _ended(spark, path, "read", "commit")


def _ended(spark: SparkSession, path: str, *phases: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    conf = dict(spark.sparkContext.getConf().getAll())
    for phase in phases:
        session = SparkSession.builder.config(map=conf).getOrCreate()

        def at(step: qbeast.Progress, phase: str = phase, session: SparkSession = session) -> None:
            if step.stage == phase:
                session.stop()

        with before_rewrite(session.stop) if phase == "rewrite" else nullcontext():
            said[phase] = _attempted(session, path, progress=at)
    return said


def lost(spark: SparkSession, path: str) -> dict[str, Any]:
    """Kill the JVM of the session when one of several files is written."""
    with troubles(path, "JVM dies", ("write_partition",)):
        return _attempted(spark, path)


def killed_merge(spark: SparkSession, path: str) -> dict[str, Any]:
    """Die when rows were matched, and none is written."""
    with before_rewrite(die):
        return merge(spark, path)


def lost_executors(spark: SparkSession, path: str) -> dict[str, Any]:
    """Kill an executor, and what it shuffled, when rows are matched, and again when files are written."""
    with troubles(path, "JVM dies", ("join_buckets", "write_partition")):
        return all_three(spark, path)


def slow_merge(spark: SparkSession, path: str) -> dict[str, Any]:
    with troubles(path, "is slow", ("judge_files", "write_partition")):
        return merge(spark, path)


def _attempted(spark: SparkSession, path: str, **options: Any) -> dict[str, Any]:
    """Merge, and say what came of it, or why nothing did, and which version there is then."""
    try:
        said: dict[str, Any] = merge(spark, path, **options)
    except QbeastError as error:
        said = {"error": type(error).__name__, "message": str(error)}
    return said | {"version": qbeast.open_table(path).version}


def _counts(result: qbeast.ChangeResult) -> dict[str, int]:
    return {name: getattr(result, f"rows_{name}") for name in ("deleted", "updated", "inserted")}


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail_first() -> None:
    """Fail in the first attempt of a task."""
    task = TaskContext.get()
    assert task is not None
    if task.attemptNumber() == 0:
        message = "a disk broke"
        raise RuntimeError(message)


def _jvm() -> int:
    """Return the process that started the daemon of this worker."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


STEPS = {
    step.__name__: step
    for step in (
        *(all_three, dying_changes, dying_merge, ended, ended_elsewhere),
        *(lost, killed_merge, lost_executors, slow_merge),
    )
}
