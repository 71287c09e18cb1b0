"""Who moves the rows of a call on this machine: memory where they fit, else temporary files."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Literal, TypeAlias, TypeVar, cast

import polars as pl

from qbeast_core.errors import refuse
from qbeast_core.logs import LOG
from qbeast_core.results import FilesResult
from qbeast_core.runtime import Progress, ProgressCallback
from qbeast_core.table.engine.budget import LEAST_BYTES, Budget, bytes_of_text
from qbeast_core.table.engine.live_files import rows_and_bytes
from qbeast_core.table.engine.memory import MemoryEngine
from qbeast_core.table.engine.protocol import AnswerT, FilesSource, FrameSource, ItemT, Rows, Source
from qbeast_core.table.engine.spill.files import spool
from qbeast_core.table.engine.spill.folder import SpillFolder
from qbeast_core.table.engine.spill.rows import Spill, spilled_rows
from qbeast_core.table.engine.stream import FilesStream, FrameStream, StreamSource, handed_over
from qbeast_core.table.engine.target import FileTarget

EngineName: TypeAlias = Literal["auto", "memory", "spill"]

_OUTCOME: Final = "nothing was written"
_MEMORY_VARIABLE: Final = "QBEAST_MEMORY_BYTES"
_FOLDER_VARIABLE: Final = "QBEAST_SPILL_DIR"

_HELD: Final = 2  # times the rows: what a write from memory takes besides them
_READ: Final = 3  # times the rows, which are read first
_UNPACKED: Final = 64  # times the bytes of files: values seldom take more
_ONE_CALL_BYTES: Final = 256 << 20

ResultT = TypeVar("ResultT", bound=FilesResult)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine a call asks for, as its arguments say."""

    # Memory while the estimated need fits the budget, or always, or never.
    engine: EngineName = "auto"
    # Budget; by default the environment's `QBEAST_MEMORY_BYTES`, or half of what the machine or its cgroup
    # has.
    memory_bytes: int | None = None
    # A folder for temporary files; by default the environment's `QBEAST_SPILL_DIR`, or the system's.
    spill_dir: str | os.PathLike[str] | None = None

    def budget(self, *, outcome: str = _OUTCOME) -> Budget:
        """Return the memory there is."""
        if self.engine not in ("auto", "memory", "spill"):
            what = 'must be "auto", "memory" or "spill"'
            refuse("engine", what, outcome, given=self.engine, known=("auto", "memory", "spill"))
        if not isinstance(cast("object", self.spill_dir), str | os.PathLike | None):
            refuse("spill_dir", "must be a folder", outcome, given=self.spill_dir)
        told = os.environ.get(_MEMORY_VARIABLE)
        size = cast("object", self.memory_bytes)  # callers without a type checker pass anything
        if size is None and told:
            size = bytes_of_text(told, argument=_MEMORY_VARIABLE, outcome=outcome)
        if size is None:
            return Budget.of()
        if isinstance(size, bool) or not isinstance(size, int) or size < LEAST_BYTES:
            what = f"must be a whole number of bytes, at least {LEAST_BYTES:,} (4 MiB)"
            refuse("memory_bytes", what, outcome, given=size)
        return Budget.of(size)

    @property
    def folder(self) -> str | os.PathLike[str] | None:
        """Where temporary files go; None: to the system's place for them."""
        return self.spill_dir if self.spill_dir is not None else os.environ.get(_FOLDER_VARIABLE) or None

    @contextmanager
    def opened(self) -> Generator[LocalEngine]:
        """Give the engine; its temporary files are gone afterwards, however the call ends."""
        engine = LocalEngine(self.engine, self.budget(), self.folder)
        try:
            yield engine
        finally:
            engine.close()


class LocalEngine:
    """The engine of one call: decides for each source whether its rows fit in memory; see `Engine`."""

    def __init__(self, choice: EngineName, budget: Budget, spill_dir: str | os.PathLike[str] | None) -> None:
        self._choice, self._budget, self._spill_dir = choice, budget, spill_dir
        self._memory = MemoryEngine(budget.writers)
        self._spill: Spill | None = None
        self._known: tuple[Source, _Repeatable] | None = None
        self.name: Literal["memory", "spill"] = "memory"
        self.spilled_bytes = 0

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """Take rows into this process, or read them batch by batch; see `Engine`."""
        rows = self._repeatable(source)
        if rows.stream is None:
            return self._memory.open(rows.source, target, progress)
        self.name = "spill"
        return spilled_rows(rows.stream, target, self.spill, progress, row_bytes=rows.row_bytes)

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """Call a function for each item, in as many threads as the budget has room for; see `Engine`."""
        most = max(self._budget.memory_bytes // _ONE_CALL_BYTES, 1)
        return self._memory.map(call, items, at_once=min(at_once, most))

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether so many bytes fit the budget; see `Engine`."""
        return not self._spills(size_bytes)

    def taken(self, source: Source, *, copies: int) -> FrameSource | StreamSource:
        """Return rows in memory where so many copies of them fit the budget; else what reads them again and again."""
        if isinstance(source, FrameSource):
            fits = not self._spills(copies * int(source.frame.estimated_size()))
            taken: Source = source if fits else FrameStream(source.frame)
        else:
            taken = self._taken(cast("StreamSource", source), copies=copies).source
        if isinstance(taken, FrameSource):
            return taken
        self.name = "spill"
        return cast("StreamSource", taken)

    @property
    def budget(self) -> Budget:
        """The memory there is."""
        return self._budget

    @property
    def spill(self) -> Spill:
        """What rows are moved by that do not fit in memory."""
        if self._spill is None:
            most = self._budget.memory_bytes
            LOG.info("rows take more than %d bytes of memory: they go through temporary files", most)
            self._spill = Spill(SpillFolder(self._spill_dir), self._budget, self._count)
        return self._spill

    def close(self) -> None:
        """Remove what was spilled."""
        if self._spill is not None:
            self._spill.folder.close()
            self._spill = None

    def telling(self, progress: ProgressCallback | None) -> ProgressCallback | None:
        """Return a callback that also says which engine it is, and how much was spilled."""
        if progress is None:
            return None

        def tell(step: Progress) -> None:
            progress(replace(step, engine=self.name, spilled_bytes=self.spilled_bytes))

        return tell

    def told(self, result: ResultT) -> ResultT:
        """Return a result that says which engine it was, and how much was spilled."""
        return replace(result, engine=self.name, spilled_bytes=self.spilled_bytes)

    def _repeatable(self, source: Source) -> _Repeatable:
        """Find out how large a source is, once for each; keep one that can be read once."""
        if self._known is None or self._known[0] is not source:
            self._known = (source, self._decided(source))
        return self._known[1]

    def _decided(self, source: Source) -> _Repeatable:
        match source:
            case FrameSource():
                size_bytes, rows = int(source.frame.estimated_size()), source.frame.height
                stream: StreamSource = FrameStream(source.frame)
                needed = _HELD * size_bytes
            case FilesSource():
                return self._files(source)
            case _ if hasattr(source, "batches"):
                return self._taken(cast("StreamSource", source))
            case _:
                return _Repeatable(source)
        if not self._spills(needed):
            return _Repeatable(source)
        return _Repeatable(source, stream, size_bytes / max(rows, 1))

    def _files(self, source: FilesSource) -> _Repeatable:
        """Decide about live files; few are not even asked how large their values are."""
        stored = source.reader.snapshot.files["size_bytes"].to_numpy()[source.numbers].sum()
        added = source.empty if source.added is None else source.added
        added_bytes = int(added.estimated_size())
        if not self._spills(int(stored) * _UNPACKED + _READ * added_bytes):
            return _Repeatable(source)
        counts, sizes = rows_and_bytes(source.reader, source.numbers)
        size_bytes = int(sizes.sum()) + added_bytes
        if not self._spills(_READ * size_bytes):  # then there is room for all of them at once
            return _Repeatable(replace(source, group_bytes=max(source.group_bytes, size_bytes)))
        row_bytes = size_bytes / max(int(counts.sum()) + added.height, 1)
        return _Repeatable(source, FilesStream(source), row_bytes)

    def _spills(self, needed_bytes: int) -> bool:
        if self._choice == "auto":
            return needed_bytes > self._budget.memory_bytes
        return self._choice == "spill"

    def _taken(self, stream: StreamSource, *, copies: int = _READ) -> _Repeatable:
        """Hold the rows of a stream, or where they are too many be able to read them again."""
        batches = stream.batches(None, size_bytes=self._budget.batch_bytes)
        held: list[pl.DataFrame] = []
        size_bytes = 0
        for batch in batches:
            held.append(batch)
            size_bytes += int(batch.estimated_size())
            if self._spills(copies * size_bytes):
                break
        else:
            if self._choice != "spill":
                return _Repeatable(FrameSource(pl.concat([stream.empty, *held], rechunk=False)))
        row_bytes = size_bytes / max(sum(batch.height for batch in held), 1)
        if stream.is_one_shot:
            spill = self.spill
            rows = chain(handed_over(held), batches)
            stream = spool(rows, stream.empty, spill.folder, spill.report)
        return _Repeatable(stream, stream, row_bytes)

    def _count(self, size_bytes: int) -> None:
        self.spilled_bytes += size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Repeatable:
    """Rows that can be read again: in memory, unless there is a stream of them."""

    source: Source
    stream: StreamSource | None = None
    row_bytes: float = 0.0
