"""The sums by key of a part of a read, in any process: it pickles and opens no log."""

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
    """The function that `Engine.map` calls with each task of a read."""

    row_sums: RowSums
    # Whether all rows of each key are counted, also those that do not match.
    sizes: bool

    def __call__(self, task: ScanTask) -> tuple[int, Sums]:
        """Read a task; return the number of its rows, and their sums."""
        rows, found = 0, list[Sums]()
        for frame in task.read():
            rows += frame.height
            found.append(sums_of(self.row_sums, frame, sizes=self.sizes))
        return rows, Sums.together(found, self.row_sums.by).by_key(self.row_sums.by)


def sums_of(row_sums: RowSums, frame: pl.DataFrame, *, sizes: bool) -> Sums:
    """Return the sums of a batch, see `RowSums.of`; an error names the expression that fails."""
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
