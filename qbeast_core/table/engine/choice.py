"""The engine of one machine: keeps rows in memory if they fit, else uses temporary files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Literal, cast, get_args

import polars as pl

from qbeast_core.errors import check_choice, invalid_argument
from qbeast_core.support.process import (
    LOG,
    EngineName,
    ProgressCallback,
    Resources,
    combined,
    spill_folder_of,
)
from qbeast_core.table.engine.budget import MIN_MEMORY_BYTES, Budget, bytes_of_text
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.table.engine.files_source import FilesSource, rows_and_bytes
from qbeast_core.table.engine.interfaces import AnswerT, ItemT, ResultT, Rows, Source
from qbeast_core.table.engine.memory import MemoryEngine
from qbeast_core.table.engine.row_sources import FrameSource, OneShotSource, drain
from qbeast_core.table.engine.spill.spill_files import spool
from qbeast_core.table.engine.spill.spill_folder import SpillFolder
from qbeast_core.table.engine.spill.spilled_rows import Spill, spilled_rows

_MEMORY_VARIABLE: Final = "QBEAST_MEMORY_BYTES"

_HELD: Final = 2  # memory of a write of rows in memory, as a multiple of the rows, in addition to them
_READ: Final = 3  # the same with the rows, if they are read first
_ONE_CALL_BYTES: Final = 256 << 20


def budget_of(resources: Resources) -> Budget:
    """Return the memory that a call may use."""
    check_choice("engine", resources.engine, get_args(EngineName))
    if not isinstance(cast("object", resources.spill_dir), str | os.PathLike | None):
        invalid_argument("spill_dir", "must be a folder", value=resources.spill_dir)
    text = os.environ.get(_MEMORY_VARIABLE)
    size = cast("object", resources.memory_bytes)  # callers without a type checker pass anything
    if size is None and text:
        size = bytes_of_text(text, argument=_MEMORY_VARIABLE)
    if size is None:
        return Budget.of()
    if isinstance(size, bool) or not isinstance(size, int) or size < MIN_MEMORY_BYTES:
        problem = f"must be a whole number of bytes, at least {MIN_MEMORY_BYTES:,} (4 MiB)"
        invalid_argument("memory_bytes", problem, value=size)
    return Budget.of(size)


def local_engine(
    resources: Resources | None,
    memory_bytes: int | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> closing[LocalEngine]:
    """Return the engine of a call, for a `with` block. The end of the block removes the temporary files."""
    chosen = combined(resources, memory_bytes, spill_dir)
    return closing(LocalEngine(chosen.engine, budget_of(chosen), spill_folder_of(chosen)))


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
        rows = self._decided[1]
        if rows.fits:
            return self._memory.open(rows.source, target, progress)
        self.name = "spill"
        return spilled_rows(rows.source, target, self.spill, progress, row_bytes=rows.row_bytes)

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
        rows = self._decide(source, held=copies, read=copies)
        if isinstance(rows.source, FrameSource) and rows.fits:
            self._held_bytes = _HELD * int(rows.source.frame.estimated_size())
        else:
            self.name = "spill"
        return rows.source

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
                return _Readable(source, not self._spills(held * size_bytes), size_bytes / max(rows, 1))
            case FilesSource():
                return self._decide_files(source)
            case _:
                return self._take(source, copies=read)

    def _decide_files(self, source: FilesSource) -> _Readable:
        """Decide for live files. The footers of files with texts are read: these may take any part of their size."""
        counts, sizes = rows_and_bytes(source)
        size_bytes = int(sizes.sum()) + source.added.size_bytes
        row_bytes = size_bytes / max(int(counts.sum()) + source.added.height, 1)
        return _Readable(source, not self._spills(_READ * size_bytes), row_bytes)

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
                return _Readable(FrameSource(pl.concat([source.empty, *frames], rechunk=False)))
        row_bytes = size_bytes / max(sum(batch.height for batch in frames), 1)
        if isinstance(source, OneShotSource):
            spill = self.spill
            rows = chain(drain(frames), batches)
            source = spool(rows, source.empty, spill.folder, spill.report)
        return _Readable(source, fits=False, row_bytes=row_bytes)

    def _count(self, size_bytes: int) -> None:
        self.spilled_bytes += size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Readable:
    """A source that can be read again, and whether its rows fit in memory."""

    source: Source
    fits: bool = True
    row_bytes: float = 0.0
