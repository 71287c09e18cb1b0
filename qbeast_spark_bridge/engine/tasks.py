"""Cut reads into tasks of about equal bytes, for Spark."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from qbeast_core.query.fractions import Sample
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.split_scan import TASK_BYTES, scan_tasks
from qbeast_spark_bridge.engine.workers import ready_workers
from qbeast_spark_bridge.schema import nullable_schema, spark_schema
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.read_task import ReadTask, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["arrow_schema", "plan_tasks", "rows_of_tasks", "tasks_of"]

_COLUMN: Final = "task"


def plan_tasks(
    reader: Reader,
    *,
    predicate: pl.Expr | None = None,
    sample: Sample | None = None,
    columns: Sequence[str] | None = None,
    task_bytes: int = TASK_BYTES,
    schema: StructType | None = None,
) -> list[ReadTask]:
    """Cut a read into tasks of about equal bytes.

    Parameters
    ----------
    reader : Reader
        Of the version to read.
    predicate : polars.Expr, optional
        Rows to keep, exactly.
    sample : float, str or tuple of float, optional
        Rows to keep by weight.
    columns : sequence of str, optional
        Columns to return, in order, at least one; all by default.
    task_bytes : int
        Stored bytes a task aims at; larger files are cut between pages where their pages are known.
    schema : StructType, optional
        The columns' Spark types; by default those of the table, all nullable.

    Returns
    -------
    list of ReadTask
        Empty if no file can hold a wanted row.

    Raises
    ------
    InvalidInputError
        If the sample is no fraction or pair of fractions in [0, 1].
    """
    job = reader.plan(predicate, sample)
    return tasks_of(reader, job, columns=columns, task_bytes=task_bytes, schema=schema)


def tasks_of(
    reader: Reader,
    job: ScanPlan,
    *,
    columns: Sequence[str] | None = None,
    task_bytes: int = TASK_BYTES,
    schema: StructType | None = None,
) -> list[ReadTask]:
    """Cut a read that is planned already into tasks, see `plan_tasks`.

    Parameters
    ----------
    reader : Reader
        Of the version to read.
    job : ScanPlan
        What is opened, and which rows are kept.
    columns, task_bytes, schema
        As for `plan_tasks`.
    """
    whole = schema or nullable_schema(spark_schema(reader.snapshot.schema_json))
    types = arrow_schema(StructType([whole[name] for name in reader.names_of(columns)]))
    return [ReadTask(task, types) for task in scan_tasks(reader, job, columns, task_bytes=task_bytes)]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types in which Spark hands over and takes rows; timestamps are in UTC.

    Parameters
    ----------
    schema : StructType
        Any Spark schema.
    """
    zoned: dict[str, Any] = {
        "timezone": "UTC"
    }  # of every Spark before 4.2, which cannot be asked for another
    known = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **(zoned if known else {}))


def rows_of_tasks(spark: SparkSession, tasks: Sequence[ReadTask], schema: StructType) -> DataFrame:
    """Return the rows that tasks read, each on an executor of its own if there are so many.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    tasks : sequence of ReadTask
        Perhaps none.
    schema : StructType
        Of what they read.
    """
    if not tasks:
        return spark.createDataFrame([], schema)
    ready_workers(spark)
    rows = [(bytearray(pickle.dumps(task, protocol=5)),) for task in tasks]
    spread = spark.createDataFrame(rows, f"{_COLUMN} binary").repartition(len(rows))
    return spread.mapInArrow(WorkerCall.of(run_tasks, None), schema)
