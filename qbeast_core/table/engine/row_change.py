"""Changes of rows between old and new files, the task that changes a file, and added rows. Picklable."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.io.location import Location
from qbeast_core.io.store import Store
from qbeast_core.log.actions import AddFile
from qbeast_core.log.rules import Identity
from qbeast_core.space.cubes import decode_cubes
from qbeast_core.space.values import I32Array, I64Array
from qbeast_core.spec.blocks import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.support.frames import own_column
from qbeast_core.support.process import new_id
from qbeast_core.table.data.files import FileSettings, FileTarget, NewFile, store_file
from qbeast_core.table.data.rules import with_numbers
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.read.tasks import RowFilter, read_scans
from qbeast_core.tree.build import blocks_of_rows
from qbeast_core.tree.grid import frame_weights, grid_columns, lowest_by_node

_PLACE: Final = own_column("place")


@dataclass(frozen=True, slots=True, eq=False)
class RowImages:
    """Rows before and after a change, without unchanged rows."""

    deleted: pl.DataFrame
    # The same rows in the same order.
    before: pl.DataFrame
    after: pl.DataFrame


class RowFunction(ABC):
    """A change of rows. Picklable and deterministic: it is computed several times."""

    @abstractmethod
    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay, with their new values."""

    @abstractmethod
    def images(self, rows: pl.DataFrame) -> RowImages:
        """Return only the rows that change."""


class RowChange(ABC):
    """A change of the rows of a table, file by file."""

    @property
    def replaced(self) -> frozenset[str]:
        """Columns that get new values in every row that changes, and whose old values are not used."""
        return frozenset()

    @abstractmethod
    def of_file(self, path: str) -> RowFunction | None:
        """Return the change of the rows of a file, by its decoded path. None: the rows stay as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class MoveChange(RowFunction):
    """The change of rows that all change. They are read without columns that get new values."""

    change: RowFunction
    # Columns of the rows, and those that are not read.
    schema: pl.Schema
    replaced: frozenset[str]

    @property
    def read(self) -> list[str]:
        """Columns to read."""
        return [name for name in self.schema if name not in self.replaced]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with their new values."""
        return self.change(self._whole(rows))

    def images(self, rows: pl.DataFrame) -> RowImages:
        """See `RowFunction`; old values of `replaced` are null."""
        return self.change.images(self._whole(rows))

    def _whole(self, rows: pl.DataFrame) -> pl.DataFrame:
        nulls = [pl.lit(None, self.schema[name]).alias(name) for name in self.replaced]
        return rows.with_columns(nulls).select(list(self.schema))


class UniformChange(RowChange, RowFunction):
    """A change that is the same for all files."""

    def of_file(self, path: str) -> RowFunction:  # noqa: ARG002 - same for all files
        """See `RowChange`."""
        return self


# A live file, its change and its blocks, and its modification time, which a new file keeps if its rows keep their
# places: it stays a part of its write.
FileToChange: TypeAlias = tuple[FileScan, RowFunction, tuple[Block, ...], int]


@dataclass(frozen=True, slots=True, eq=False)
class ChangeFile:
    """Rewrites a file without deleted rows if the other rows keep their places. Picklable."""

    files: TableFiles = field(repr=False)
    # Reads all columns of all rows.
    keep: RowFilter
    target: FileTarget
    revision: Revision
    # Prefix of the names of new files, to find files of failed tasks.
    operation: str
    # Whether to return changed rows that do not keep their places, so that the file is not read again.
    returns_rows: bool

    def __call__(self, file: FileToChange) -> AddFile | pl.DataFrame | None:
        """Write the file. If a row does not keep its place, return the changed rows or None."""
        scan, change, old_blocks, time_ms = file
        frames, first = list[pl.DataFrame](), 0
        stay = True
        for rows in _first_alone(read_scans([scan], self.keep, self.files)):
            changed, kept = _in_order(rows, change)
            placing = list(dict.fromkeys((*self.revision.key_columns, *self.target.columns.partitions)))
            stay = stay and changed.select(placing).equals(rows.select(placing)[pl.Series(kept)])
            if not (stay or self.returns_rows):
                return None
            frames.append(changed)
            first += rows.height
        if not frames:
            return None
        rows = pl.concat(frames, rechunk=True)
        weights = frame_weights(rows, self.revision.hashed)
        blocks: tuple[Block, ...] | None = None
        if stay and rows.height:
            blocks = _blocks_left(old_blocks, self.revision, rows, weights, height=first)
        if blocks is None:
            return rows if self.returns_rows else None
        settings = FileSettings.of(replace(self.target, time_ms=time_ms), rows, self.revision.columns)
        return store_file(
            NewFile(rows, weights, self.revision, blocks), settings, operation=f"{self.operation}."
        )


def _in_order(rows: pl.DataFrame, change: RowFunction) -> tuple[pl.DataFrame, I64Array]:
    """Return the changed rows in their original order, and where they were."""
    place = pl.Series(_PLACE, np.arange(rows.height, dtype=np.uint32))
    changed = change(rows.with_columns(place))
    places = changed[_PLACE].to_numpy().astype(np.int64)
    changed = changed.drop(_PLACE)
    if (places[1:] > places[:-1]).all():
        return changed, places
    order = np.argsort(places, kind="stable")
    return changed[pl.Series(order)], places[order]


def _first_alone(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the first frame, then the others as one. The first usually shows whether rows keep their places."""
    yield from islice(frames, 1)
    others = [frame for frame in frames if frame.height]
    if others:
        yield pl.concat(others)


def _blocks_left(
    blocks: tuple[Block, ...], revision: Revision, rows: pl.DataFrame, weights: I32Array, *, height: int
) -> tuple[Block, ...] | None:
    """Return the blocks of the rows that stay in a file of `height` rows; None if a row does not lie in a block.

    Blocks without rows are left out. A block that lost rows may begin at a higher weight.
    """
    old = np.array([block.element_count for block in blocks], np.int64)
    if old.sum() != height or len({block.cube for block in blocks}) < len(blocks):
        return None
    cubes = decode_cubes([block.cube for block in blocks], dimensions=len(revision.columns))
    highest = np.array([block.max_weight for block in blocks], np.int32)
    found = blocks_of_rows(cubes, highest, grid_columns(rows, revision), weights)
    if found.min() < 0:
        return None
    counts = np.bincount(found, minlength=len(blocks))
    lowest = lowest_by_node(weights, found, len(blocks))
    before = np.array([block.min_weight for block in blocks], np.int64)
    if (counts > old).any() or (lowest < before).any() or ((counts == old) & (lowest > before)).any():
        return None
    return tuple(
        replace(block, min_weight=low, element_count=count)
        for block, low, count in zip(blocks, lowest.tolist(), counts.tolist(), strict=True)
        if count
    )


# Suffix of temporary files of rows, after the UUID of the operation and of the file. A vacuum removes such files.
SUFFIX = ".rows.arrow"


@dataclass(frozen=True, slots=True, eq=False)
class AddedFrame:
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

    def pieces(self, columns: Sequence[str], *, size_bytes: int) -> list[AddedFrame]:
        """Split the rows for workers. Each piece has at least these columns."""
        if not self.height:
            return []
        rows = max(self.height * size_bytes // max(self.size_bytes, 1), 1)
        return [AddedFrame(piece) for piece in self.frame.select(columns).iter_slices(rows)]

    def numbered(self, identities: tuple[Identity, ...]) -> AddedFrame:
        """Return the rows with numbers in identity columns."""
        return AddedFrame(with_numbers(self.frame, identities)) if identities and self.height else self


NO_ROWS: Final = AddedFrame(pl.DataFrame())


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A file of rows."""

    # Path in the store.
    path: str
    rows: int
    # Size in memory.
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class AddedFiles:
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

    def pieces(self, columns: Sequence[str], *, size_bytes: int) -> list[AddedFiles]:  # noqa: ARG002 - as stored
        """Split the rows for workers. Each piece has all columns of a file."""
        ends = accumulate((part.rows for part in self.parts), initial=self.first_row)
        return [
            replace(self, parts=(part,), first_row=first)
            for part, first in zip(self.parts, ends, strict=False)
        ]

    def numbered(self, identities: tuple[Identity, ...]) -> AddedFiles:
        """Return the rows with numbers in identity columns."""
        return replace(self, identities=identities)


# Rows with the columns and types of the table. Picklable.
AddedRows: TypeAlias = AddedFrame | AddedFiles


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
