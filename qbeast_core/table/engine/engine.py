"""The engine protocol: sources, engines, placed rows, and the budget of memory.

Rows come from a source, are summarised, placed by a plan, written to files, and published by one commit. Operations
depend on these protocols only. Engines do not depend on operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.machine import memory_of_machine
from qbeast_core.log.actions import AddFile
from qbeast_core.results import FilesResult
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import ProgressCallback
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import FileTarget
from qbeast_core.table.data.frames import has_any_width
from qbeast_core.tree.build import ExistingTree
from qbeast_core.tree.keys import KeySketch
from qbeast_core.tree.summary import IndexSummary, SampleLimits, domain_limits

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")
ResultT = TypeVar("ResultT", bound=FilesResult)


class Source(Protocol):
    """Rows in a fixed order. They can be read again, except those of a `OneShotSource`."""

    @property
    def empty(self) -> pl.DataFrame:
        """Frame without rows, with the columns and types of the source."""
        ...

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """Yield all rows in frames of about this size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WritePlan:
    """Rows with a plan of their places."""

    # Number of files to write.
    file_count: int
    # Number of cubes with rows. With workers: the number of cubes with sampled rows.
    cube_count: int
    # Design effect of these rows only, at least 1.0.
    design_effect: float
    # Returns how often index keys repeat in the rows, or with workers in their sample.
    keys: Callable[[], KeySketch]
    # Writes the files and returns them with their blocks. They are invisible until a commit names them.
    write: Callable[[], Sequence[AddFile]]


def unindexed_plan(write: Callable[[], Sequence[AddFile]], *, file_count: int = 0) -> WritePlan:
    """Return the plan of rows that are written without an index. The number of files may be unknown, 0."""
    return WritePlan(
        file_count=file_count,
        cube_count=0,
        design_effect=1.0,
        keys=lambda: KeySketch.of(np.zeros(0, np.int32)),
        write=write,
    )


class Rows(Protocol):
    """The rows of an open source."""

    @property
    def in_memory_rows(self) -> pl.DataFrame:
        """The rows in the memory of this process in the schema of the table, perhaps none. Hints are based on them."""
        ...

    @property
    def height(self) -> int:
        """Number of rows. If they are not summarised yet, they may be read to count them."""
        ...

    def summary(self, names: Sequence[str], *, cube_size: int | None = None) -> IndexSummary:
        """Return the summary of some columns. It is computed once."""
        ...

    def split(self, revision: Revision) -> tuple[Rows | None, Rows | None]:
        """Return the rows inside and outside the space of a revision. A part without rows is None.

        Workers read the rows once, to summarise both parts.
        """
        ...

    def plan(self, revision: Revision | None, tree: ExistingTree | None) -> WritePlan:
        """Plan the places of the rows. Without a revision, the files have no index, see `unindexed_plan`."""
        ...


class Engine(Protocol):
    """Moves rows: in memory, through temporary files, or with workers of a cluster."""

    @property
    def shares_memory(self) -> bool:
        """Whether calls of `map` run in this process and can return rows."""
        ...

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """Return the rows of a source."""
        ...

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """Call a function for each item. Return the answers in the order of the items.

        The calls read files: they count matching rows, join rows, or read footers.
        """
        ...

    def has_room(self, size_bytes: int) -> bool:
        """Return whether rows of this size fit in the memory of a process during `map`."""
        ...


class CallEngine(Engine, Protocol):
    """The engine of one call of a table, which reports what it does."""

    def report_progress(self, progress: ProgressCallback | None) -> ProgressCallback | None:
        """Return a callback that also reports the engine."""
        ...

    def report(self, result: ResultT) -> ResultT:
        """Return the result with the engine."""
        ...


_UNITS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)

# Not for rows: code and threads of libraries, and freed memory that allocators keep.
_OTHER_BYTES: Final = 128 << 20
# Copies of the rows of a file: as read, apart, in order, encoded, and memory that is freed late.
_COPIES: Final = 12
_BATCHES: Final = 64
_TEXT_BYTES: Final = 24
_NESTED_BYTES: Final = 64
_SAMPLE_ROW_BYTES: Final = 1024  # memory per sampled row while a tree is drawn
_MIN_SAMPLE_ROWS: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory that the rows of a call may use, and number of cores."""

    memory_bytes: int
    cores: int

    @staticmethod
    def of(memory_bytes: int | None = None) -> Budget:
        """Return the budget of a call that may add this memory, by default half of the machine's or cgroup's."""
        if memory_bytes is None:
            memory_bytes = memory_of_machine() // 2
        return Budget(max(memory_bytes - _OTHER_BYTES, memory_bytes // 2), pl.thread_pool_size())

    @property
    def writers(self) -> int:
        """Number of files that are written at the same time."""
        return max(min(self.cores, self.memory_bytes // (_COPIES * sizing().min_load_bytes)), 1)

    @property
    def load_bytes(self) -> int:
        """Size of the rows that one writer may load into memory."""
        return self.memory_bytes // (_COPIES * self.writers)

    @property
    def batch_bytes(self) -> int:
        """Size of a batch of rows to read, place and spill."""
        return min(max(self.memory_bytes // _BATCHES, sizing().min_moved_bytes), sizing().max_moved_bytes)

    @property
    def sample(self) -> SampleLimits:
        """Limits of the sample that a tree is drawn from."""
        rows = max(self.memory_bytes // _SAMPLE_ROW_BYTES, _MIN_SAMPLE_ROWS)
        size_bytes = max(self.memory_bytes // 16, sizing().min_moved_bytes)
        return SampleLimits(min(rows, domain_limits().rows), min(size_bytes, domain_limits().size_bytes))


def guess_row_bytes(schema: pl.Schema) -> int:
    """Estimate the bytes of a row in memory from the types.

    >>> guess_row_bytes(pl.Schema({"id": pl.Int64(), "name": pl.String()}))
    32
    """
    return sum(_guess_bytes(dtype) for dtype in schema.dtypes())


def _guess_bytes(dtype: pl.DataType) -> int:
    if has_any_width(dtype):
        return _TEXT_BYTES if dtype == pl.String else _NESTED_BYTES
    return 16 if dtype.is_decimal() else 8


def bytes_of_text(text: str, *, argument: str) -> int:
    """Parse a size such as ``2GiB``, ``512 MB`` (also a power of 1,024) or a plain number of bytes.

    >>> bytes_of_text("1.5k", argument="memory_bytes"), bytes_of_text("2 GiB", argument="memory_bytes")
    (1536, 2147483648)
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        msg = f"{argument} is not a size: {text!r}. Give 2GiB, 512MB or a number of bytes."
        raise InvalidInputError(msg, argument=argument)
    return int(float(match[1]) * (1 << _UNITS[match[2].lower()]))
