"""A part of a read as sums for each key, wherever it is read: it pickles, and opens no log."""

from __future__ import annotations

from dataclasses import dataclass

from qbeast_core.estimate.batch import RowSums
from qbeast_core.estimate.sums import Sums
from qbeast_core.table.read.scan_task import ScanTask

__all__ = ["TaskSums"]


@dataclass(frozen=True, slots=True, eq=False)
class TaskSums:
    """What is called with each task of a read, see `Engine.map`.

    Attributes
    ----------
    row_sums : RowSums
        What is done with its rows.
    sizes : bool
        Whether the rows of each key are counted, those included that do not count.
    """

    row_sums: RowSums
    sizes: bool

    def __call__(self, task: ScanTask) -> tuple[int, Sums]:
        """Read a task; return how many rows that were, and what they come to."""
        rows, found = 0, list[Sums]()
        for frame in task.read():
            rows += frame.height
            found.append(self.row_sums.of(frame, sizes=self.sizes))
        return rows, Sums.together(found, self.row_sums.by).by_key(self.row_sums.by)
