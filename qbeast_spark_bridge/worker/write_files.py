"""The last step of a write or rewrite, in a worker: one task per file sorts its rows and writes them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Final

import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import U64Array
from qbeast_core.support.sizing import sizing
from qbeast_core.table.engine.tasks.passes import PlaceTask
from qbeast_core.table.engine.tasks.placed_files import write_file
from qbeast_spark_bridge.worker.transport import batch_of, unpack_rows

# Columns of the batches of `write_partition`.
FILES: Final = "file binary"


def write_partition(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the packs of a task, and yield descriptions of the files.

    A task has the rows of one file; rows of more than 256 MB become several files.
    """
    packs: dict[int, list[tuple[pl.DataFrame, U64Array]]] = {}
    size = 0
    for batch in batches:
        for number, pack in zip(batch.column("file").to_pylist(), batch.column("rows"), strict=True):
            rows, keys = unpack_rows(pack.as_buffer())
            packs.setdefault(number, []).append((rows, keys))
            size += int(rows.estimated_size())
            if size >= sizing().max_partition_bytes:
                yield from _write(job, packs)
                size = 0
    yield from _write(job, packs)


def _write(job: PlaceTask, packs: dict[int, list[tuple[pl.DataFrame, U64Array]]]) -> Iterator[pa.RecordBatch]:
    while packs:
        _, parts = packs.popitem()
        files = write_file(job, [rows for rows, _ in parts], [keys for _, keys in parts])
        yield batch_of(FILES, [pickle.dumps(file) for file in files])
