"""Files that Spark's own reader cannot read right: they are read by tasks in Python."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from qbeast_core.table.reader import Job, Reader
from qbeast_spark_bridge.read_task import run_tasks
from qbeast_spark_bridge.tasks import tasks_of
from qbeast_spark_bridge.workers import WorkerCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_by_tasks"]

_COLUMN: Final = "task"


def read_by_tasks(spark: SparkSession, reader: Reader, job: Job, schema: StructType) -> DataFrame:
    """Return exactly the rows of a job, read as in Polars: without deleted rows and copies.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    reader : Reader
        Of the version.
    job : Job
        Which files, of which at least one is opened, and which sample.
    schema : StructType
        Of the rows: all columns of the table, nullable.
    """
    tasks = tasks_of(reader, job, schema=schema)
    rows = [(bytearray(pickle.dumps(task, protocol=5)),) for task in tasks]
    spread = spark.createDataFrame(rows, f"{_COLUMN} binary").repartition(len(rows))
    return spread.mapInArrow(WorkerCall.of(run_tasks, None), schema)
