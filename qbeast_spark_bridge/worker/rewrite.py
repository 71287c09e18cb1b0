"""A task of a rewrite, in a worker: it reads files, changes their rows, and summarises or packs the result.

Workers import this module only: the planner of a rewrite takes as long to import again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import I32Array
from qbeast_core.table.engine.tasks.passes import PlaceTask, SummaryTask
from qbeast_core.table.engine.tasks.row_change import RowFunction
from qbeast_core.table.read.scan_task import ScanTask
from qbeast_core.tree.space.summary import DOMAIN_LIMITS, IndexSummary, SampleLimits, merge_summaries
from qbeast_core.tree.space.summary_bytes import dump_summary, load_summary
from qbeast_spark_bridge.worker.shuffle import packed
from qbeast_spark_bridge.worker.transport import BUFFER_BYTES, batch_of, received

if TYPE_CHECKING:  # workers start faster without it
    pass

# Columns of what `summarise_files` yields.
SUMMARIES: Final = "part int, summary binary"

_TASK_BITS: Final = 40  # of a row's number, below those of its task
_LEAST_SAMPLE: Final = 1 << 14
_MERGED_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows:
    """Rows that a task reads, and their change."""

    # Of all columns, if rows change.
    task: ScanTask
    change: RowFunction | None

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the changed rows."""
        if self.change is None:
            yield from self.task.read()
            return
        yield from map(self.change, _buffered(self.task.read()))


def summarise_files(
    argument: tuple[SummaryTask, float], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the summary of a task's rows, in a worker; nothing for no rows."""
    job, share = argument
    for number, task in received(batches):
        first = number << _TASK_BITS
        total: IndexSummary | None = None
        for rows in _buffered(task.read()):
            summary = job.summarise(rows.select(list(job.schema)), first_row=first)
            first += rows.height
            total = summary if total is None else merge_summaries([total, summary], limits=DOMAIN_LIMITS)
        if total is not None:
            # A little more than the share: the merged sample is as small a share as its smallest part.
            most = min(max(int(1.05 * share * total.rows), _LEAST_SAMPLE), DOMAIN_LIMITS.rows)
            cut = merge_summaries([total], limits=SampleLimits(most, DOMAIN_LIMITS.size_bytes))
            yield batch_of(SUMMARIES, [number], [dump_summary(cut)])


def merge_partition(_: None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one summary of all that arrive; the worker holds some at a time."""
    held: list[IndexSummary] = []
    for batch in batches:
        for data in batch.column("summary"):
            held.append(load_summary(data.as_py()))
            if len(held) == _MERGED_AT_ONCE:
                held = [merge_summaries(held, limits=DOMAIN_LIMITS)]
    if held:
        merged = dump_summary(merge_summaries(held, limits=DOMAIN_LIMITS))
        yield batch_of(SUMMARIES, [0], [merged])


def pack_files(
    argument: tuple[PlaceTask, I32Array], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks as packs; the worker holds about 64 MB of rows."""
    job, keys = argument
    for _, task in received(batches):
        yield from packed(job, keys, map(job.select, _buffered(task.read())))


def _buffered(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the same rows in frames of about 64 MB; none is empty."""
    held: list[pl.DataFrame] = []
    size = 0
    for frame in frames:
        row_bytes = int(frame.estimated_size()) // max(frame.height, 1) + 1
        for some in frame.iter_slices(max(BUFFER_BYTES // row_bytes, 1)):
            held.append(some)
            size += some.height * row_bytes
            if size >= BUFFER_BYTES:
                yield pl.concat(held)
                held, size = [], 0
    if any(frame.height for frame in held):
        yield pl.concat(held)
