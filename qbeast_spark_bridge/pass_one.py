"""The first pass: workers look at the indexed columns of all rows, the driver gets one summary of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it
from pyspark.taskcontext import TaskContext

from qbeast_core.table.scatter_job import SummaryJob
from qbeast_core.tree.summary import DOMAIN_LIMITS, IndexSummary, SampleLimits, merge_summaries
from qbeast_core.tree.summary_bytes import dump_summary, load_summary
from qbeast_spark_bridge.batches import gathered, numbered
from qbeast_spark_bridge.workers import WorkerCall

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["merge_partition", "summarise_partition", "summarise_rows"]

_COLUMNS: Final = "part int, summary binary"
_SCHEMA: Final = pa.schema([("part", pa.int32()), ("summary", pa.binary())])
_MERGED_AT_ONCE: Final = 8
_PARTITION_BITS: Final = 40  # of a row's number, below those of its partition
_LEAST_SAMPLE: Final = 1 << 14
_LEAST_SHARE: Final = 1 / 40  # a cube of 16,384 rows is then known to 5 %


def summarise_rows(df: DataFrame, job: SummaryJob, names: Sequence[str]) -> IndexSummary:
    """Summarise all rows of a DataFrame on the executors.

    Parameters
    ----------
    df : DataFrame
        The rows.
    job : SummaryJob
        What to learn of them.
    names : sequence of str
        The indexed columns; those that `df` lacks count as null.

    Returns
    -------
    IndexSummary
        With a sample of at most 64 MB, however many rows and partitions there are.
    """
    indexed = numbered(df.select(*_columns(df, names)))
    summaries = indexed.mapInArrow(WorkerCall.of(summarise_partition, job), _COLUMNS)
    merge = WorkerCall.of(merge_partition, None)
    # Adaptive execution makes as many tasks of this shuffle as the summaries are worth.
    some = summaries.repartition("part").mapInArrow(merge, _COLUMNS)
    found = some.repartition(1).mapInArrow(merge, _COLUMNS).collect()
    return load_summary(bytes(found[0]["summary"])) if found else _of_nothing(job)


def summarise_partition(job: SummaryJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the summary of a partition's rows, in a worker; nothing for no rows."""
    task = TaskContext.get()
    part = task.partitionId() if task is not None else 0
    first = part << _PARTITION_BITS
    total: IndexSummary | None = None
    for rows in gathered(batches, list(job.schema)):
        found = job.summarise(rows, first_row=first)
        first += found.rows
        total = found if total is None else merge_summaries([total, found], limits=DOMAIN_LIMITS)
    if total is not None:
        limits = SampleLimits(_sample_rows(part, total.rows), DOMAIN_LIMITS.size_bytes)
        yield _row(part, merge_summaries([total], limits=limits))


def merge_partition(_: None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one summary for all that arrive, in a worker that holds some of them at a time; nothing for none."""
    held: list[IndexSummary] = []
    for batch in batches:
        for data in batch.column("summary"):
            held.append(load_summary(data.as_py()))
            if len(held) == _MERGED_AT_ONCE:
                held = [merge_summaries(held, limits=DOMAIN_LIMITS)]
    if held:
        yield _row(0, merge_summaries(held, limits=DOMAIN_LIMITS))


def _columns(df: DataFrame, names: Sequence[str]) -> list[Column]:
    known = set(df.columns)
    return [
        F.col(f"`{name.replace('`', '``')}`") if name in known else F.lit(None).alias(name) for name in names
    ]


def _sample_rows(part: int, rows: int) -> int:
    """Return how many rows of a partition to keep, so that enough are left when all have been merged.

    The merged sample is as thin as that of the thinnest partition, and no task knows how many partitions
    there are: number n has n before it. One that has far more rows than others keeps a share of its own.
    """
    wanted = max(DOMAIN_LIMITS.rows // (part + 1), int(rows * _LEAST_SHARE), _LEAST_SAMPLE)
    return min(wanted, DOMAIN_LIMITS.rows)


def _of_nothing(job: SummaryJob) -> IndexSummary:
    return job.summarise(job.schema.to_frame(), first_row=0)


def _row(part: int, summary: IndexSummary) -> pa.RecordBatch:
    return pa.record_batch([[part], [dump_summary(summary)]], schema=_SCHEMA)
