"""A task of a rewrite in a worker: read files, change their rows, and summarise or pack the result.

Workers import only this module: importing the planner of a rewrite would double the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

from qbeast_core.space.values import I32Array
from qbeast_core.table.engine.files import PlaceTask, SummaryTask
from qbeast_core.table.engine.row_change import RowFunction
from qbeast_core.table.read.tasks import ScanTask
from qbeast_core.tree.summary import (
    IndexSummary,
    SampleLimits,
    domain_limits,
    dump_summary,
    load_summary,
    merge_summaries,
)
from qbeast_spark_bridge.worker.call import grouped
from qbeast_spark_bridge.worker.transport import BUFFER_BYTES, batch_of, packed, received

# Columns of the batches of `summarise_files`.
SUMMARIES: Final = "part int, summary binary"

_TASK_BITS: Final = 40  # a row's number is below these bits, its task's number above
_MIN_SAMPLE_ROWS: Final = 1 << 14
_MERGED_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows:
    """Rows that a task reads, and their change."""

    # Reads all columns, if rows change.
    task: ScanTask
    change: RowFunction | None

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the changed rows."""
        frames = self.task.read()
        yield from frames if self.change is None else map(self.change, _buffered(frames))


def summarise_files(
    argument: tuple[SummaryTask, float], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the summary of the rows of each task that has rows."""
    job, share = argument
    for number, task in received(batches):
        first = number << _TASK_BITS
        total: IndexSummary | None = None
        for rows in _buffered(task.read()):
            summary = job.summarise(rows.select(list(job.read_schema)), first_row=first)
            first += rows.height
            total = summary if total is None else merge_summaries([total, summary], limits=domain_limits())
        if total is not None:
            # A little more than the share: the merged sample has the share of its smallest part.
            max_rows = min(max(int(1.05 * share * total.rows), _MIN_SAMPLE_ROWS), domain_limits().rows)
            reduced = merge_summaries([total], limits=SampleLimits(max_rows, domain_limits().size_bytes))
            yield batch_of(SUMMARIES, [number], [dump_summary(reduced)])


def merge_partition(_: None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the merged summary of a partition; the worker holds a few at a time."""
    summaries: list[IndexSummary] = []
    for batch in batches:
        for data in batch.column("summary"):
            summaries.append(load_summary(data.as_py()))
            if len(summaries) == _MERGED_AT_ONCE:
                summaries = [merge_summaries(summaries, limits=domain_limits())]
    if summaries:
        merged = dump_summary(merge_summaries(summaries, limits=domain_limits()))
        yield batch_of(SUMMARIES, [0], [merged])


def pack_files(
    argument: tuple[PlaceTask, I32Array], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks as packs; the worker holds about 64 MB of rows."""
    job, keys = argument
    for _, task in received(batches):
        yield from packed(job, keys, map(job.select, _buffered(task.read())))


def _buffered(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the same rows in non-empty frames of about 64 MB."""
    for group in grouped(_slices(frames), BUFFER_BYTES):
        if any(frame.height for frame in group):
            yield pl.concat(group)


def _slices(frames: Iterator[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, int]]:
    for frame in frames:
        row_bytes = int(frame.estimated_size()) // max(frame.height, 1) + 1
        for part in frame.iter_slices(max(BUFFER_BYTES // row_bytes, 1)):
            yield part, part.height * row_bytes
