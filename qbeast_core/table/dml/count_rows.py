"""Task that counts the matching rows of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.data.file_scan import FileScan, TableFiles
from qbeast_core.table.read.scan_task import RowFilter, read_scans

# Maximum number of files that one process reads at the same time.
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class CountRows:
    """Counts the rows of a file that pass a filter. Reads the file in parts."""

    files: TableFiles = field(repr=False)
    keep: RowFilter
    text: str | None

    def __call__(self, scan: FileScan) -> int:
        """Count the rows in the opened parts of one file. Raises the errors of `evaluating`."""
        with evaluating(self.text):
            return sum(frame.height for frame in read_scans([scan], self.keep, self.files))
