"""The rows of a rewrite that this process reads, places and writes itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.rebase import dialect_of
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data_file import FileSettings
from qbeast_core.table.data_files import World, write_data_files
from qbeast_core.table.progress import Progress
from qbeast_core.table.reader import Reader
from qbeast_core.table.rewrite_job import Rewrite
from qbeast_core.table.rewrite_read import TakenRows
from qbeast_core.table.rewrite_rows import PlannedRows, Rows
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.pack import rows_per_file
from qbeast_core.tree.plan import IndexPlan, plan_index
from qbeast_core.tree.plan_part import plan_parts
from qbeast_core.tree.summary import IndexSummary, summarise

__all__ = ["take_here"]


def take_here(
    reader: Reader, job: Rewrite, world: World, numbers: I64Array, added: pl.DataFrame | None
) -> Rows:
    """Take rows into this process; those that are more than a group are read again whenever they are needed.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    job : Rewrite
        What becomes of the rows, and how many are held.
    world : World
        Clock and ids.
    numbers : ndarray of int64
        Of live files.
    added : polars.DataFrame or None
        More rows.
    """
    return _RowsHere(reader, job, world, numbers, added)


class _RowsHere:
    def __init__(
        self, reader: Reader, job: Rewrite, world: World, numbers: I64Array, added: pl.DataFrame | None
    ) -> None:
        self._reader, self._job, self._world = reader, job, world
        self._rows = TakenRows(reader, numbers, change=job.change, added=added, group_bytes=job.group_bytes)

    def summary(self, names: Sequence[str]) -> IndexSummary:
        return summarise(self._rows.keys(names), names)

    def plan(self, revision: Revision, tree: ExistingTree | None) -> PlannedRows:
        keys = self._rows.keys(revision.columns)
        if self._job.progress is not None:
            self._job.progress(Progress("plan", rows=keys.height))
        held = self._rows.held
        row_bytes = self._rows.row_bytes if held is None else held.estimated_size() / max(held.height, 1)
        plan = plan_index(
            keys,
            revision,
            frame_weights(keys, revision.columns),
            existing=tree,
            file_rows=rows_per_file(row_bytes),
        )
        return _PlanHere(self._reader, self._job, self._world, self._rows, plan)


class _PlanHere:
    def __init__(self, reader: Reader, job: Rewrite, world: World, rows: TakenRows, plan: IndexPlan) -> None:
        self._reader, self._job, self._world = reader, job, world
        self._rows, self._plan = rows, plan

    @property
    def file_count(self) -> int:
        return self._plan.file_count

    @property
    def block_count(self) -> int:
        return len(self._plan.packed.block_cube)

    def write(self) -> Iterator[Sequence[AddFile]]:
        if self._rows.held is not None:
            yield self._write(self._rows.held, self._plan)
            return
        total = len(self._plan.weights)
        for places, part in plan_parts(self._plan, most_rows=self._rows.group_rows):
            yield self._write(self._rows.take(places, total), part)

    def _write(self, rows: pl.DataFrame, plan: IndexPlan) -> list[AddFile]:
        snapshot = self._reader.snapshot
        configuration, dialect = snapshot.metadata.configuration, dialect_of(snapshot)
        return write_data_files(
            rows,
            plan,
            store=self._reader.store,
            settings=FileSettings.of(rows, plan.revision.columns, configuration, dialect=dialect),
            world=self._world,
            progress=self._job.progress,
        )
