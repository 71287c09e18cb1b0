"""The engine protocol: sources, engines and planned rows.

Rows come from a source, are summarised, placed by a plan, written to files, and published by one commit. Operations
depend on these protocols only. Engines do not depend on operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.results import FilesResult
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import ProgressCallback
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.tree.build import ExistingTree
from qbeast_core.tree.keys import KeySketch
from qbeast_core.tree.summary import IndexSummary

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
class PlannedRows:
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


def unindexed_rows(write: Callable[[], Sequence[AddFile]], *, file_count: int = 0) -> PlannedRows:
    """Return the plan of rows that are written without an index. The number of files may be unknown, 0."""
    return PlannedRows(
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

    def plan(self, revision: Revision | None, tree: ExistingTree | None) -> PlannedRows:
        """Plan the places of the rows. Without a revision, the files have no index, see `unindexed_rows`."""
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
