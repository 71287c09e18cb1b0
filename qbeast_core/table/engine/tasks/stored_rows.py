"""Rows at rest between two steps of an operation, in files beside the table's that no version ever names."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from qbeast_core.io.store import Store, open_store
from qbeast_core.spec.revision import Revision
from qbeast_core.tree.outside import rows_outside

# How their names end, after the UUID of the operation and one of their own. A vacuum knows them by it.
SUFFIX = ".rows.arrow"


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Some of the rows."""

    # Of their file, below the table's root.
    path: str
    # How many, and their bytes in memory.
    rows: int
    size_bytes: int
    # Whether they lie outside the space of the revision that was the newest when they were stored.
    outside: bool


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Rows of the table's columns and types; picklable."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    parts: tuple[StoredPart, ...]
    # The revision that parts are outside of.
    revision_id: int | None

    @property
    def height(self) -> int:
        """How many rows there are."""
        return sum(part.rows for part in self.parts)

    def estimated_size(self) -> int:
        """Return the bytes of the rows in memory."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def store(self) -> Store:
        """Where they are."""
        return open_store(self.uri, self.storage_options)

    def part(self, revision: Revision, *, outside: bool) -> StoredRows:
        """Return those in the space of the revision they were stored for, or those outside."""
        if revision.revision_id != self.revision_id:
            raise AssertionError  # a change is planned and carried out on one version
        return replace(self, parts=tuple(part for part in self.parts if part.outside is outside))

    def pieces(self) -> list[StoredRows]:
        """Return the rows of each part by itself."""
        return [replace(self, parts=(part,)) for part in self.parts]

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the rows, part by part."""
        store = self.store
        for part in self.parts:
            yield load_rows(store, part.path)


def frames_of(rows: pl.DataFrame | StoredRows | None) -> Iterator[pl.DataFrame]:
    """Yield rows, wherever they are; None: there are none."""
    if isinstance(rows, StoredRows):
        yield from rows.read()
    elif rows is not None:
        yield rows


def store_rows(store: Store, rows: pl.DataFrame, *, operation: str) -> str:
    """Store rows under a new name, and return it."""
    path = f"{operation}.{uuid.uuid4()}{SUFFIX}"
    store.put(path, as_bytes(rows))
    return path


def store_parts(
    rows: pl.DataFrame, revision: Revision | None, store: Callable[[pl.DataFrame], str]
) -> Iterator[StoredPart]:
    """Store rows that are added, those outside the space of a revision apart; yield where they are."""
    beyond = np.zeros(rows.height, np.bool_) if revision is None else rows_outside(rows, revision)
    for outside in (False, True):
        some = rows.filter(pl.Series(beyond == outside, dtype=pl.Boolean))
        if some.height:
            yield StoredPart(store(some), some.height, int(some.estimated_size()), outside)


def as_bytes(rows: pl.DataFrame) -> memoryview:
    """Return the bytes of a file of rows, small ones."""
    sink = io.BytesIO()
    rows.write_ipc(sink, compression="zstd", compat_level=pl.CompatLevel.newest())
    return sink.getbuffer()


def stored_by(store: Store, operation: str) -> list[str]:
    """Return the names of all that was stored for an operation, by attempts that failed too."""
    return [path for path in store.list("") if path.startswith(operation) and path.endswith(SUFFIX)]


def load_rows(store: Store, path: str) -> pl.DataFrame:
    """Return rows that were stored, see `as_bytes`."""
    return pl.read_ipc(io.BytesIO(store.get(path)))
