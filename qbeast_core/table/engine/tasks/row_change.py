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
from qbeast_core.log.files.tag_copy import FileIndex
from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.space.cubes import decode_cubes
from qbeast_core.spec.block import Block
from qbeast_core.spec.layout import parse_layout
from qbeast_core.spec.revision import Revision
from qbeast_core.support.joins import own_column
from qbeast_core.support.runtime import new_id
from qbeast_core.table.data.file_scan import FileScan, TableFiles
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.table.engine.tasks.store_files import settings_for, store_sorted
from qbeast_core.table.read.scan_task import RowFilter, read_scans
from qbeast_core.tree.layout.arrange import arrange
from qbeast_core.tree.layout.pack import page_rows_for
from qbeast_core.tree.layout.shape import FileShape
from qbeast_core.tree.space.index_values import frame_weights

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
    # Blocks in the order of the file, and its layout tag.
    blocks: tuple[Block, ...]
    layout: str | None


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
        frames, places, first = list[pl.DataFrame](), list[I64Array](), 0
        stay = True
        for rows in _first_alone(read_scans([file.scan], self.keep, self.files)):
            changed, kept = _in_order(rows, file.change)
            placing = list(dict.fromkeys((*self.revision.key_columns, *self.target.columns.partitions)))
            stay = stay and changed.select(placing).equals(rows.select(placing)[pl.Series(kept)])
            if not (stay or self.returns_rows):
                return None
            frames.append(changed)
            places.append(kept + first)
            first += rows.height
        if not frames:
            return None
        rows = pl.concat(frames, rechunk=True)
        weights = frame_weights(rows, self.revision.hashed)
        placed = None
        if stay and rows.height:
            placed = _placed(file, self.revision, np.concatenate(places), first, weights)
        if placed is None:
            return rows if self.returns_rows else None
        if placed.order is not None:
            rows, weights = rows[pl.Series(placed.order)], weights[placed.order]
        path = f"{self.operation}.{new_id()}.parquet"
        settings = settings_for(self.target, rows, self.revision.columns)
        index = FileIndex(self.revision, placed.blocks)
        add = store_sorted(self.target, rows, weights, settings, path=path, shape=placed.shape, index=index)
        return add.model_copy(update={"blocks": placed.blocks})


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


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """Where the rows of a file go."""

    blocks: tuple[Block, ...]
    shape: FileShape
    # The rows in their new order. None: as they are.
    order: I64Array | None = None


def _placed(
    file: FileToChange, revision: Revision, kept: I64Array, height: int, weights: I32Array
) -> _Placed | None:
    """Return the places of the rows that stay in a file of `height` rows; None if they do not fit its blocks.

    `kept` are the old indexes of the rows, ascending.
    """
    blocks = file.blocks
    layout = None if file.layout is None else parse_layout(file.layout)
    shape = None if layout is None else FileShape.parse(layout, _counts(blocks))
    if shape is None or not len(blocks) or _counts(blocks).sum() != height:
        return None
    block_of = np.repeat(shape.runs.block, shape.runs.rows)[kept]
    in_blocks = np.argsort(block_of, kind="stable")
    left = np.bincount(block_of, minlength=len(blocks))
    if not _lie_in_blocks(weights[in_blocks], blocks, left):
        return None
    return _Placed(blocks, shape) if len(kept) == height else _thinner(blocks, revision, block_of, weights)


def _thinner(blocks: tuple[Block, ...], revision: Revision, block_of: I64Array, weights: I32Array) -> _Placed:
    """Arrange the rows that are left of blocks like those of a new file. Empty blocks are left out."""
    depths = decode_cubes([block.cube for block in blocks], dimensions=len(revision.columns)).depth.astype(
        np.int64
    )
    by_depth = np.lexsort((block_of, depths[block_of]))
    numbers = block_of[by_depth]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    found = numbers[starts]
    page_rows = page_rows_for(len(weights), cube_size=revision.desired_cube_size)
    arranged = arrange(weights[by_depth], starts, depths[found], page_rows=page_rows)
    counts = np.diff(starts, append=len(weights))
    stay = tuple(
        replace(
            blocks[found[place]],
            min_weight=int(weights[by_depth[starts[place]]]),
            element_count=int(counts[place]),
        )
        for place in arranged.blocks.tolist()
    )
    return _Placed(stay, arranged.shape, by_depth[arranged.rows])


def _counts(blocks: tuple[Block, ...]) -> I64Array:
    return np.array([block.element_count for block in blocks], np.int64)


def _lie_in_blocks(by_block: I32Array, blocks: tuple[Block, ...], left: I64Array) -> bool:
    """Return whether rows with these weights, in the order of blocks, are consistent with the blocks.

    `left` is the number of rows of each block. A block that lost rows may begin at a higher weight.
    """
    starts = np.cumsum(left) - left
    falls = np.flatnonzero(by_block[1:] < by_block[:-1]) + 1
    some = np.flatnonzero(left)
    lowest = np.array([blocks[number].min_weight for number in some.tolist()])
    highest = np.array([blocks[number].max_weight for number in some.tolist()])
    first, last = by_block[starts[some]], by_block[starts[some] + left[some] - 1]
    whole = left[some] == _counts(blocks)[some]
    begins = np.where(whole, first == lowest, first >= lowest)
    return bool(np.isin(falls, starts).all() and begins.all() and (last <= highest).all())
