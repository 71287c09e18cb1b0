"""The rows of a rewrite that workers read, place and write; this process plans and knows their files alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import polars as pl

from qbeast_core.errors import InputChangedError, InvalidInputError
from qbeast_core.log.actions import AddFile
from qbeast_core.log.rebase import dialect_of
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import delete_data_files
from qbeast_core.table.engine.scatter_task import RowShape, ScatteredFile, ScatterJob, SummaryJob, with_blocks
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.job import PlannedRows, Rewrite, Rows, TakeRows
from qbeast_core.table.runtime import Progress, Runtime
from qbeast_core.table.write.scatter import ScatterPlan, guess_row_bytes, plan_scatter
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.summary import IndexSummary

__all__ = ["RewriteWorkers", "take_by"]


class RewriteWorkers(Protocol):
    """Read files of a snapshot, exactly as a full read would, and do something with their rows."""

    def summarise(self, reader: Reader, numbers: I64Array, job: SummaryJob) -> IndexSummary:
        """Return the summary of all rows of some files.

        Parameters
        ----------
        reader : Reader
            Of the snapshot.
        numbers : ndarray of int64
            Of live files.
        job : SummaryJob
            What to learn of the rows.
        """
        ...

    def scatter(self, reader: Reader, numbers: I64Array, job: ScatterJob) -> Sequence[ScatteredFile]:
        """Write all rows of some files to new ones; return one answer for each, of those that count.

        Parameters
        ----------
        reader, numbers
            As for `summarise`.
        job : ScatterJob
            Where the rows go.
        """
        ...


def take_by(workers: RewriteWorkers) -> TakeRows:
    """Return how a rewrite takes its rows where workers move them.

    Parameters
    ----------
    workers : RewriteWorkers
        Of an engine. They take rows as they are: a rewrite that changes or adds some is refused.
    """

    def take(reader: Reader, job: Rewrite, _: Runtime, numbers: I64Array, added: pl.DataFrame | None) -> Rows:
        if job.change is not None or added is not None:
            msg = "workers put rows back as they are; nothing was changed. Change rows in this process."
            raise InvalidInputError(msg, argument="change")
        return _RowsThere(workers, reader, job, numbers)

    return take


class _RowsThere:
    def __init__(self, workers: RewriteWorkers, reader: Reader, job: Rewrite, numbers: I64Array) -> None:
        self.workers, self.reader, self.job, self.numbers = workers, reader, job, numbers
        self._summaries: dict[tuple[str, ...], IndexSummary] = {}

    def summary(self, names: Sequence[str]) -> IndexSummary:
        known = tuple(names)
        if known not in self._summaries:
            schema = pl.Schema({name: self.reader.snapshot.schema[name] for name in known})
            self._summaries[known] = self.workers.summarise(self.reader, self.numbers, SummaryJob(schema))
        return self._summaries[known]

    def plan(self, revision: Revision, tree: ExistingTree | None) -> PlannedRows:
        summary = self.summary(revision.columns)
        if self.job.progress is not None:
            self.job.progress(Progress("plan", rows=summary.rows))
        row_bytes = guess_row_bytes(self.reader.snapshot.schema)
        plan = plan_scatter(summary, revision, tree, row_bytes=row_bytes)
        return _PlanThere(self, plan, _job(self.reader, summary, revision, plan))


class _PlanThere:
    def __init__(self, rows: _RowsThere, plan: ScatterPlan, job: ScatterJob) -> None:
        self._rows, self._plan, self._job = rows, plan, job

    @property
    def file_count(self) -> int:
        return self._job.file_count

    @property
    def block_count(self) -> int:
        return self._plan.block_count

    def write(self) -> Iterator[Sequence[AddFile]]:
        rows, job = self._rows, self._job
        files = rows.workers.scatter(rows.reader, rows.numbers, job)
        count = sum(file.rows for file in files)
        if (count, sum(file.weight_sum for file in files)) != (job.rows, job.weight_sum):
            delete_data_files(rows.reader.store, [file.add for file in files])
            msg = (
                f"workers counted {job.rows:,} rows to rewrite and then wrote {count:,}, or others: do all machines "
                "reach the same files? Nothing was changed."
            )
            raise InputChangedError(msg, rows_before=job.rows, rows_after=count)
        if rows.job.progress is not None:
            rows.job.progress(Progress("write", len(files), len(files), count))
        yield with_blocks(files, job.outline)


def _job(reader: Reader, summary: IndexSummary, revision: Revision, plan: ScatterPlan) -> ScatterJob:
    snapshot = reader.snapshot
    properties = snapshot.metadata.configuration.items()
    return ScatterJob(
        uri=reader.store.uri,
        storage_options=dict(snapshot.storage_options),
        shape=RowShape(snapshot.schema_json, snapshot.schema, merge=False),
        configuration={key: value for key, value in properties if key.startswith("delta.")},
        dialect=dialect_of(snapshot),
        revision=revision,
        is_new=False,
        outline=plan.outline,
        file_starts=plan.file_starts,
        file_rows=plan.file_rows,
        design_effect=plan.design_effect,
        rows=summary.rows,
        weight_sum=summary.weight_sum,
    )
