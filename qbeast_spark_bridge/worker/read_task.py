"""A task of a read: return the rows of its files and pages as Arrow batches for Spark.

Workers import only this module: importing the planner of a read would double the time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import polars as pl
import pyarrow as pa

from qbeast_core.io.parquet.special_arrays import in_files
from qbeast_core.support.sizing import sizing
from qbeast_spark_bridge.worker.call import grouped

_BATCH_ROWS: Final = 1 << 17


class _AnyScanTask(Protocol):
    """A `qbeast_core.table.read.scan_task.ScanTask`, or a task of another kind of table."""

    def read(self) -> Iterator[pl.DataFrame]: ...


@dataclass(frozen=True, slots=True, eq=False)
class ReadTask:
    """A picklable task of a scan, with the Arrow types of its rows for Spark."""

    task: _AnyScanTask
    schema: pa.Schema = field(repr=False)
    # Types in the Delta schema of columns that are or contain variants or voids.
    special_types: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; no batch is empty."""
        size_bytes = sizing().source_batch_bytes
        row_bytes = size_bytes // _BATCH_ROWS  # a row counts as at least this size
        sizes = ((frame, max(_bytes(frame), frame.height * row_bytes)) for frame in self.task.read())
        for group in grouped(sizes, size_bytes):
            yield from self._cut(pl.concat(group))

    def _cut(self, frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches of limited size, in Spark's types."""
        row_bytes = _bytes(frame) // max(frame.height, 1) + 1
        for rows in frame.iter_slices(min(_BATCH_ROWS, max(sizing().source_batch_bytes // row_bytes, 1))):
            table = self._for_spark(rows.to_arrow(compat_level=pl.CompatLevel.oldest())).cast(self.schema)
            yield from table.combine_chunks().to_batches()

    def _for_spark(self, table: pa.Table) -> pa.Table:
        """Return the rows with variants as Spark has them: their binaries are never null."""
        for name, dtype in self.special_types.items():
            index = table.column_names.index(name)
            column = in_files(table.column(index).combine_chunks(), dtype)
            if column is not None:
                table = table.set_column(index, name, column)
        return table


def run_tasks(_: None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read tasks in a worker, for ``mapInArrow``; see `qbeast_spark_bridge.worker.call.WorkerCall`."""
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from pickle.loads(task).batches()  # noqa: S301 -- bytes of our own driver


def _bytes(frame: pl.DataFrame) -> int:
    return int(frame.estimated_size())
