"""Rows that this process reads, places and writes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import numpy as np
import polars as pl

from qbeast_core.errors import InputChangedError, InvalidInputError
from qbeast_core.io.machine import give_back_memory
from qbeast_core.log.actions import AddFile
from qbeast_core.runtime import Progress, ProgressCallback
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import CodedRows, FileSettings, write_data_files
from qbeast_core.table.engine.budget import Budget
from qbeast_core.table.engine.live_files import read_files, rows_and_bytes
from qbeast_core.table.engine.protocol import (
    AnswerT,
    FilesSource,
    FrameSource,
    ItemT,
    PlannedRows,
    Rows,
    Source,
)
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.table.engine.tasks.row_change import ChangeByFile
from qbeast_core.table.engine.tasks.stored_rows import frames_of
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.key_sketch import KeySketch
from qbeast_core.tree.key_total import KeyTotal
from qbeast_core.tree.pack import rows_per_file
from qbeast_core.tree.parallel import CHUNK_ROWS, workers
from qbeast_core.tree.plan import IndexPlan, plan_index
from qbeast_core.tree.plan_part import plan_parts
from qbeast_core.tree.summary import IndexSummary, summarise

_CHUNKS: Final = 4

_Coded = tuple[FileSettings, CodedRows]


class MemoryEngine:
    """The engine of one process: rows are held, or where files hold too many, read again a few at a time."""

    def __init__(self, writers: int | None = None) -> None:
        self._writers = writers

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """Take rows into this process; see `Engine`."""
        match source:
            case FrameSource():
                rows: _Held = _FrameRows(target.shape.fit(source.frame))
            case FilesSource():
                rows = FileRows(source)
            case _:
                msg = f"{type(source).__name__} is no source of rows for one process; nothing was written"
                raise InvalidInputError(msg, argument="source")
        writers = Budget.of().writers if self._writers is None else self._writers
        return _Rows(rows, target, progress, writers=writers)

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """Call a function for each item, in threads of this process; see `Engine`."""
        if at_once == 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(call, items))

    def has_room(self, size_bytes: int) -> bool:
        """Everything is held here; see `Engine`."""
        del size_bytes
        return True


# The engine that operations use unless they are told another one.
MEMORY: Final = MemoryEngine()


class _Held(Protocol):
    """Rows in an order that never changes."""

    @property
    def held(self) -> pl.DataFrame | None:
        """All rows; None: they are too many."""
        ...

    @property
    def row_bytes(self) -> float:
        """Bytes of a row in memory."""
        ...

    @property
    def group_rows(self) -> int:
        """Rows that may be held at once."""
        ...

    def keys(self, names: Sequence[str]) -> pl.DataFrame:
        """Return some columns of all rows."""
        ...

    def take(self, numbers: I64Array, total: int) -> pl.DataFrame:
        """Return some rows by their places among all `total`, ascending."""
        ...


class _FrameRows:
    """The rows of a frame."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.held: pl.DataFrame | None = frame
        self._frame = frame
        self.row_bytes: float = frame.estimated_size() / max(frame.height, 1)
        self.group_rows = max(frame.height, 1)

    def keys(self, names: Sequence[str]) -> pl.DataFrame:
        return self._frame[list(names)]

    def take(self, numbers: I64Array, total: int) -> pl.DataFrame:
        del total
        return self._frame[numbers]


class _Rows:
    def __init__(
        self,
        rows: _Held,
        target: FileTarget,
        progress: ProgressCallback | None,
        *,
        writers: int,
    ) -> None:
        self.rows, self.target, self.progress = rows, target, progress
        self.writers = writers

    @property
    def at_hand(self) -> pl.DataFrame:
        return self.target.shape.schema.to_frame() if self.rows.held is None else self.rows.held

    def summary(self, names: Sequence[str], *, cube_size: int | None = None) -> IndexSummary:
        del cube_size  # every row is looked at
        return summarise(self.rows.keys(names), names)

    def plan(self, revision: Revision, tree: ExistingTree | None) -> PlannedRows:
        keys = self.rows.keys(revision.columns)
        if self.progress is not None:
            self.progress(Progress("plan", rows=keys.height))
        weights = frame_weights(keys, revision.columns)
        with workers(2, rows=keys.height, calls=2) as aside:  # while the plan is made
            effect = aside.submit(design_effect, weights)
            held = self.rows.held
            trial = None if held is None else aside.submit(self.coded, held, revision)
            plan = plan_index(
                keys, revision, weights, existing=tree, file_rows=rows_per_file(self.rows.row_bytes)
            )
            found = _Plan(self, plan, effect.result(), None if trial is None else trial.result())
        if keys.height > CHUNK_ROWS:  # files are written next, which takes more memory than anything else
            give_back_memory()
        return found

    def coded(self, rows: pl.DataFrame, revision: Revision) -> _Coded:
        """Choose how files of such rows are encoded, and put columns of few values into numbers."""
        target = self.target
        settings = FileSettings.of(rows, revision.columns, target.configuration, dialect=target.dialect)
        return settings, CodedRows(rows, settings)


class _Plan:
    def __init__(self, rows: _Rows, plan: IndexPlan, effect: float, coded: _Coded | None) -> None:
        self._rows, self._plan, self._coded = rows, plan, coded
        self.design_effect = effect

    @property
    def file_count(self) -> int:
        return self._plan.file_count

    @property
    def block_count(self) -> int:
        return len(self._plan.packed.block_cube)

    @property
    def cube_count(self) -> int:
        return len(self._plan.thresholds)

    def keys(self) -> KeySketch:
        total = KeyTotal()
        for number in range(self.file_count):
            total.add(KeySketch.of(self._plan.file(number).weights))
        return total.joined(self.design_effect * total.rows)

    def write(self) -> Iterator[Sequence[AddFile]]:
        rows = self._rows.rows
        if self._coded is not None:
            yield self._write(self._coded, self._plan)
            return
        total = len(self._plan.weights)
        for places, part in plan_parts(self._plan, most_rows=rows.group_rows):
            yield self._write(self._rows.coded(rows.take(places, total), part.revision), part)

    def _write(self, coded: _Coded, plan: IndexPlan) -> list[AddFile]:
        settings, source = coded
        return write_data_files(
            source,
            plan,
            store=self._rows.target.store,
            settings=settings,
            writers=self._rows.writers,
            progress=self._rows.progress,
        )


class FileRows:
    """The rows of files that are taken out, with what becomes of them, in an order that never changes.

    Rows that take less than `group_bytes` are read once and held; others are read again whenever they are
    asked for, a few files at a time.
    """

    def __init__(self, source: FilesSource) -> None:
        reader, numbers = source.reader, source.numbers
        self._reader, self._change, self._added = reader, source.change, source.added
        rows, sizes = rows_and_bytes(reader, numbers)
        row_bytes = max(int(sizes.sum()) // max(int(rows.sum()), 1), 1)
        self.group_rows = max(source.group_bytes // row_bytes, 1)
        """Rows that fit into a group."""
        chunk = source.group_bytes
        if sizes.sum() > chunk:
            chunk = max(chunk // _CHUNKS, 1)
        cuts = np.flatnonzero(np.diff(np.maximum(np.cumsum(sizes) - 1, 0) // chunk)) + 1
        self._chunks: list[I64Array] = np.split(numbers, cuts)
        self.held = next(iter(self._frames()), None) if len(self._chunks) == 1 else None
        """All rows; None: they are too many."""
        self.row_bytes = float(row_bytes)
        if self.held is not None and self.held.height:
            self.row_bytes = self.held.estimated_size() / self.held.height

    def keys(self, names: Sequence[str]) -> pl.DataFrame:
        """Return some columns of all rows."""
        if self.held is not None:
            return self.held.select(names)
        return pl.concat(self._frames(names))

    def take(self, numbers: I64Array, total: int) -> pl.DataFrame:
        """Return some rows."""
        parts: list[pl.DataFrame] = []
        start = 0
        for frame in self._frames():
            first, last = np.searchsorted(numbers, [start, start + frame.height]).tolist()
            parts.append(frame[numbers[first:last] - start])
            start += frame.height
        if start != total:
            msg = f"rows to rewrite were {total} at first and {start} later; nothing was changed"
            raise InputChangedError(msg, rows_before=total, rows_after=start)
        return pl.concat(parts)

    def _frames(self, names: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """Yield all rows, in one frame where they are few."""
        for number, chunk in enumerate(self._chunks):
            rows = self._changed(chunk, names)
            if self._added is not None and number == len(self._chunks) - 1:
                rows = pl.concat([rows, *(some.select(rows.columns) for some in frames_of(self._added))])
            yield rows if names is None else rows.select(names)

    def _changed(self, numbers: I64Array, names: Sequence[str] | None) -> pl.DataFrame:
        """Read files, some columns where rows stay as they are, and change their rows."""
        change = self._change
        if not isinstance(change, ChangeByFile):
            rows = read_files(self._reader, numbers, names if change is None else None)
            return rows if change is None else change(rows)
        parts = [read_files(self._reader, numbers[:0])]
        for number in range(len(numbers)):
            rows = read_files(self._reader, numbers[number : number + 1])
            own = change.of_file(self._reader.paths[int(numbers[number])])
            parts.append(rows if own is None else own(rows))
        return pl.concat(parts)
