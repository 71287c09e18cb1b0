"""Write rows without an index, in a worker: to new files in the order of the rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa

from qbeast_core.table.engine.tasks.plain_files import PlainTask
from qbeast_spark_bridge.worker.transport import (
    BUFFER_BYTES,
    batch_of,
    gathered,
    longs_as_decimals,
    received,
)
from qbeast_spark_bridge.worker.write_files import FILES


def write_plain_partition(
    argument: tuple[PlainTask, list[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a partition, and yield descriptions of the files."""
    job, names, decimals = argument
    tables = gathered(batches, names, size_bytes=BUFFER_BYTES)
    adds = job.write(longs_as_decimals(rows, decimals) for rows in tables)
    yield batch_of(FILES, [pickle.dumps(add) for add in adds])


def write_plain_files(job: PlainTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows that tasks read, and yield descriptions of the files."""
    adds = job.write(rows for _, task in received(batches) for rows in task.read())
    yield batch_of(FILES, [pickle.dumps(add) for add in adds])
