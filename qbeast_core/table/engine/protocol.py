"""What operations ask of whoever moves rows: sources, engines, and rows whose places are planned.

Rows come from a source, are summarised, placed by a plan, written to files, and published by one commit. An
operation knows these protocols alone; an engine knows no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.rebase import dialect_of
from qbeast_core.runtime import ProgressCallback
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.engine.target import FileTarget, RowShape
from qbeast_core.table.engine.tasks.row_change import ChangeByFile, RowChange
from qbeast_core.table.engine.tasks.stored_rows import StoredRows
from qbeast_core.table.read.reader import Reader
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.key_sketch import KeySketch
from qbeast_core.tree.summary import IndexSummary

# Rows that are held at once, in bytes of memory, estimated from the columns' types.
GROUP_BYTES: Final = 2 << 30

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class Source(Protocol):
    """Rows that an engine can read, as often as it needs to, the same each time."""

    @property
    def empty(self) -> pl.DataFrame:
        """No rows, with the columns and types of those to come."""
        ...


class FrameSource:
    """Rows in memory, as they came; taken into a frame when they are first asked for."""

    def __init__(self, data: FrameLike) -> None:
        self._data = data
        self._frame: pl.DataFrame | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """The rows."""
        if self._frame is None:
            self._frame = to_frame(self._data)
        return self._frame

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self.frame.clear()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FilesSource:
    """The rows of live files, with what becomes of them, and rows that are added."""

    reader: Reader
    numbers: I64Array
    change: RowChange | ChangeByFile | None = None
    # More rows, of the table's columns and types, last.
    added: pl.DataFrame | StoredRows | None = None
    # Rows that may be held at once.
    group_bytes: int = GROUP_BYTES

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self.reader.snapshot.schema.to_frame()

    @property
    def target(self) -> FileTarget:
        """Where files that take the place of these go."""
        snapshot = self.reader.snapshot
        return FileTarget.of(
            self.reader.store.uri,
            RowShape(snapshot.schema_json, snapshot.schema, merge=False),
            snapshot.metadata.configuration,
            dialect=dialect_of(snapshot),
            storage_options=snapshot.storage_options,
        )


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
        """Cubes that take rows; of workers that saw a sample, those that sampled rows lie in."""
        ...

    @property
    def design_effect(self) -> float:
        """Of these rows alone, at least 1.0."""
        ...

    def keys(self) -> KeySketch:
        """Return how often index keys repeat in the rows; of workers that saw a sample, in the sampled ones."""
        ...

    def write(self) -> Iterator[Sequence[AddFile]]:
        """Write the files, invisible until a commit names them; yield them, with their blocks, as they are done."""
        ...


class Rows(Protocol):
    """The rows of a source, with whoever moves them."""

    @property
    def at_hand(self) -> pl.DataFrame:
        """Rows that this process holds anyway, perhaps none, as the table has them: what hints are made from."""
        ...

    def summary(self, names: Sequence[str], *, cube_size: int | None = None) -> IndexSummary:
        """Return what is known of some columns."""
        ...

    def plan(self, revision: Revision, tree: ExistingTree | None) -> PlannedRows:
        """Decide where the rows go."""
        ...


class Engine(Protocol):
    """Whoever moves rows: in memory, by temporary files, by workers of a cluster."""

    def open(self, source: Source, target: FileTarget, progress: ProgressCallback | None) -> Rows:
        """Return the rows of a source."""
        ...

    def map(
        self, call: Callable[[ItemT], AnswerT], items: Sequence[ItemT], *, at_once: int
    ) -> Sequence[AnswerT]:
        """Call a function for each item; return the answers in the order of the items.

        So rows are looked at where files are read: to count those that a condition means, file by file, to match
        them with others, or to say of Parquet files what a log says.
        """
        ...

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether a process may hold rows of so many bytes in calls of `map`."""
        ...
