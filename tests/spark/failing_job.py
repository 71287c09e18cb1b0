"""What goes wrong, step by step in a process of its own: `python -m tests.spark.failing_job MASTER STEP=PATH ...`.

Prints a line of JSON for each step: what it saw. A session costs more than all the steps.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyspark.sql import SparkSession

import qbeast_spark_bridge as bridge
from qbeast_core.errors import QbeastError
from qbeast_core.io.store import LocalStore
from tests.helpers.tables import small_files
from tests.spark import failing_changes, sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


ROWS = 2_000


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, first + ROWS, 1, 3).selectExpr("id AS row", "id * 7919 % 1009 AS a")


def retried(spark: SparkSession, path: str) -> dict[str, Any]:
    """Let every task fail once, after its work."""
    with failing_changes.troubles(path, "fails", ("_send_sample", "pack_partition", "write_partition")):
        return write(spark, path)


def speculated(spark: SparkSession, path: str) -> dict[str, Any]:
    """Let a task be so slow, after its work, that Spark starts it a second time elsewhere."""
    with failing_changes.troubles(path, "is slow", ("write_partition",)):
        return write(spark, path)


def killed(spark: SparkSession, path: str) -> dict[str, Any]:
    """Die when all files are written and nothing is committed."""
    with patch.object(LocalStore, "put_if_absent", failing_changes.die):
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
