"""Rows that do not fit in memory: read twice, sorted with temporary files, written file by file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import polars as pl

from qbeast_core.io.encode import refuse_huge_values
from qbeast_core.log.actions import AddFile
from qbeast_core.space.values import U64Array, distinct
from qbeast_core.support.process import Progress, ProgressCallback, report
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import FileSettings, delete_data_files
from qbeast_core.table.data.frames import has_any_width
from qbeast_core.table.engine.budget import Budget
from qbeast_core.table.engine.distributed import DistributedRows
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.table.engine.interfaces import Rows, Source
from qbeast_core.table.engine.spill.spill_files import (
    FAST,
    PLAIN,
    PlacedBatch,
    SpilledRange,
    SpilledRows,
    SpillWriter,
    by_range,
    identity,
    map_ahead,
    sampled,
)
from qbeast_core.table.engine.spill.spill_folder import SpillFolder
from qbeast_core.table.engine.tasks.passes import PlaceTask, SummaryTask
from qbeast_core.table.engine.tasks.placed_files import PlacedFile, RowsOfFile, rows_of_files, store_placed
from qbeast_core.table.engine.tasks.store_files import PlainTask, settings_for
from qbeast_core.tree.summary import IndexSummary, merge_summaries

BatchT = TypeVar("BatchT")

_MAX_OPEN: Final = 256
_MIN_BUFFER_BYTES: Final = 1 << 12
_MAX_BUFFER_BYTES: Final = 1 << 18
_OFFSET_BYTES: Final = 8  # per text, in addition to its characters
_KEY_BYTES: Final = 8
_SAMPLED_ROWS: Final = 1 << 14
_FILLED: Final = 0.8  # target share of what a writer may load, because parts differ in size


class Spill:
    """Temporary files and the memory budget for rows that do not fit in memory."""

    def __init__(self, folder: SpillFolder, budget: Budget, report: Callable[[int], None]) -> None:
        self.folder, self.budget, self.report = folder, budget, report

    def part_count(self, size_bytes: int) -> int:
        """Return the number of parts to split rows into so that a writer can load each, at most `max_open`."""
        parts = -(-size_bytes // int(self.budget.load_bytes * _FILLED))
        return min(max(parts, 2), self.max_open)

    @property
    def max_open(self) -> int:
        """Maximum number of files that are open at once."""
        return max(min(_MAX_OPEN, self.budget.batch_bytes // sizing().min_slice_bytes), 2)

    def scatter(
        self,
        batches: Iterable[BatchT],
        placed: Callable[[BatchT], PlacedBatch],
        starts: U64Array,
        schema: pl.Schema,
        *,
        packed: bool,
        at_once: int = 1,
    ) -> list[SpilledRange]:
        """Partition rows into temporary files. Each holds the rows of one or more of the data files of `starts`."""
        groups = np.array_split(starts, min(self.max_open, len(starts)))
        firsts = np.array([group[0] for group in groups[1:]], np.uint64)
        size = self.budget.batch_bytes // len(groups)
        size = min(max(size, _MIN_BUFFER_BYTES), _MAX_BUFFER_BYTES)
        paths = [self.folder.new_path() for _ in groups]
        sizes = [0.0] * len(groups)
        with ExitStack() as stack:
            options = FAST if packed else PLAIN
            writers = [
                stack.enter_context(SpillWriter(self.folder, path, self.report, options, size))
                for path in paths
            ]
            sorting = map_ahead(lambda batch: by_range(placed(batch), firsts), batches, at_once=at_once)
            for batch, ends in stack.enter_context(closing(sorting)):
                # Estimate the size of a slice from the batch: computing it takes longer than writing the slice.
                row_bytes = batch.nbytes / max(batch.num_rows, 1)
                for number, (first, end) in enumerate(pairwise(ends)):
                    if first < end:
                        sizes[number] += (end - first) * row_bytes
                        writers[number].write(batch.slice(first, end - first))
        return [
            SpilledRange(self.folder, path, group, schema, int(size))
            for path, group, size in zip(paths, groups, sizes, strict=True)
            if size
        ]


def spilled_rows(
    stream: Source, target: FileTarget, spill: Spill, progress: ProgressCallback | None, *, row_bytes: float
) -> Rows:
    """Return the rows of a source, to be moved through temporary files."""
    texts = sum(map(has_any_width, target.shape.schema.dtypes()))
    spilled_row_bytes = row_bytes + _OFFSET_BYTES * texts + _KEY_BYTES
    max_rows = max(int(spill.budget.load_bytes * _FILLED / spilled_row_bytes), sizing().min_part_rows)
    workers = _Threads(stream, target, spill, progress, row_bytes)
    return DistributedRows(workers, target, progress, row_bytes=row_bytes, max_file_rows=max_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Threads:
    """Threads of this process; see `qbeast_core.table.engine.distributed.Workers`."""

    stream: Source
    target: FileTarget
    spill: Spill
    progress: ProgressCallback | None
    row_bytes: float

    @property
    def advice(self) -> str:
        return "Rows are read twice: pass rows that are the same each time, or an iterator, whose rows are stored."

    def count(self) -> int:
        names, size_bytes = self.stream.empty.columns[:1], self.spill.budget.batch_bytes
        return sum(batch.height for batch in self.stream.batches(names, size_bytes=size_bytes))

    def write_plain(self, target: FileTarget) -> Sequence[AddFile]:
        budget = self.spill.budget
        report(self.progress, Progress("write"))
        batches = self.stream.batches(None, size_bytes=budget.batch_bytes)
        return PlainTask(target=target, max_bytes=budget.load_bytes).write(batches)

    def summarise(self, task: SummaryTask) -> IndexSummary:
        budget = self.spill.budget
        limits = budget.sample
        task = replace(task, limits=limits)
        schema = task.read_schema
        names = list(schema)
        indexed = self.target.shape.of_columns(names)

        def summary(numbered: tuple[int, pl.DataFrame]) -> IndexSummary:
            first_row, batch = numbered
            return task.summarise(indexed.fit(batch).select(names), first_row=first_row)

        columns = self.stream.empty.columns
        read = [name for name in indexed.schema if name in columns] or columns[:1]
        batches = self.stream.batches(read, size_bytes=budget.batch_bytes)
        total = task.summarise(schema.to_frame(), first_row=0)
        waiting: list[IndexSummary] = []
        for part in map_ahead(summary, _numbered(batches), at_once=budget.cores):
            waiting.append(part.below(total.key_limit))
            if sum(summary.sampled_rows for summary in waiting) > limits.rows:
                total, waiting = merge_summaries([total, *waiting], limits=limits), []
        return merge_summaries([total, *waiting], limits=limits)

    def place(self, task: PlaceTask) -> Sequence[PlacedFile]:
        written: list[PlacedFile] = []
        try:
            if task.file_count:
                files, ranges = self._scatter(task, written)
                with closing(map_ahead(files.write, ranges, at_once=self.spill.budget.writers)) as writing:
                    for _ in writing:
                        total = max(task.file_count, len(written))
                        report(self.progress, Progress("write", len(written), total, task.rows))
        except BaseException:  # also after an interrupt or a panic of Rust
            delete_data_files(task.target.store, [file.add for file in written])
            raise
        return written

    def _scatter(self, task: PlaceTask, written: list[PlacedFile]) -> tuple[_Files, list[SpilledRange]]:
        is_spooled = isinstance(self.stream, SpilledRows)  # the rows are on disk already: compress the copy
        sample: list[bytes] = []
        budget = self.spill.budget
        batches = self.stream.batches(None, size_bytes=budget.batch_bytes)
        ranges = self.spill.scatter(
            sampled(batches, sample, total=task.rows, rows=self._sampled_rows),
            partial(_placed, task),
            task.file_starts,
            task.target.shape.schema,
            packed=is_spooled,
            at_once=budget.cores if self.row_bytes < budget.batch_bytes else 1,
        )
        rows = task.target.shape.fit(pl.concat([*map(pl.read_ipc, sample)] or [self.stream.empty]))
        size_bytes = int(task.rows * self.row_bytes)
        settings = settings_for(task.target, rows, task.revision.columns, size_bytes=size_bytes)
        return _Files(task, self.spill, settings, written, is_spooled), ranges

    @property
    def _sampled_rows(self) -> int:
        """Number of rows to sample to choose the encodings of files, limited by memory."""
        max_rows = int(self.spill.budget.sample.size_bytes / max(self.row_bytes, 1.0))
        return max(min(_SAMPLED_ROWS, max_rows), 1)


def _placed(task: PlaceTask, batch: pl.DataFrame) -> PlacedBatch:
    rows = task.select(task.target.shape.fit(batch))
    refuse_huge_values(rows)
    return PlacedBatch(rows, task.place(rows))


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """Writes data files of spilled rows. Appends them to `written` in any order."""

    task: PlaceTask
    spill: Spill
    settings: FileSettings
    written: list[PlacedFile]
    packed: bool

    def write(self, part: SpilledRange) -> None:
        """Write the files of a range, then delete it. A range that does not fit in memory is split first."""
        max_bytes = self.spill.budget.load_bytes
        if part.size_bytes <= max_bytes:
            self._write(part, size_bytes=None)
            return
        starts = part.starts if len(part.starts) > 1 else _cut(part, self.spill.part_count(part.size_bytes))
        if len(starts) == 1:  # all sort keys are equal: any split is in order
            self._write(part, size_bytes=int(max_bytes * _FILLED))
        else:
            batches = part.batches(size_bytes=self.spill.budget.batch_bytes)
            smaller = self.spill.scatter(batches, identity, starts, part.schema, packed=self.packed)
            part.delete()
            for piece in smaller:
                self.write(piece)

    def _write(self, part: SpilledRange, *, size_bytes: int | None) -> None:
        """Write the files of a range, in parts of `size_bytes` or at once. Frees the rows of each file early."""
        ordered: list[RowsOfFile] = []
        for rows in part.loads(size_bytes=size_bytes):
            numbers = np.searchsorted(part.starts[1:], rows.keys, side="right")
            for number in distinct(numbers).tolist():
                places = np.flatnonzero(numbers == number)
                ordered += rows_of_files(self.task, rows.take, rows.keys, places)
            del rows
            while ordered:
                self.written.append(store_placed(self.task, ordered.pop(0), settings=self.settings))
        part.delete()


def _cut(part: SpilledRange, pieces: int) -> U64Array:
    """Return the sort keys that split the rows of one file into about equal pieces. Equal keys are not split."""
    keys = np.sort(part.keys())
    cuts = distinct(keys[[len(keys) * i // pieces for i in range(1, pieces)]])
    cuts = cuts[cuts > keys[0]]
    if not len(cuts):  # most keys are equal to the lowest one: split it off
        cuts = keys[keys > keys[0]][:1]
    return np.concatenate([part.starts[:1], cuts])


def _numbered(batches: Iterable[pl.DataFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield each batch with the number of its first row."""
    first_row = 0
    for batch in batches:
        yield first_row, batch
        first_row += batch.height
