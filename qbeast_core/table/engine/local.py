"""The engine of one machine: keeps rows in memory if they fit, else uses temporary files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.io.machine import give_back_memory
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import (
    LOG,
    EngineName,
    Progress,
    ProgressCallback,
    Resources,
    checked_resources,
    report,
    spill_folder_of,
)
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import CodedRows, FileSettings, FileTarget, write_data_files
from qbeast_core.table.engine.engine import (
    AnswerT,
    Budget,
    ItemT,
    ResultT,
    Rows,
    Source,
    WritePlan,
    bytes_of_text,
    unindexed_plan,
)
from qbeast_core.table.engine.files import split_rows, write_plain
from qbeast_core.table.engine.sources import FilesSource, FrameSource, OneShotSource, drain, rows_and_bytes
from qbeast_core.table.engine.spill import Spill, SpillFolder, spill_rows, spool
from qbeast_core.tree.build import ExistingTree, partitions_of
from qbeast_core.tree.files import IndexPlan, plan_index, rows_per_file
from qbeast_core.tree.grid import frame_weights, grid_columns, thread_pool
from qbeast_core.tree.keys import KeySketch, KeyTotal, design_effect
from qbeast_core.tree.summary import IndexSummary, summarise, with_stored_values

_ALL_BYTES: Final = 1 << 62

# Cells of rows stay in memory while files are written if they take at most this share of the rows.
_CELLS_SHARE: Final = 1 / 4


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
        inside, outside = split_rows(self.in_memory_rows, revision)
        if not outside.height:
            return self, None
        if not inside.height:
            return None, self
        return replace(self, in_memory_rows=inside), replace(self, in_memory_rows=outside)

    def plan(self, revision: Revision | None, tree: ExistingTree | None) -> WritePlan:
        if revision is None:
            return self._plan_unindexed()
        rows = self.in_memory_rows
        keys = rows[list(revision.key_columns)]
        of_partitions = rows.select(self.target.columns.partitions)
        partitions = partitions_of(tree).with_rows(of_partitions)
        report(self.progress, Progress("plan", rows=keys.height))
        weights = frame_weights(keys, revision.hashed)
        cells = grid_columns(keys, revision)
        row_bytes = rows.estimated_size() / max(rows.height, 1)
        with thread_pool(2, rows=keys.height, calls=2) as pool:  # while this thread plans
            counted = pool.submit(design_effect, weights)
            coded = pool.submit(self._coded, revision)
            plan = plan_index(
                cells,
                revision,
                weights,
                existing=tree,
                file_rows=rows_per_file(row_bytes, max(self.target.table_rows, rows.height)),
                trees=partitions.numbers(of_partitions),
                keeps_cells=sum(column.nbytes for column in cells) <= _CELLS_SHARE * rows.estimated_size(),
            )
            effect = counted.result()
            settings, source = coded.result()
        if keys.height > sizing().chunk_rows:  # writing files needs the most memory
            give_back_memory()
        return WritePlan(
            file_count=plan.file_count,
            cube_count=len(plan.assignment.counts),
            design_effect=effect,
            keys=partial(_keys, plan, effect),
            write=partial(
                write_data_files,
                source,
                plan,
                settings=settings,
                writers=self.writers,
                progress=self.progress,
            ),
        )

    def _plan_unindexed(self) -> WritePlan:
        rows = self.in_memory_rows
        count = -(-rows.height // rows_per_file(rows.estimated_size() / max(rows.height, 1)))
        write = partial(write_plain, [rows], self.target, max_bytes=_ALL_BYTES)
        return unindexed_plan(write, file_count=count)

    def _coded(self, revision: Revision) -> tuple[FileSettings, CodedRows]:
        """Choose the encodings of the files, and encode columns of few values as numbers."""
        settings = FileSettings.of(self.target, self.in_memory_rows, revision.columns)
        return settings, CodedRows(self.in_memory_rows, settings)


def _keys(plan: IndexPlan, effect: float) -> KeySketch:
    total = KeyTotal()
    for number in range(plan.file_count):
        total.add(KeySketch.of(np.sort(plan.weights[plan.rows_of(number)])))
    return total.joined(effect * total.rows)


_MEMORY_VARIABLE: Final = "QBEAST_MEMORY_BYTES"

_HELD: Final = 2  # memory of a write of rows in memory, as a multiple of the rows, in addition to them
_READ: Final = 3  # the same with the rows, if they are read first
_ONE_CALL_BYTES: Final = 256 << 20


def budget_of(resources: Resources | None) -> Budget:
    """Return the memory that a call may use."""
    size, text = checked_resources(resources).memory_bytes, os.environ.get(_MEMORY_VARIABLE)
    if size is None and text:
        named = Resources(memory_bytes=bytes_of_text(text, argument=_MEMORY_VARIABLE))
        size = checked_resources(named).memory_bytes
    return Budget.of(size)


def local_engine(resources: Resources | None) -> closing[LocalEngine]:
    """Return the engine of a call, for a `with` block. The end of the block removes the temporary files."""
    chosen = checked_resources(resources)
    return closing(LocalEngine(chosen.engine, budget_of(chosen), spill_folder_of(chosen)))


# A source that can be read again, and the bytes of a row if its rows do not fit in memory.
_Readable: TypeAlias = tuple[Source, float | None]


class LocalEngine:
    """The engine of one call. Decides for each source whether its rows fit in memory; see `Engine`."""

    shares_memory = True

    def __init__(self, choice: EngineName, budget: Budget, spill_dir: str | os.PathLike[str] | None) -> None:
        self._choice, self.budget, self._spill_dir = choice, budget, spill_dir
        self._memory = MemoryEngine(budget.writers)
        self._spill: Spill | None = None
        self._decided: tuple[Source, _Readable] | None = None
        self._held_bytes = 0
        self.name: Literal["memory", "spill"] = "memory"
        self.spilled_bytes = 0

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """Load rows into memory, or read them in batches; see `Engine`."""
        # Decide once per source: some sources can be read only once.
        if self._decided is None or self._decided[0] is not source:
            self._decided = (source, self._decide(source))
        readable, row_bytes = self._decided[1]
        if row_bytes is None:
            return self._memory.open(readable, target, progress)
        self.name = "spill"
        return spill_rows(readable, target, self.spill, progress, row_bytes=row_bytes)

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """Call a function for each item, in as many threads as the budget allows; see `Engine`."""
        max_calls = max(self.free.memory_bytes // _ONE_CALL_BYTES, 1)
        return self._memory.map(call, items, at_once=min(at_once, max_calls))

    def has_room(self, size_bytes: int) -> bool:
        """Return whether this size fits the budget; see `Engine`."""
        return not self._spills(size_bytes)

    def take(self, source: Source, *, copies: int) -> Source:
        """Return a `FrameSource` if `copies` of the rows fit the budget, else a source that can be read again.

        The rows in a `FrameSource` stay until the call ends: other steps have less memory.
        """
        taken, row_bytes = self._decide(source, held=copies, read=copies)
        if isinstance(taken, FrameSource) and row_bytes is None:
            self._held_bytes = _HELD * int(taken.frame.estimated_size())
        else:
            self.name = "spill"
        return taken

    @property
    def free(self) -> Budget:
        """The budget without the rows that stay in memory until the call ends."""
        return replace(self.budget, memory_bytes=self.budget.memory_bytes - self._held_bytes)

    @property
    def spill(self) -> Spill:
        """The temporary files of rows that do not fit in memory."""
        if self._spill is None:
            LOG.info("rows need more than %d bytes of memory: using temporary files", self.free.memory_bytes)
            self._spill = Spill(SpillFolder(self._spill_dir), self.free, self._count)
        return self._spill

    def close(self) -> None:
        """Remove the temporary files."""
        if self._spill is not None:
            self._spill.folder.close()
            self._spill = None

    def report_progress(self, progress: ProgressCallback | None) -> ProgressCallback | None:
        """Return a callback that also reports the engine and the spilled bytes."""
        if progress is None:
            return None
        return lambda step: progress(replace(step, engine=self.name, spilled_bytes=self.spilled_bytes))

    def report(self, result: ResultT) -> ResultT:
        """Return the result with the engine and the spilled bytes."""
        return replace(result, engine=self.name, spilled_bytes=self.spilled_bytes)

    def _decide(self, source: Source, *, held: int = _HELD, read: int = _READ) -> _Readable:
        """Decide whether a multiple of the rows fits: `held` for rows in memory, `read` for rows to read."""
        match source:
            case FrameSource():
                size_bytes, rows = int(source.frame.estimated_size()), source.frame.height
                return source, size_bytes / max(rows, 1) if self._spills(held * size_bytes) else None
            case FilesSource():
                return self._decide_files(source)
            case _:
                return self._take(source, copies=read)

    def _decide_files(self, source: FilesSource) -> _Readable:
        """Decide for live files. The footers of files with texts are read: these may take any part of their size."""
        counts, sizes = rows_and_bytes(source)
        size_bytes = int(sizes.sum()) + source.added.size_bytes
        row_bytes = size_bytes / max(int(counts.sum()) + source.added.height, 1)
        return source, row_bytes if self._spills(_READ * size_bytes) else None

    def _spills(self, needed_bytes: int) -> bool:
        if self._choice == "auto":
            return needed_bytes > self.free.memory_bytes
        return self._choice == "spill"

    def _take(self, source: Source, *, copies: int) -> _Readable:
        """Read batches into memory. If they do not fit, return a source that can be read again."""
        batches = source.batches(None, size_bytes=self.budget.batch_bytes)
        frames: list[pl.DataFrame] = []
        size_bytes = 0
        for batch in batches:
            frames.append(batch)
            size_bytes += int(batch.estimated_size())
            if self._spills(copies * size_bytes):
                break
        else:
            if self._choice != "spill":
                return FrameSource(pl.concat([source.empty, *frames], rechunk=False)), None
        row_bytes = size_bytes / max(sum(batch.height for batch in frames), 1)
        if isinstance(source, OneShotSource):
            spill = self.spill
            rows = chain(drain(frames), batches)
            source = spool(rows, source.empty, spill.folder, spill.report)
        return source, row_bytes

    def _count(self, size_bytes: int) -> None:
        self.spilled_bytes += size_bytes
