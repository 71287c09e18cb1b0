"""A task of a read: its files and pages, read exactly as Polars would, into Arrow batches for Spark.

Workers import this module only: the planner of a read takes as long to import again.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import polars as pl
import pyarrow as pa

_BATCH_ROWS: Final = 1 << 17
_BATCH_BYTES: Final = 32 << 20


class _Readable(Protocol):
    """A `qbeast_core.table.read.scan_task.ScanTask`, or a task of another kind of table."""

    def read(self) -> Iterator[pl.DataFrame]: ...


@dataclass(frozen=True, slots=True, eq=False)
class ReadTask:
    """A task of a scan, and the Arrow types of its rows for Spark; it pickles."""

    task: _Readable
    schema: pa.Schema = field(repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; no batch for no rows."""
        held: list[pl.DataFrame] = []
        for frame in self.task.read():
            held.append(frame)
            if sum(f.height for f in held) >= _BATCH_ROWS or _bytes(held) >= _BATCH_BYTES:
                yield from self._cut(pl.concat(held))
                held = []
        if held:
            yield from self._cut(pl.concat(held))

    def _cut(self, frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches of limited size, in the types of Spark."""
        row_bytes = _bytes([frame]) // max(frame.height, 1) + 1
        for rows in frame.iter_slices(min(_BATCH_ROWS, max(_BATCH_BYTES // row_bytes, 1))):
            table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self.schema)
            yield from table.combine_chunks().to_batches()


def run_tasks(_: None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read tasks, in a worker: for ``mapInArrow``, see `qbeast_spark_bridge.worker.call.WorkerCall`."""
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from pickle.loads(task).batches()  # noqa: S301 -- bytes of our own driver


def _bytes(frames: Sequence[pl.DataFrame]) -> int:
    return sum(int(frame.estimated_size()) for frame in frames)
