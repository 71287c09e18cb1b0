"""An odd engine: parts are summarised and written apart, through bytes, in any order; no operation may mind."""

from __future__ import annotations

import pickle  # what a worker is sent
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.table.engine.distributed import DistributedRows
from qbeast_core.table.engine.live_files import read_files
from qbeast_core.table.engine.protocol import FilesSource
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.table.engine.tasks.passes import PlaceTask, SummaryTask
from qbeast_core.table.engine.tasks.placed_files import PlacedFile, write_file
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.write import WriteResult, write_rows
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.summary import DOMAIN_LIMITS, IndexSummary, SampleLimits, merge_summaries, summarise

Place = Callable[[PlaceTask, Sequence[pl.DataFrame]], Sequence[PlacedFile]]


@dataclass(frozen=True)
class PartsSource:
    """Rows in parts of which each worker sees one."""

    parts: Sequence[pl.DataFrame]

    @property
    def empty(self) -> pl.DataFrame:
        return self.parts[0].clear()


@dataclass(frozen=True)
class PartsEngine:
    """Workers without a cluster."""

    flush_rows: int = 1 << 40
    limits: SampleLimits = DOMAIN_LIMITS
    place: Place | None = None
    advice: str = "Read the parts again."

    part_rows: int = 1 << 40

    def open(self, source: PartsSource | FilesSource, target: FileTarget, progress: Any) -> DistributedRows:
        parts = self._read(source) if isinstance(source, FilesSource) else source.parts
        return DistributedRows(_PartsWorkers(parts, self), target, progress)

    def map(self, call: Callable[[Any], Any], items: Sequence[Any], *, at_once: int) -> list[Any]:
        """Call for each item twice, from the last to the first, through bytes; the first answers are lost."""
        del at_once
        answers = {}
        for number in [*reversed(range(len(items))), *range(len(items))]:
            answers[number] = sent(sent(call)(sent(items[number])))
        return [answers[number] for number in range(len(items))]

    def has_room(self, size_bytes: int) -> bool:
        return size_bytes > 0

    def _read(self, source: FilesSource) -> list[pl.DataFrame]:
        """Read files from the last to the first, and change their rows in parts."""
        read = [read_files(source.reader, source.numbers[n : n + 1]) for n in range(len(source.numbers))]
        frames = read[::-1]
        change = source.change or (lambda rows: rows)
        parts = [change(part) for frame in frames for part in frame.iter_slices(self.part_rows)]
        return [*parts, source.empty if source.added is None else source.added]


@dataclass(frozen=True)
class _PartsWorkers:
    parts: Sequence[pl.DataFrame]
    engine: PartsEngine

    @property
    def advice(self) -> str:
        return self.engine.advice

    def summarise(self, task: SummaryTask) -> IndexSummary:
        return summarise_parts(task.schema, self.parts, limits=self.engine.limits)

    def place(self, task: PlaceTask) -> Sequence[PlacedFile]:
        if self.engine.place is not None:
            return self.engine.place(task, self.parts)
        return write_parts(sent(task), self.parts, flush_rows=self.engine.flush_rows)


def scatter(
    path: Path,
    parts: Sequence[pl.DataFrame],
    *,
    flush_rows: int = 1 << 40,
    limits: SampleLimits = DOMAIN_LIMITS,
    place: Place | None = None,
    **options: Any,
) -> WriteResult:
    """Write the parts as workers would."""
    engine = PartsEngine(flush_rows, limits, place)
    return write_rows(PartsSource(parts), str(path), WriteOptions(**options), engine=engine)


def sent(value: Any) -> Any:
    """Return what a worker receives."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def summarise_parts(
    schema: pl.Schema, parts: Sequence[pl.DataFrame], *, limits: SampleLimits = DOMAIN_LIMITS
) -> IndexSummary:
    names = list(schema)
    fitted = [part.select(names).cast(dict(schema)) for part in parts]
    found = [
        summarise(part, names, first_row=number << 40, limits=limits) for number, part in enumerate(fitted)
    ]
    weights = [frame_weights(part, names) for part in fitted]
    total = sum(int(some.sum(dtype=np.int64)) for some in weights)
    return replace(merge_summaries(found, limits=limits), weight_sum=total)


def write_parts(
    task: PlaceTask, parts: Sequence[pl.DataFrame], *, flush_rows: int = 1 << 40
) -> list[PlacedFile]:
    shuffled: dict[int, list[Any]] = {}
    for part in parts:
        frame = task.fit(part.to_arrow())
        keys = task.place(frame)
        files = np.searchsorted(task.file_starts, keys, side="right") - 1
        assert len(files) == 0 or (files.min() >= 0 and files.max() < task.file_count)
        for number in np.unique(files).tolist():
            rows = np.flatnonzero(files == number)
            shuffled.setdefault(number, []).append((frame[pl.Series(rows)], keys[rows]))
    written = []
    for number in sorted(shuffled, reverse=True):
        held: list[Any] = []
        for one in shuffled[number]:
            held.append(one)
            if sum(len(keys) for _, keys in held) >= flush_rows:
                written += write_file(task, [f for f, _ in held], [k for _, k in held])
                held = []
        if held:
            written += write_file(task, [f for f, _ in held], [k for _, k in held])
    return [sent(file) for file in written]
