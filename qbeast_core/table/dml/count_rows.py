"""A task before a change of rows: it counts the matching rows of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.read.scan_task import FileParts, RowFilter, TableFiles, read_parts

# Files that one process reads at the same time.
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class CountRows:
    """Counts the rows that a read keeps of a file, of which it holds some at a time."""

    files: TableFiles = field(repr=False)
    keep: RowFilter
    text: str | None

    def __call__(self, parts: FileParts) -> int:
        """Count the rows of what is opened of one file; raises as `evaluating` does."""
        with evaluating(self.text):
            return sum(frame.height for frame in read_parts(parts, self.keep, self.files))
