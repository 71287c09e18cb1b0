"""The engine that keeps all rows in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import polars as pl

from qbeast_core.io.stores.machine import give_back_memory
from qbeast_core.log.actions import AddFile
from qbeast_core.spec.revision import Revision
from qbeast_core.support.runtime import Progress, ProgressCallback
from qbeast_core.table.data.data_files import CodedRows, FileSettings, write_data_files
from qbeast_core.table.engine.budget import Budget
from qbeast_core.table.engine.live_files import FilesSource
from qbeast_core.table.engine.protocol import AnswerT, ItemT, PlannedRows, Rows, Source
from qbeast_core.table.engine.stream import FrameSource
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.keys.design_effect import design_effect
from qbeast_core.tree.keys.key_sketch import KeySketch
from qbeast_core.tree.keys.key_total import KeyTotal
from qbeast_core.tree.layout.existing import ExistingTree
from qbeast_core.tree.layout.pack import rows_per_file
from qbeast_core.tree.layout.parallel import CHUNK_ROWS, workers
from qbeast_core.tree.layout.plan import IndexPlan, plan_index
from qbeast_core.tree.space.columns import frame_weights
from qbeast_core.tree.space.outside import rows_outside
from qbeast_core.tree.space.summary import IndexSummary, summarise

_ALL_BYTES: Final = 1 << 62


class MemoryEngine:
    """Engine of one process. Loads all rows of a source into memory."""

    shares_memory = True

    def __init__(self, writers: int | None = None) -> None:
        self._writers = writers

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """See `Engine`."""
        match source:
            case FilesSource():
                rows = source.read()
            case FrameSource():
                rows = target.shape.fit(source.frame)
            case _:
                rows = target.shape.fit(
                    pl.concat([source.empty, *source.batches(None, size_bytes=_ALL_BYTES)])
                )
        writers = Budget.of().writers if self._writers is None else self._writers
        return _MemoryRows(rows, target, progress, writers=writers)

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


class _MemoryRows:
    def __init__(
        self, rows: pl.DataFrame, target: FileTarget, progress: ProgressCallback | None, *, writers: int
    ) -> None:
        self.in_memory_rows, self.target, self.progress, self.writers = rows, target, progress, writers
        self._summaries: dict[tuple[str, ...], IndexSummary] = {}

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
        return (None, self) if outside.all() else (self._part(~outside), self._part(outside))

    def _part(self, mask: pl.Series) -> _MemoryRows:
        rows = self.in_memory_rows.filter(mask)
        return _MemoryRows(rows, self.target, self.progress, writers=self.writers)

    def plan(self, revision: Revision, tree: ExistingTree | None) -> PlannedRows:
        rows = self.in_memory_rows
        keys = rows[list(revision.columns)]
        if self.progress is not None:
            self.progress(Progress("plan", rows=keys.height))
        weights = frame_weights(keys, revision.columns)
        row_bytes = rows.estimated_size() / max(rows.height, 1)
        with workers(2, rows=keys.height, calls=2) as pool:  # while this thread plans
            effect = pool.submit(design_effect, weights)
            coded = pool.submit(self._coded, revision)
            plan = plan_index(keys, revision, weights, existing=tree, file_rows=rows_per_file(row_bytes))
            planned = _MemoryPlan(self, plan, effect.result(), *coded.result())
        if keys.height > CHUNK_ROWS:  # writing files needs the most memory
            give_back_memory()
        return planned

    def _coded(self, revision: Revision) -> tuple[FileSettings, CodedRows]:
        """Choose the encodings of the files, and encode columns of few values as numbers."""
        rows, target = self.in_memory_rows, self.target
        settings = FileSettings.of(rows, revision.columns, target.configuration, dialect=target.dialect)
        return settings, CodedRows(rows, settings)


class _MemoryPlan:
    def __init__(
        self, rows: _MemoryRows, plan: IndexPlan, effect: float, settings: FileSettings, coded: CodedRows
    ) -> None:
        self._rows, self._plan, self._settings, self._coded = rows, plan, settings, coded
        self.design_effect = effect

    @property
    def file_count(self) -> int:
        return self._plan.file_count

    @property
    def block_count(self) -> int:
        return len(self._plan.packed.block_cube)

    @property
    def cube_count(self) -> int:
        return len(self._plan.assignment.counts)

    def keys(self) -> KeySketch:
        total = KeyTotal()
        for number in range(self.file_count):
            total.add(KeySketch.of(self._plan.file(number).weights))
        return total.joined(self.design_effect * total.rows)

    def write(self) -> Iterator[Sequence[AddFile]]:
        yield write_data_files(
            self._coded,
            self._plan,
            store=self._rows.target.store,
            settings=self._settings,
            writers=self._rows.writers,
            progress=self._rows.progress,
        )
