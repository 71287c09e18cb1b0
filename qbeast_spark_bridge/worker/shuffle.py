"""The second pass: workers pack rows by file, Spark moves the packs, one task per file sorts and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import I32Array, U64Array
from qbeast_core.space.columns import NumberColumn
from qbeast_core.space.spark_hash import spark_hash
from qbeast_core.table.engine.tasks import PlaceTask
from qbeast_spark_bridge.worker.transport import (
    BUFFER_BYTES,
    gathered,
    longs_as_decimals,
    pack_rows,
    unpack_rows,
)

__all__ = ["pack_partition", "task_keys", "write_partition"]


if TYPE_CHECKING:
    pass


PACKS: Final = "key int, file int, rows binary"

_PACKS_SCHEMA: Final = pa.schema([("key", pa.int32()), ("file", pa.int32()), ("rows", pa.binary())])

FILES: Final = "file binary"

_FILES_SCHEMA: Final = pa.schema([("file", pa.binary())])

_HELD_BYTES: Final = 256 << 20

_LEAST_GATHERED: Final = 16 << 20

_LEAST_PACK: Final = 1 << 20

_TRIES: Final = 1 << 12


def task_keys(files: int) -> I32Array:
    """Return a number for each file that Spark sends to a task of its own when it repartitions into `files`.

    Parameters
    ----------
    files : int
        Number of files and tasks, at least 1.

    Returns
    -------
    ndarray of int32, shape (files,)
        ``pmod(hash(key), files)`` is the number of the key's file.

    Examples
    --------
    >>> keys = task_keys(3)
    >>> (spark_hash([NumberColumn("int32", keys)]) % 3).tolist()
    [0, 1, 2]
    """
    keys = np.full(files, -1, np.int32)
    start, count = 0, max(_TRIES, 4 * files)
    while (keys < 0).any():
        tried = np.arange(start, start + count, dtype=np.int32)
        keys[spark_hash([NumberColumn("int32", tried)]) % np.int32(files)] = tried
        start += count
    return keys


def pack_partition(
    argument: tuple[PlaceTask, I32Array, list[str], dict[int, tuple[int, int]]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield a partition's rows as packs, in a worker that holds 64 MB of rows at a time at most."""
    job, keys, names, decimals = argument
    # Rows that fit in the processor's cache are put in order faster; packs must not become too small.
    size = min(max(_LEAST_GATHERED, _LEAST_PACK * job.file_count), BUFFER_BYTES)
    for rows in gathered(batches, names, size_bytes=size):
        frame = job.fit(longs_as_decimals(rows, decimals))
        for numbers, packs in pack_rows(frame, job.place(frame), job.file_starts):
            yield pa.record_batch([pa.array(keys[numbers]), pa.array(numbers), packs], schema=_PACKS_SCHEMA)


def write_partition(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the packs of a task, in a worker, and yield what the driver must know of the files.

    A task has the rows of one file. Where they exceed 256 MB they are written as several.
    """
    held: dict[int, list[tuple[pl.DataFrame, U64Array]]] = {}
    size = 0
    for batch in batches:
        for number, pack in zip(batch.column("file").to_pylist(), batch.column("rows"), strict=True):
            rows, keys = unpack_rows(pack.as_buffer())
            held.setdefault(number, []).append((rows, keys))
            size += int(rows.estimated_size())
            if size >= _HELD_BYTES:
                yield from _written(job, held)
                size = 0
    yield from _written(job, held)


def _written(
    job: PlaceTask, held: dict[int, list[tuple[pl.DataFrame, U64Array]]]
) -> Iterator[pa.RecordBatch]:
    while held:
        _, parts = held.popitem()
        files = job.write_file([rows for rows, _ in parts], [keys for _, keys in parts])
        yield pa.record_batch([[file.dump() for file in files]], schema=_FILES_SCHEMA)
