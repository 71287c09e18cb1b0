"""The engine that keeps all rows in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.io.machine import give_back_memory
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import Progress, ProgressCallback, report
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import CodedRows, FileSettings, write_data_files
from qbeast_core.table.engine.budget import Budget
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.table.engine.files_source import FilesSource
from qbeast_core.table.engine.interfaces import AnswerT, ItemT, PlannedRows, Rows, Source, unindexed_rows
from qbeast_core.table.engine.row_sources import FrameSource
from qbeast_core.table.engine.tasks.store_files import PlainTask, settings_for
from qbeast_core.tree.build import ExistingTree, partitions_of
from qbeast_core.tree.files import IndexPlan, plan_index, rows_per_file
from qbeast_core.tree.fit import rows_outside
from qbeast_core.tree.grid import frame_weights, workers
from qbeast_core.tree.keys import KeySketch, KeyTotal, design_effect
from qbeast_core.tree.summary import IndexSummary, summarise, with_stored_values

_ALL_BYTES: Final = 1 << 62


class MemoryEngine:
    """Engine of one process. Loads all rows of a source into memory."""

    shares_memory = True

    def __init__(self, writers: int | None = None) -> None:
        self._writers = writers

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """See `Engine`."""
        if isinstance(source, FilesSource):
            rows = with_stored_values(source.read(), target.columns.partitions)
        elif isinstance(source, FrameSource):
            rows = target.shape.fit(source.frame)
        else:
            batches = source.batches(None, size_bytes=_ALL_BYTES)
            rows = target.shape.fit(pl.concat([source.empty, *batches]))
        writers = Budget.of().writers if self._writers is None else self._writers
        return _MemoryRows(rows, target, progress, writers)

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """See `Engine`; uses threads of this process."""
        if at_once == 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(call, items))

    def has_room(self, size_bytes: int) -> bool:
        """See `Engine`; there is no limit."""
        del size_bytes
        return True


# Default engine of operations.
MEMORY: Final = MemoryEngine()


@dataclass(frozen=True, slots=True, eq=False)
class _MemoryRows:
    in_memory_rows: pl.DataFrame
    target: FileTarget
    progress: ProgressCallback | None
    writers: int
    _summaries: dict[tuple[str, ...], IndexSummary] = field(
        default_factory=dict[tuple[str, ...], IndexSummary], init=False
    )

    @property
    def height(self) -> int:
        return self.in_memory_rows.height

    def summary(self, names: Sequence[str], *, cube_size: int | None = None) -> IndexSummary:
        del cube_size  # the summary uses all rows
        if tuple(names) not in self._summaries:
            self._summaries[tuple(names)] = summarise(self.in_memory_rows, names)
        return self._summaries[tuple(names)]

    def split(self, revision: Revision) -> tuple[Rows | None, Rows | None]:
        outside = pl.Series(rows_outside(self.in_memory_rows, revision), dtype=pl.Boolean)
        if not outside.any():
            return self, None
        if outside.all():
            return None, self
        inside, others = (self.in_memory_rows.filter(mask) for mask in (~outside, outside))
        return replace(self, in_memory_rows=inside), replace(self, in_memory_rows=others)

    def plan(self, revision: Revision | None, tree: ExistingTree | None) -> PlannedRows:
        if revision is None:
            return self._plan_unindexed()
        rows = self.in_memory_rows
        keys = rows[list(revision.key_columns)]
        of_partitions = rows.select(self.target.columns.partitions)
        partitions = partitions_of(tree).with_rows(of_partitions)
        report(self.progress, Progress("plan", rows=keys.height))
        weights = frame_weights(keys, revision.hashed)
        row_bytes = rows.estimated_size() / max(rows.height, 1)
        with workers(2, rows=keys.height, calls=2) as pool:  # while this thread plans
            counted = pool.submit(design_effect, weights)
            coded = pool.submit(self._coded, revision)
            plan = plan_index(
                keys,
                revision,
                weights,
                existing=tree,
                file_rows=rows_per_file(row_bytes, max(self.target.table_rows, rows.height)),
                trees=partitions.numbers(of_partitions),
            )
            effect = counted.result()
            settings, source = coded.result()
        if keys.height > sizing().chunk_rows:  # writing files needs the most memory
            give_back_memory()
        return PlannedRows(
            file_count=plan.file_count,
            cube_count=len(plan.assignment.counts),
            design_effect=effect,
            keys=partial(_keys, plan, effect),
            write=partial(
                write_data_files,
                source,
                plan,
                store=self.target.store,
                settings=settings,
                writers=self.writers,
                progress=self.progress,
            ),
        )

    def _plan_unindexed(self) -> PlannedRows:
        rows = self.in_memory_rows
        count = -(-rows.height // rows_per_file(rows.estimated_size() / max(rows.height, 1)))
        task = PlainTask(target=self.target, max_bytes=_ALL_BYTES)
        return unindexed_rows(partial(task.write, [rows]), file_count=count)

    def _coded(self, revision: Revision) -> tuple[FileSettings, CodedRows]:
        """Choose the encodings of the files, and encode columns of few values as numbers."""
        settings = settings_for(self.target, self.in_memory_rows, revision.columns)
        return settings, CodedRows(self.in_memory_rows, settings)


def _keys(plan: IndexPlan, effect: float) -> KeySketch:
    total = KeyTotal()
    for number in range(plan.file_count):
        total.add(KeySketch.of(np.sort(plan.weights[plan.rows_of(number)])))
    return total.joined(effect * total.rows)
