"""A write that goes wrong, as a process of its own: `python -m tests.spark.write_job MASTER STEP PATH`.

Prints one line of JSON last: what the job saw.
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

from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

import qbeast_spark_bridge as bridge
from qbeast_core.errors import QbeastError
from qbeast_core.table.write import write as write_module
from qbeast_spark_bridge import engine
from qbeast_spark_bridge import sample as pass_one
from qbeast_spark_bridge.worker import shuffle as pass_two
from qbeast_spark_bridge.worker import write_files
from tests.helpers.tables import small_files
from tests.spark import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from qbeast_core.table.engine.tasks import PlaceTask

ROWS = 2_000
SLOW_SECONDS = 15.0
_real = {function.__name__: function for function in (pass_one.send_sample, pass_two.pack_partition)}
_real_write = write_files.write_partition


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, first + ROWS, 1, 3).selectExpr("id AS row", "id * 7919 % 1009 AS a")


def failing_samples(argument: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from _real["send_sample"](argument, batches)
    fail_first()


def failing_packs(argument: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from _real["pack_partition"](argument, batches)
    fail_first()


def failing_files(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all files, then fail: they are orphans."""
    answers = list(_real_write(job, batches))
    fail_first()
    yield from answers


def slow_files(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all files, then be so slow that Spark starts the task a second time elsewhere."""
    answers = list(_real_write(job, batches))
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == 0 and task.attemptNumber() == 0:
        time.sleep(SLOW_SECONDS)
    yield from answers


def retried(spark: SparkSession, path: str) -> dict[str, Any]:
    """Let every task fail once, after its work."""
    pass_one.send_sample = failing_samples
    engine.pack_partition, engine.write_partition = failing_packs, failing_files
    return write(spark, path)


def speculated(spark: SparkSession, path: str) -> dict[str, Any]:
    engine.write_partition = slow_files
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


def main(master: str, step: str, path: str) -> None:
    steps = {
        "retried": retried,
        "speculated": speculated,
        "killed": killed,
        "write": write,
        "lacking": lacking,
    }
    extra = {
        "spark.speculation": str(step == "speculated").lower(),
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
        session = SparkSession.builder.master(master).config(map=conf).getOrCreate()
        try:
            print(json.dumps(steps[step](session, path)))
        finally:
            session.stop()


if __name__ == "__main__":
    # Workers find the functions by the name of this module, which is another one here.
    from tests.spark import write_job

    write_job.main(*sys.argv[1:])
