"""Files that Spark's own reader cannot read right: they are read by tasks in Python."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from qbeast_core.table.reader import Job, Reader
from qbeast_core.table.shares import cut_read
from qbeast_spark_bridge.tasks import TASK_BYTES, ReadTask, arrow_schema
from qbeast_spark_bridge.workers import WorkerCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_by_tasks", "run_tasks"]

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
    store = reader.store
    uri = store.uri if store.local_root is None else str(store.local_root.absolute())
    wanted, types = reader.wanted(job, schema.names), arrow_schema(schema)
    options = dict(reader.snapshot.storage_options)
    tasks = [
        ReadTask(
            uri=uri,
            version=reader.snapshot.version,
            portion=portion,
            wanted=wanted,
            schema=types,
            storage_options=options,
        )
        for portion in cut_read(reader, job, task_bytes=TASK_BYTES)
    ]
    rows = [(bytearray(pickle.dumps(task, protocol=5)),) for task in tasks]
    spread = spark.createDataFrame(rows, f"{_COLUMN} binary").repartition(len(rows))
    return spread.mapInArrow(WorkerCall.of(run_tasks, None), schema)


def run_tasks(_: None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read, in a worker.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        Pickled tasks in one column.
    """
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from pickle.loads(task).batches()  # noqa: S301 -- our own driver's bytes
