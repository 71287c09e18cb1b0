"""Rows that an operation adds to a table: in memory, or in temporary files that no version names."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.io.location import Location
from qbeast_core.io.store import Store
from qbeast_core.log.rules import Identity
from qbeast_core.support.process import new_id
from qbeast_core.table.data.rules import with_numbers

# Suffix of temporary files of rows, after the UUID of the operation and of the file. A vacuum removes such files.
SUFFIX = ".rows.arrow"


@dataclass(frozen=True, slots=True, eq=False)
class FrameRows:
    """Rows in memory."""

    frame: pl.DataFrame

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.frame.height

    @property
    def size_bytes(self) -> int:
        """Size of the rows in memory."""
        return int(self.frame.estimated_size())

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows."""
        if self.height:
            yield self.frame

    def pieces(self, columns: Sequence[str], *, size_bytes: int) -> list[FrameRows]:
        """Split the rows for workers. Each piece has at least these columns."""
        if not self.height:
            return []
        rows = max(self.height * size_bytes // max(self.size_bytes, 1), 1)
        return [FrameRows(piece) for piece in self.frame.select(columns).iter_slices(rows)]

    def numbered(self, identities: tuple[Identity, ...]) -> FrameRows:
        """Return the rows with numbers in identity columns."""
        return FrameRows(with_numbers(self.frame, identities)) if identities and self.height else self


NO_ROWS: Final = FrameRows(pl.DataFrame())


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A file of rows."""

    # Path in the store.
    path: str
    rows: int
    # Size in memory.
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Rows in files."""

    location: Location
    parts: tuple[StoredPart, ...]
    # Identity columns, whose numbers are drawn when rows are read, and the number of rows before these.
    identities: tuple[Identity, ...] = ()
    first_row: int = 0

    @property
    def height(self) -> int:
        """Number of rows."""
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Size of the rows in memory."""
        return sum(part.size_bytes for part in self.parts)

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows."""
        store, first = self.location.store, self.first_row
        for part in self.parts:
            rows = load_rows(store, part.path)
            yield with_numbers(rows, self.identities, first) if self.identities else rows
            first += part.rows

    def pieces(self, columns: Sequence[str], *, size_bytes: int) -> list[StoredRows]:  # noqa: ARG002 - as stored
        """Split the rows for workers. Each piece has all columns of a file."""
        ends = accumulate((part.rows for part in self.parts), initial=self.first_row)
        return [
            replace(self, parts=(part,), first_row=first)
            for part, first in zip(self.parts, ends, strict=False)
        ]

    def numbered(self, identities: tuple[Identity, ...]) -> StoredRows:
        """Return the rows with numbers in identity columns."""
        return replace(self, identities=identities)


# Rows with the columns and types of the table. Picklable.
AddedRows: TypeAlias = FrameRows | StoredRows


def store_rows(store: Store, rows: pl.DataFrame, *, operation: str) -> str:
    """Store rows in a new file. Return its path."""
    path = f"{operation}.{new_id()}{SUFFIX}"
    store.put(path, as_bytes(rows))
    return path


def as_bytes(rows: pl.DataFrame) -> memoryview:
    """Return rows as a compressed Arrow IPC file."""
    sink = io.BytesIO()
    rows.write_ipc(sink, compression="zstd", compat_level=pl.CompatLevel.newest())
    return sink.getbuffer()


def stored_by(store: Store, operation: str) -> list[str]:
    """Return the paths of all files stored for an operation, including failed attempts."""
    return [path for path in store.list("") if path.startswith(operation) and path.endswith(SUFFIX)]


def load_rows(store: Store, path: str) -> pl.DataFrame:
    """Return stored rows, see `as_bytes`."""
    return pl.read_ipc(io.BytesIO(store.get(path)))
