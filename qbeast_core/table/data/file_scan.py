"""A data file to read: what a read needs to know about it, without the log. Picklable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qbeast_core.io.location import Location
from qbeast_core.io.pages import PageReader, PageRequest
from qbeast_core.io.store import Store
from qbeast_core.log.columns import StoredColumns
from qbeast_core.log.rebase import RowIdsOfFile
from qbeast_core.log.values import PartitionTexts
from qbeast_core.plan.weights import FileDraw
from qbeast_core.space.values import BoolArray, I64Array


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
    # Indexes of the only rows to read, ascending; deleted rows are not among them. None: all rows.
    only: I64Array | None = None
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
        parts = self.hidden, self.only, self.draw, self.row_ids
        return any(part is not None for part in parts)

    def shown(self, rows: I64Array) -> BoolArray:
        """Return which rows of the file to read. `rows` are their indexes, ascending."""
        if self.only is not None:
            return _are_listed(rows, self.only)
        return np.ones(len(rows), np.bool_) if self.hidden is None else ~_are_listed(rows, self.hidden)

    def split(self, count: int) -> list[FileScan]:
        """Return parts with about the same number of pages."""
        if self.pages is None or count == 1:
            return [self]
        return [
            replace(
                self,
                pages=part,
                hidden=None
                if self.hidden is None
                else _within(self.hidden, part.spans[0][0], part.spans[-1][1]),
                only=None if self.only is None else _within(self.only, part.spans[0][0], part.spans[-1][1]),
            )
            for part in self.pages.split(np.array_split(self.pages.pages, count))
        ]


def _are_listed(rows: I64Array, listed: I64Array) -> BoolArray:
    """Return which rows are in another array. Both are ascending."""
    if not len(listed):
        return np.zeros(len(rows), np.bool_)
    places = np.minimum(np.searchsorted(listed, rows), len(listed) - 1)
    return np.equal(listed[places], rows)


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
