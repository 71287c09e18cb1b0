"""Changes of rows between old and new files, and the task that changes a file in place. Picklable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.replay import FileIndex
from qbeast_core.space.cubes import decode_cubes
from qbeast_core.space.values import I32Array, I64Array
from qbeast_core.spec.blocks import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.support.frames import own_column
from qbeast_core.support.process import new_id
from qbeast_core.table.data.scan import FileScan, TableFiles
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.table.engine.tasks.store_files import settings_for, store_arranged
from qbeast_core.table.read.scan_task import RowFilter, read_scans
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
class MovedRows(RowFunction):
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


@dataclass(frozen=True, slots=True, eq=False)
class FileToChange:
    """A live file."""

    scan: FileScan
    change: RowFunction
    blocks: tuple[Block, ...]
    # Modification time, which a new file keeps if its rows keep their places: it stays a part of its write.
    time_ms: int


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
        frames, first = list[pl.DataFrame](), 0
        stay = True
        for rows in _first_alone(read_scans([file.scan], self.keep, self.files)):
            changed, kept = _in_order(rows, file.change)
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
            blocks = _blocks_left(file.blocks, self.revision, rows, weights, height=first)
        if blocks is None:
            return rows if self.returns_rows else None
        path = f"{self.operation}.{new_id()}.parquet"
        settings = settings_for(replace(self.target, time_ms=file.time_ms), rows, self.revision.columns)
        index = FileIndex(self.revision, blocks)
        add = store_arranged(self.target, rows, weights, settings, path=path, index=index)
        return add.model_copy(update={"blocks": blocks})


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
