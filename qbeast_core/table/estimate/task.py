"""Sum a part of a read by key in any process; it can be pickled and does not open the log."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from qbeast_core.sampling.batch import RowSums
from qbeast_core.sampling.sums import Sums
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.read.scan_task import ScanTask


@dataclass(frozen=True, slots=True, eq=False)
class TaskSums:
    """The function that `Engine.map` calls with each task of a read."""

    row_sums: RowSums
    # Whether to count all rows of each key, including rows that do not match.
    sizes: bool

    def __call__(self, task: ScanTask) -> tuple[int, Sums]:
        """Read a task; return the number of its rows, and their sums."""
        rows, parts = 0, list[Sums]()
        for frame in task.read():
            rows += frame.height
            parts += (
                sums_of(self.row_sums, piece, sizes=self.sizes) for piece in self.row_sums.pieces(frame)
            )
        return rows, Sums.concat(parts, self.row_sums.by).by_key(self.row_sums.by)


def sums_of(row_sums: RowSums, frame: pl.DataFrame, *, sizes: bool) -> Sums:
    """Return the sums of a batch; an error names the failing expression."""
    try:
        return row_sums.of(frame, sizes=sizes)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        with evaluating(row_sums.condition, "where"):
            kept = row_sums.kept(frame.lazy()).collect()
        for argument, expressions in (
            ("by", row_sums.groups.values()),
            ("aggregates", (*row_sums.totals, *row_sums.quantiles)),
        ):
            for expr in expressions:
                with evaluating(expr, argument):
                    kept.with_columns(**row_sums.centres).select(expr)
        raise
