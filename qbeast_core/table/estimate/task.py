"""A part of a read as sums for each key, wherever it is read: it pickles, and opens no log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from qbeast_core.sampling.batch import RowSums
from qbeast_core.sampling.sums import Sums
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.read.scan_task import ScanTask

_UNANSWERED: Final = "no answer was made"


@dataclass(frozen=True, slots=True, eq=False)
class TaskSums:
    """What is called with each task of a read, see `Engine.map`."""

    # What is done with its rows.
    row_sums: RowSums
    # Whether the rows of each key are counted, those included that do not count.
    sizes: bool

    def __call__(self, task: ScanTask) -> tuple[int, Sums]:
        """Read a task; return how many rows that were, and what they come to."""
        rows, found = 0, list[Sums]()
        for frame in task.read():
            rows += frame.height
            found.append(sums_of(self.row_sums, frame, sizes=self.sizes))
        return rows, Sums.together(found, self.row_sums.by).by_key(self.row_sums.by)


def sums_of(row_sums: RowSums, frame: pl.DataFrame, *, sizes: bool) -> Sums:
    """Sum up a batch, see `RowSums.of`; where a value cannot be computed, say of which expression."""
    try:
        return row_sums.of(frame, sizes=sizes)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        with evaluating(row_sums.condition, "where", _UNANSWERED):
            kept = row_sums.kept(frame)
        for argument, expressions in (
            ("by", row_sums.groups.values()),
            ("aggregates", (*row_sums.totals, *row_sums.quantiles)),
        ):
            for one in expressions:
                with evaluating(one, argument, _UNANSWERED):
                    kept.with_columns(**row_sums.centres).select(one)
        raise
