"""The last step of a write or a rewrite, in a worker: one task per file sorts its rows and writes them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Final

import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import U64Array
from qbeast_core.table.engine.tasks.passes import PlaceTask
from qbeast_core.table.engine.tasks.placed_files import write_file
from qbeast_spark_bridge.worker.transport import batch_of, unpack_rows

# Columns of what `write_partition` yields.
FILES: Final = "file binary"

_HELD_BYTES: Final = 256 << 20


def write_partition(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the packs of a task, and yield descriptions of the files for the driver.

    A task has the rows of one file; more than 256 MB become several files.
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
        files = write_file(job, [rows for rows, _ in parts], [keys for _, keys in parts])
        yield batch_of(FILES, [pickle.dumps(file) for file in files])
