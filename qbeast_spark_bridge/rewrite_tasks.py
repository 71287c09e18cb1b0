"""Spark's workers as those who move the rows of a rewrite: they read files themselves, rows cross the JVM packed."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from qbeast_core.space.arrays import I64Array
from qbeast_core.table.reader import Reader
from qbeast_core.table.scatter_job import ScatterJob, SummaryJob
from qbeast_core.table.scattered_file import ScatteredFile
from qbeast_core.tree.summary import DOMAIN_LIMITS, IndexSummary
from qbeast_core.tree.summary_bytes import load_summary
from qbeast_spark_bridge.errors import OwnErrors
from qbeast_spark_bridge.pass_two import task_keys, write_partition
from qbeast_spark_bridge.read_task import ReadTask
from qbeast_spark_bridge.rewrite_work import PACKS, SUMMARIES, merge_partition, pack_files, summarise_files
from qbeast_spark_bridge.tasks import TASK_BYTES, tasks_of
from qbeast_spark_bridge.workers import WorkerCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkWorkers"]

_TASKS: Final = "key int, number int, task binary"
_FILES: Final = "file binary"


@dataclass(frozen=True, slots=True, eq=False)
class SparkWorkers:
    """Rewrites by tasks of Spark, see `qbeast_core.table.rewrite_scatter.Workers`.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    """

    spark: SparkSession

    def summarise(self, reader: Reader, numbers: I64Array, job: SummaryJob) -> IndexSummary:
        """Summarise the rows of some files: each task sends one summary, tasks merge them."""
        tasks = _tasks(reader, numbers, list(job.schema))
        nothing = job.summarise(job.schema.to_frame(), first_row=0)
        if not tasks:
            return nothing
        counts = reader.snapshot.files["num_records"].fill_null(0).to_numpy()[numbers]
        share = min(DOMAIN_LIMITS.rows / max(int(counts.sum()), 1), 1.0)
        with OwnErrors():
            call = WorkerCall.of(summarise_files, (job, share))
            summaries = self._spread(tasks).mapInArrow(call, SUMMARIES)
            merge = WorkerCall.of(merge_partition, None)
            # Adaptive execution makes as many tasks of this shuffle as the summaries are worth.
            some = summaries.repartition("part").mapInArrow(merge, SUMMARIES)
            found = some.repartition(1).mapInArrow(merge, SUMMARIES).collect()
        return load_summary(bytes(found[0]["summary"])) if found else nothing

    def scatter(self, reader: Reader, numbers: I64Array, job: ScatterJob) -> Sequence[ScatteredFile]:
        """Write the rows of some files to new ones: tasks read and pack, one task per new file writes."""
        if not job.file_count:
            return []
        tasks = _tasks(reader, numbers, list(reader.snapshot.schema))
        with OwnErrors():
            pack = WorkerCall.of(pack_files, (job, task_keys(job.file_count)))
            packs = self._spread(tasks).mapInArrow(pack, PACKS)
            sent = packs.repartition(job.file_count, "key")
            files = sent.mapInArrow(WorkerCall.of(write_partition, job), _FILES).collect()
        return [ScatteredFile.load(bytes(row["file"])) for row in files]

    def _spread(self, tasks: Sequence[ReadTask]) -> DataFrame:
        """Send each task to a partition of its own, always the same one."""
        keys = task_keys(len(tasks)).tolist()
        rows = [
            (key, number, bytearray(pickle.dumps(task, protocol=5)))
            for number, (key, task) in enumerate(zip(keys, tasks, strict=True))
        ]
        return self.spark.createDataFrame(rows, _TASKS).repartition(len(rows), "key")


def _tasks(reader: Reader, numbers: I64Array, columns: list[str]) -> list[ReadTask]:
    """Cut the read of some files into tasks of about equal bytes."""
    job = reader.plan(None, None)
    wanted = np.zeros_like(job.selection.opened)
    wanted[numbers] = True
    some = replace(job, selection=replace(job.selection, opened=job.selection.opened & wanted))
    return tasks_of(reader, some, columns=columns, task_bytes=TASK_BYTES)
