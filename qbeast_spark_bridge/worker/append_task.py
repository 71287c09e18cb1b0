"""A task of an append by ``format("qbeast")``.

Contexts and parts are bytes, since the writers must not import Polars.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from qbeast_core.table.data.files import delete_data_files
from qbeast_core.table.engine.files import AppendedPart, AppendTask
from qbeast_spark_bridge.worker.call import grouped

# Arrow bytes that a task indexes at once. Larger values make larger files and need more memory.
PART_BYTES: Final = 128 << 20


def write_rows(context: bytes, batches: Iterable[pa.RecordBatch], *, part_bytes: int = PART_BYTES) -> bytes:
    """Write the rows of a task."""
    task: AppendTask = pickle.loads(context)  # noqa: S301 -- bytes of our own driver
    parts: list[AppendedPart] = []
    try:
        for group in grouped(((batch, batch.nbytes) for batch in batches), part_bytes):
            if any(batch.num_rows for batch in group):
                parts.append(task.write(pa.Table.from_batches(group)))  # noqa: PERF401 -- an error deletes them
    except BaseException:  # also on an interrupt or a panic of Rust
        delete_parts(task, parts)
        raise
    return pickle.dumps(parts)


def delete_parts(task: AppendTask, parts: Sequence[AppendedPart]) -> None:
    """Delete files that will not be committed, as far as the store allows."""
    if parts:
        delete_data_files(task.target.store, [add for part in parts for add in part.files])
