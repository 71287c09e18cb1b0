"""Summarise the columns that a task reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qbeast_core.table.read.scan_task import ScanTask
from qbeast_core.tree.space.summary import IndexSummary, merge_summaries, summarise

# More rows than a task has.
_ROWS_OF_TASK: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class SummariseTask:
    """Summarises some columns, by batches. Picklable."""

    names: tuple[str, ...]

    def __call__(self, item: tuple[int, ScanTask]) -> IndexSummary:
        """Summarise the rows of a numbered task."""
        number, task = item
        row, parts = number * _ROWS_OF_TASK, list[IndexSummary]()
        for frame in task.read():
            parts.append(summarise(frame, self.names, first_row=row))
            row += frame.height
        return merge_summaries(parts)
