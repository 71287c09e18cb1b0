"""Rows that an operation adds to a table: in memory, or in files beside the table's that no version ever names."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import polars as pl

from qbeast_core.io.stores.store import Store, open_store

# How their names end, after the UUID of the operation and one of their own. A vacuum knows them by it.
SUFFIX = ".rows.arrow"


class AddedRows(Protocol):
    """Rows of the table's columns and types, wherever they are; picklable."""

    @property
    def height(self) -> int:
        """Number of rows."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the rows in memory."""
        ...

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows."""
        ...

    def pieces(self, columns: Sequence[str], *, size_bytes: int) -> Sequence[AddedRows]:
        """Return the rows cut for workers; each piece has at least these columns."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FrameRows:
    """Rows in memory."""

    frame: pl.DataFrame

    @property
    def height(self) -> int:
        """See `AddedRows`."""
        return self.frame.height

    @property
    def size_bytes(self) -> int:
        """See `AddedRows`."""
        return int(self.frame.estimated_size())

    def read(self) -> Iterator[pl.DataFrame]:
        """See `AddedRows`."""
        if self.height:
            yield self.frame

    def pieces(self, columns: Sequence[str], *, size_bytes: int) -> Sequence[AddedRows]:
        """See `AddedRows`."""
        if not self.height:
            return []
        rows = max(self.height * size_bytes // max(self.size_bytes, 1), 1)
        return [FrameRows(piece) for piece in self.frame.select(columns).iter_slices(rows)]


NO_ROWS: Final = FrameRows(pl.DataFrame())


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A file of rows."""

    # Below the root of the store.
    path: str
    rows: int
    # In memory.
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Rows in files."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    parts: tuple[StoredPart, ...]

    @property
    def height(self) -> int:
        """See `AddedRows`."""
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """See `AddedRows`."""
        return sum(part.size_bytes for part in self.parts)

    def read(self) -> Iterator[pl.DataFrame]:
        """See `AddedRows`."""
        store = open_store(self.uri, self.storage_options)
        for part in self.parts:
            yield load_rows(store, part.path)

    def pieces(self, columns: Sequence[str], *, size_bytes: int) -> Sequence[AddedRows]:  # noqa: ARG002 - as stored
        """See `AddedRows`."""
        return [replace(self, parts=(part,)) for part in self.parts]


def store_rows(store: Store, rows: pl.DataFrame, *, operation: str) -> str:
    """Store rows under a new name, and return it."""
    path = f"{operation}.{uuid.uuid4()}{SUFFIX}"
    store.put(path, as_bytes(rows))
    return path


def as_bytes(rows: pl.DataFrame) -> memoryview:
    """Return the bytes of a file of rows, small ones."""
    sink = io.BytesIO()
    rows.write_ipc(sink, compression="zstd", compat_level=pl.CompatLevel.newest())
    return sink.getbuffer()


def stored_by(store: Store, operation: str) -> list[str]:
    """Return the names of all files stored for an operation, those of failed attempts too."""
    return [path for path in store.list("") if path.startswith(operation) and path.endswith(SUFFIX)]


def load_rows(store: Store, path: str) -> pl.DataFrame:
    """Return rows that were stored, see `as_bytes`."""
    return pl.read_ipc(io.BytesIO(store.get(path)))
