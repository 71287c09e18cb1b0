"""What goes wrong, step by step in a process of its own: `python -m tests.spark.failing_job MASTER STEP=PATH ...`.

Prints a line of JSON for each step: what it saw. A session costs more than all the steps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

import qbeast_spark_bridge as bridge
from qbeast_core.errors import QbeastError
from qbeast_core.table.write import write as write_module
from qbeast_spark_bridge.engine import engine
from qbeast_spark_bridge.engine import first_pass as pass_one
from qbeast_spark_bridge.worker import tasks as pass_two
from qbeast_spark_bridge.worker import tasks as write_files
from tests.helpers.tables import small_files
from tests.spark import failing_changes, sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from qbeast_core.table.engine.files import PlaceTask

ROWS = 2_000
SLOW_SECONDS = 15.0
_send_sample, _pack_partition = pass_one.send_sample, pass_two.pack_partition
_write_partition = write_files.write_partition


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, first + ROWS, 1, 3).selectExpr("id AS row", "id * 7919 % 1009 AS a")


def failing_samples(argument: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from _send_sample(argument, batches)
    fail_first()


def failing_packs(argument: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from _pack_partition(argument, batches)
    fail_first()


def failing_files(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all files, then fail: they are orphans."""
    answers = list(_write_partition(job, batches))
    fail_first()
    yield from answers


def slow_files(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all files, then be so slow that Spark starts the task a second time elsewhere."""
    answers = list(_write_partition(job, batches))
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == 0 and task.attemptNumber() == 0:
        time.sleep(SLOW_SECONDS)
    yield from answers


def retried(spark: SparkSession, path: str) -> dict[str, Any]:
    """Let every task fail once, after its work."""
    tasks = {"pack_partition": failing_packs, "write_partition": failing_files}
    with patch.object(pass_one, "send_sample", failing_samples), patch.multiple(engine, **tasks):
        return write(spark, path)


def speculated(spark: SparkSession, path: str) -> dict[str, Any]:
    with patch.object(engine, "write_partition", slow_files):
        return write(spark, path)


def killed(spark: SparkSession, path: str) -> dict[str, Any]:
    """Die when all files are written and nothing is committed."""
    write_module.publish = _die  # type: ignore[assignment] # it is the driver that dies, not a task
    return write(spark, path)


def write(spark: SparkSession, path: str) -> dict[str, Any]:
    with small_files(file_rows=500):
        result = bridge.write_table(rows(spark, ROWS), path, ["row", "a"], mode="append")
    return {"rows": result.rows, "files": result.files}


def lacking(spark: SparkSession, path: str) -> dict[str, Any]:
    """Write while the workers' Python lacks a module, named by a file that their `sitecustomize` reads."""
    said = {}
    for module in ("qbeast_spark_bridge", "numpy"):
        Path(os.environ["LACKING"]).write_text(module)
        try:
            bridge.write_table(rows(spark), path, ["row"])
        except QbeastError as error:
            said[module] = [type(error).__name__, str(error)]
    Path(os.environ["LACKING"]).write_text("")
    return said


def fail_first() -> None:
    """Fail in the first attempt of a task."""
    task = TaskContext.get()
    assert task is not None
    if task.attemptNumber() == 0:
        message = "a disk broke"
        raise RuntimeError(message)


def _die(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


STEPS = {step.__name__: step for step in (write, lacking, retried, speculated, killed)}
STEPS |= failing_changes.STEPS


def main(master: str, *steps: str) -> None:
    request = [step.split("=", 1) for step in steps]
    extra = {
        "spark.speculation": str(any(name in ("speculated", "slow_merge") for name, _ in request)).lower(),
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.executor.memory": "700m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
    }
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "local").mkdir()
        conf = sessions.settings(Path(directory)) | extra
        builder = SparkSession.builder.master(master).config(map=conf)
        session = builder.getOrCreate()
        try:
            for name, path in request:
                session = builder.getOrCreate()  # another one where a step ended it
                print(json.dumps(STEPS[name](session, path)), flush=True)
        finally:
            session.stop()


if __name__ == "__main__":
    # Workers find the functions by the name of this module, which is another one here.
    from tests.spark import failing_job

    failing_job.main(*sys.argv[1:])
