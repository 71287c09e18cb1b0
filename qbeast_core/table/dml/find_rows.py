"""Task that finds the matching rows of a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from pyroaring import BitMap64

from qbeast_core.log.deletion_vectors import row_set
from qbeast_core.support.frames import own_column
from qbeast_core.table.data.expressions import evaluating
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.read.tasks import RowFilter, read_scans

# Maximum number of files that one process reads at the same time.
AT_ONCE: Final = 8

# Column with the index of a row in its file.
PLACE: Final = own_column("place in file")


@dataclass(frozen=True, slots=True, eq=False)
class FindRows:
    """Finds the rows of a file that pass a filter. Reads the file in parts."""

    files: TableFiles = field(repr=False)
    keep: RowFilter
    text: str | None

    def __call__(self, scan: FileScan) -> BitMap64:
        """Return the indexes of the rows in the opened parts of one file. Raises the errors of `evaluating`."""
        keep = replace(self.keep, place_column=PLACE)
        with evaluating(self.text):
            places = [frame[PLACE].to_numpy() for frame in read_scans([scan], keep, self.files)]
        return row_set(np.concatenate([np.zeros(0, np.int64), *places]))
