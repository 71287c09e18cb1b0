"""A read cut into tasks for any process: each reads a data file or some of its blocklets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from qbeast_carbondata.metadata.open_table import Segment
from qbeast_carbondata.metadata.segments import LiveFile
from qbeast_carbondata.reader import ALL_BLOCKLETS, TableReader


@dataclass(frozen=True, slots=True, eq=False)
class CarbonTask:
    """Rows of one data file; it pickles without the rest of the table."""

    # Reader of a table with this file only.
    reader: TableReader
    columns: tuple[str, ...]
    # None keeps all rows.
    predicate: pl.Expr | None
    # Numbers of the blocklets to read.
    blocklets: range

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows, in frames of bounded size."""
        return self.reader.file_rows(
            self.reader.files, self.columns, self.predicate, blocklets=self.blocklets
        )


def carbon_tasks(
    reader: TableReader, columns: Sequence[str], predicate: pl.Expr | None, *, task_bytes: int
) -> list[CarbonTask]:
    """Cut a read into tasks; files that index entries rule out have none."""
    # Every task carries the table's columns, not its loads.
    snapshot = replace(reader.snapshot, columns=reader.columns, loads=(), updates=())
    loads = {file: segment.load for segment in reader.segments for file in segment.files}
    tasks: list[CarbonTask] = []
    for file in reader.plan(reader.node(predicate)):
        segment = Segment(loads[file], (replace(file, entries=(), columns=()),))
        alone = TableReader(snapshot, (segment,), reader.dictionaries)
        parts = _parts(file, task_bytes)
        tasks += [CarbonTask(alone, tuple(columns), predicate, part) for part in parts]
    return tasks


def _parts(live: LiveFile, task_bytes: int) -> list[range]:
    """Return ranges of blocklets of about `task_bytes`; the last has no end, since entries may not list all."""
    count = sum(entry.blocklet is not None for entry in live.entries)
    pieces = min(max(live.size_bytes // task_bytes, 1), max(count, 1))
    begins = [count * piece // pieces for piece in range(pieces)]
    return [range(first, behind) for first, behind in pairwise([*begins, ALL_BLOCKLETS.stop])]
