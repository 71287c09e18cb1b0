"""The engine protocol: sources, engines and planned rows.

Rows come from a source, are summarised, placed by a plan, written to files, and published by one commit. An
operation knows these protocols alone; an engine knows no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.spec.revision import Revision
from qbeast_core.support.runtime import ProgressCallback
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.keys.key_sketch import KeySketch
from qbeast_core.tree.layout.existing import ExistingTree
from qbeast_core.tree.space.summary import IndexSummary

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class Source(Protocol):
    """Rows in an order that never changes."""

    @property
    def empty(self) -> pl.DataFrame:
        """A frame without rows that has the columns and types of the source."""
        ...

    @property
    def is_one_shot(self) -> bool:
        """Whether the rows can be read only once."""
        ...

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """Yield all rows, in frames of about this size."""
        ...


class PlanSize(Protocol):
    """How much a plan writes."""

    @property
    def file_count(self) -> int:
        """Files to write."""
        ...

    @property
    def block_count(self) -> int:
        """Blocks in these files."""
        ...


class PlannedRows(PlanSize, Protocol):
    """Rows whose new places are known."""

    @property
    def cube_count(self) -> int:
        """Cubes that take rows. If workers drew a sample: those that sampled rows lie in."""
        ...

    @property
    def design_effect(self) -> float:
        """Of these rows alone, at least 1.0."""
        ...

    def keys(self) -> KeySketch:
        """Return how often index keys repeat in the rows, or in the sample that workers drew."""
        ...

    def write(self) -> Iterator[Sequence[AddFile]]:
        """Write the files, invisible until a commit names them; yield them, with their blocks, as they are done."""
        ...


class Rows(Protocol):
    """The rows of an open source."""

    @property
    def in_memory_rows(self) -> pl.DataFrame:
        """The rows that this process holds, perhaps none, as the table has them: hints are made from these."""
        ...

    @property
    def height(self) -> int:
        """Number of rows, after `summary` or `split`."""
        ...

    def summary(self, names: Sequence[str], *, cube_size: int | None = None) -> IndexSummary:
        """Return the summary of some columns; it is computed once."""
        ...

    def split(self, revision: Revision) -> tuple[Rows | None, Rows | None]:
        """Return the rows inside the space of a revision and those outside; None where there are none.

        Rows that workers hold are read once, to summarise both parts.
        """
        ...

    def plan(self, revision: Revision, tree: ExistingTree | None) -> PlannedRows:
        """Decide where the rows go."""
        ...


class Engine(Protocol):
    """Moves rows: in memory, by temporary files, or by workers of a cluster."""

    @property
    def shares_memory(self) -> bool:
        """Whether calls of `map` run in this process, so that they may return rows."""
        ...

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """Return the rows of a source."""
        ...

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """Call a function for each item; return the answers in the order of the items.

        The calls read files: they count the rows that match a condition, join rows with others, or read footers.
        """
        ...

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a process may hold rows of this size in calls of `map`."""
        ...
