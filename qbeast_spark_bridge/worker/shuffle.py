"""Pack rows for the shuffle: workers pack rows by target file, and Spark moves the packs to the file's task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import I32Array
from qbeast_core.space.columns import NumberColumn
from qbeast_core.space.hashes.spark_hash import spark_hash
from qbeast_core.table.engine.tasks.passes import PlaceTask
from qbeast_spark_bridge.worker.transport import (
    BUFFER_BYTES,
    batch_of,
    gathered,
    longs_as_decimals,
    pack_rows,
)

# Columns of the batches of `packed`.
PACKS: Final = "key int, file int, rows binary"

_MIN_BUFFER_BYTES: Final = 16 << 20
_MIN_PACK_BYTES: Final = 1 << 20
_TRIES: Final = 1 << 12


def task_keys(files: int) -> I32Array:
    """Return a key for each file, so that `repartition(files, "key")` sends each file to a separate task.

    Spark uses the hash of the key modulo the number of tasks: with arbitrary keys, some tasks would get several files
    and others none.

    >>> keys = task_keys(3)
    >>> (spark_hash([NumberColumn("int32", keys)]) % 3).tolist()
    [0, 1, 2]
    """
    keys = np.full(files, -1, np.int32)
    start, count = 0, max(_TRIES, 4 * files)
    while (keys < 0).any():
        candidates = np.arange(start, start + count, dtype=np.int32)
        keys[spark_hash([NumberColumn("int32", candidates)]) % np.int32(files)] = candidates
        start += count
    return keys


def pack_partition(
    argument: tuple[PlaceTask, I32Array, list[str], dict[int, tuple[int, int]]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition as packs; the worker holds at most 64 MB of rows."""
    job, keys, names, decimals = argument
    # Rows that fit into the cache of the processor sort faster; packs must not become too small.
    size = min(max(_MIN_BUFFER_BYTES, _MIN_PACK_BYTES * job.file_count), BUFFER_BYTES)
    tables = gathered(batches, names, size_bytes=size)
    yield from packed(job, keys, (job.target.shape.fit(longs_as_decimals(rows, decimals)) for rows in tables))


def packed(job: PlaceTask, keys: I32Array, frames: Iterable[pl.DataFrame]) -> Iterator[pa.RecordBatch]:
    """Yield rows as packs."""
    for frame in frames:
        for numbers, packs in pack_rows(frame, job.place(frame), job.file_starts):
            yield batch_of(PACKS, keys[numbers], numbers, packs)
