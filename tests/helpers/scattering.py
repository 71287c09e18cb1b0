"""A test engine that summarises and writes parts separately, through bytes, in any order."""

from __future__ import annotations

import pickle  # tasks are pickled for workers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.table.data.files import FileTarget
from qbeast_core.table.engine.distributed import DistributedRows
from qbeast_core.table.engine.engine import Source
from qbeast_core.table.engine.files import PlacedFile, PlaceTask, SummaryTask, write_file, write_plain
from qbeast_core.table.engine.row_change import NO_ROWS
from qbeast_core.table.engine.sources import FilesSource
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.write import WriteResult, write_rows
from qbeast_core.tree.summary import IndexSummary, SampleLimits, domain_limits, merge_summaries

Place = Callable[[PlaceTask, Sequence[pl.DataFrame]], Sequence[PlacedFile]]


@dataclass(frozen=True)
class PartsSource:
    """Rows in parts, one for each worker."""

    parts: Sequence[pl.DataFrame]

    @property
    def empty(self) -> pl.DataFrame:
        return self.parts[0].clear()

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        del size_bytes
        yield from (part if columns is None else part.select(columns) for part in self.parts)


@dataclass(frozen=True)
class PartsEngine:
    """Workers without a cluster."""

    flush_rows: int = 1 << 40
    limits: SampleLimits = field(default_factory=domain_limits)
    place: Place | None = None
    advice: str = "Read the parts again."

    part_rows: int = 1 << 40

    shares_memory = False

    def open(self, source: Source, target: FileTarget, progress: Any) -> DistributedRows:
        return DistributedRows(_PartsWorkers(source, self), target, progress)

    def map(self, call: Callable[[Any], Any], items: Sequence[Any], *, at_once: int) -> list[Any]:
        """Call the function twice for each item, through bytes; the first results are dropped."""
        del at_once
        answers = {}
        for number in [*reversed(range(len(items))), *range(len(items))]:
            answers[number] = sent(sent(call)(sent(items[number])))
        return [answers[number] for number in range(len(items))]

    def has_room(self, size_bytes: int) -> bool:
        return size_bytes > 0

    def read(self, source: Source) -> list[pl.DataFrame]:
        """Read files from the last to the first, and change their rows in parts."""
        if not isinstance(source, FilesSource):
            return list(source.batches(None, size_bytes=1 << 40))
        parts = [source.empty]
        for file in source.files[::-1].tolist():
            rows = replace(source, files=np.array([file]), change=None, added=NO_ROWS).read()
            change = (
                None if source.change is None else source.change.of_file(source.snapshot.data_paths[file])
            )
            parts += [part if change is None else change(part) for part in rows.iter_slices(self.part_rows)]
        return [*parts, *(rows.select(source.empty.columns) for rows in source.added.read())]


@dataclass(frozen=True)
class _PartsWorkers:
    source: Source
    engine: PartsEngine

    @property
    def advice(self) -> str:
        return self.engine.advice

    def count(self) -> int:
        return sum(part.height for part in self.engine.read(self.source))

    def write_plain(self, target: FileTarget) -> list[AddFile]:
        """Write each part by a task of its own."""
        target, parts = sent(target), self.engine.read(self.source)
        return [add for part in parts for add in write_plain([part], target, max_bytes=1 << 40)]

    def summarise(self, task: SummaryTask) -> IndexSummary:
        return summarise_parts(task, self.engine.read(self.source), limits=self.engine.limits)

    def place(self, task: PlaceTask) -> Sequence[PlacedFile]:
        parts = self.engine.read(self.source)
        if self.engine.place is not None:
            return self.engine.place(task, parts)
        return write_parts(sent(task), parts, flush_rows=self.engine.flush_rows)


def scatter(
    path: Path,
    parts: Sequence[pl.DataFrame],
    *,
    flush_rows: int = 1 << 40,
    limits: SampleLimits = domain_limits(),  # noqa: B008
    place: Place | None = None,
    **options: Any,
) -> WriteResult:
    """Write the parts like workers."""
    engine = PartsEngine(flush_rows, limits, place)
    return write_rows(PartsSource(parts), str(path), WriteOptions(**options), engine=engine)


def sent(value: Any) -> Any:
    """Return a value as a worker receives it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def summarise_parts(
    task: SummaryTask,
    parts: Sequence[pl.DataFrame],
    *,
    limits: SampleLimits = domain_limits(),  # noqa: B008
) -> IndexSummary:
    task = replace(task, limits=limits)
    names = list(task.read_schema)
    summaries = [
        task.summarise(part.select(names), first_row=number << 40) for number, part in enumerate(parts)
    ]
    return merge_summaries(summaries, limits=limits)


def write_parts(
    task: PlaceTask, parts: Sequence[pl.DataFrame], *, flush_rows: int = 1 << 40
) -> list[PlacedFile]:
    shuffled: dict[int, list[Any]] = {}
    for part in parts:
        frame = task.select(task.target.shape.fit(part.to_arrow()))
        keys = task.place(frame)
        files = np.searchsorted(task.file_starts, keys, side="right") - 1
        assert len(files) == 0 or (files.min() >= 0 and files.max() < task.file_count)
        for number in np.unique(files).tolist():
            rows = np.flatnonzero(files == number)
            shuffled.setdefault(number, []).append((frame[pl.Series(rows)], keys[rows]))
    written = []
    for number in sorted(shuffled, reverse=True):
        packs: list[Any] = []
        for pack in shuffled[number]:
            packs.append(pack)
            if sum(len(keys) for _, keys in packs) >= flush_rows:
                written += write_file(task, [f for f, _ in packs], [k for _, k in packs])
                packs = []
        if packs:
            written += write_file(task, [f for f, _ in packs], [k for _, k in packs])
    return [sent(file) for file in written]
