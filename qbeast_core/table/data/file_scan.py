"""A data file to read: what a read needs to know about it, without the log. Picklable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qbeast_core.io.parquet.pages import PageReader, PageRequest
from qbeast_core.io.stores.location import Location
from qbeast_core.io.stores.store import Store
from qbeast_core.log.columns.file_values import PartitionTexts
from qbeast_core.log.columns.stored import StoredColumns
from qbeast_core.log.domains import RowIdsOfFile
from qbeast_core.query.plan.draws import FileDraw
from qbeast_core.space.arrays import BoolArray, I64Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileScan:
    """The rows to read of one file."""

    # Decoded path.
    path: str
    size_bytes: int
    # Whether the types of its columns may differ from the types of the table. Then its footer is read first.
    may_differ: bool = True
    # Pages to read. None: the whole file.
    pages: PageRequest | None = None
    # Indexes of deleted rows, ascending. None: there are none.
    hidden: I64Array | None = None
    # Rows with their own weights. Only for reads of pages.
    draw: FileDraw | None = None
    # Columns whose hash is the weight of a row, if they differ from the columns of the newest revision.
    hashed: tuple[str, ...] | None = None
    # Texts of the values of the partition columns.
    partition: PartitionTexts = ()
    # Ids of rows, if a read returns the hidden columns of row tracking.
    row_ids: RowIdsOfFile | None = None

    @property
    def needs_places(self) -> bool:
        """Whether a read needs the index of each row in the file."""
        return not (self.hidden is None and self.draw is None and self.row_ids is None)

    def shown(self, rows: I64Array) -> BoolArray:
        """Return which rows of the file are not hidden. `rows` are their indexes, ascending."""
        if self.hidden is None or not len(self.hidden):
            return np.ones(len(rows), np.bool_)
        places = np.minimum(np.searchsorted(self.hidden, rows), len(self.hidden) - 1)
        return np.not_equal(self.hidden[places], rows)

    def split(self, count: int) -> list[FileScan]:
        """Return parts with about the same number of pages."""
        if self.pages is None or count == 1:
            return [self]
        return [
            replace(
                self, pages=part, hidden=None if self.hidden is None else _within(self.hidden, *part.rows)
            )
            for part in self.pages.split(np.array_split(self.pages.pages, count))
        ]


def _within(rows: I64Array, first: int, end: int | None) -> I64Array:
    return rows[np.searchsorted(rows, first) : None if end is None else np.searchsorted(rows, end)]


@dataclass(frozen=True, slots=True, eq=False)
class TableFiles:
    """Access to the data files of a table. Picklable: another process opens its own store."""

    location: Location
    pages: PageReader
    # How files store the columns of the table.
    columns: StoredColumns

    @property
    def store(self) -> Store:
        """Store of the table."""
        return self.location.store

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the arguments of `open_files`."""
        return open_files, (self.location, self.columns)


def open_files(location: Location, columns: StoredColumns) -> TableFiles:
    """Return access to the data files of a table, with an empty cache."""
    return TableFiles(location, PageReader(location.store), columns)
