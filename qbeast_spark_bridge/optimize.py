"""Optimize a table with Spark: planned here, rewritten by its workers, committed once a revision."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from qbeast_core.api import open_table
from qbeast_core.space.arrays import I64Array
from qbeast_core.table.engine.scatter_task import ScatteredFile, ScatterJob, SummaryJob
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.optimize import OptimizeOptions, OptimizeResult, optimize
from qbeast_core.table.rewrite.workers import take_by
from qbeast_core.table.runtime import RUNTIME, ProgressCallback
from qbeast_core.table.write.options import metadata_of
from qbeast_core.tree.summary import DOMAIN_LIMITS, IndexSummary
from qbeast_core.tree.summary_bytes import load_summary
from qbeast_spark_bridge.tasks import TASK_BYTES, tasks_of
from qbeast_spark_bridge.worker.call import OwnErrors, WorkerCall
from qbeast_spark_bridge.worker.read_task import ReadTask
from qbeast_spark_bridge.worker.rewrite import PACKS, SUMMARIES, merge_partition, pack_files, summarise_files
from qbeast_spark_bridge.worker.shuffle import task_keys, write_partition

__all__ = ["SparkWorkers", "optimize_table"]


_TASKS: Final = "key int, number int, task binary"

_FILES: Final = "file binary"


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def optimize_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    revision: int | None = None,
    files: Sequence[str | os.PathLike[str]] | None = None,
    fraction: float | None = None,
    all_revisions: bool = False,
    full: bool = False,
    fold: bool = False,
    redraw: bool = False,
    dry_run: bool = False,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> OptimizeResult:
    """Do what `Table.optimize` does, with Spark: choose files here, rewrite them on the executors, commit here.

    The same files are chosen, for the same reasons, and the rows get the same places: the tree is drawn from a
    sample of their indexed columns, a million rows at most, and of fewer rows it is that of `Table.optimize`.
    Failed, repeated and speculative tasks leave at worst files that no version names, which a vacuum removes.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table; executors and this process have to reach it under that name.
    revision, files, fraction, all_revisions, full, fold, redraw, dry_run, commit_metadata
        See `Table.optimize`.
    progress : callable, optional
        Called with a `Progress` at every step; files are counted once all of them are written.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them; sent along with the tasks.

    Returns
    -------
    OptimizeResult
        As of `Table.optimize`.

    Raises
    ------
    QbeastError
        As `qbeast.open_table` and `Table.optimize`; what executors raised is raised here.
    """
    options = OptimizeOptions(
        revision=revision,
        files=files,
        fraction=fraction,
        all_revisions=all_revisions,
        full=full,
        fold=fold,
        redraw=redraw,
        dry_run=dry_run,
        commit_metadata=metadata_of(commit_metadata),
        progress=progress,
    )
    reader = open_table(path, storage_options=storage_options).explain().reader
    result, _ = optimize(reader, options, RUNTIME, take=take_by(SparkWorkers(spark)))
    return result


if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, eq=False)
class SparkWorkers:
    """Rewrites by tasks of Spark, see `qbeast_core.table.rewrite.workers.RewriteWorkers`.

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
