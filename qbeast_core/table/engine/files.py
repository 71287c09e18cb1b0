"""Tasks of workers that write files: summarise rows, place them, write them with blocks, or append alone.

A task cannot make a revision. Rows that need one go to staging files, which optimize indexes later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InputChangedError
from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.space.cubes import Cubes, encode_cubes
from qbeast_core.space.values import MAX_WEIGHT, BoolArray, I32Array, I64Array, U64Array, distinct
from qbeast_core.spec.blocks import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.files import (
    CodedRows,
    FileSettings,
    FileTarget,
    NewFile,
    RowShape,
    delete_data_files,
    store_file,
    write_data_files,
)
from qbeast_core.table.data.frames import ArrowStream, FrameLike
from qbeast_core.table.read.tasks import ScanTask
from qbeast_core.tree.build import ExistingTree, partitions_of
from qbeast_core.tree.files import plan_index, rows_per_file
from qbeast_core.tree.fit import rows_outside
from qbeast_core.tree.grid import GRID_BITS, child_codes, frame_weights, grid_columns
from qbeast_core.tree.outline import Outline
from qbeast_core.tree.summary import (
    NO_PARTITIONS,
    IndexSummary,
    Partitions,
    SampleLimits,
    domain_limits,
    merge_summaries,
    summarise,
    with_stored_values,
)

_NO_RULES: Final = '{"fields":[]}'
_BIAS: Final = 1 << 31
_WEIGHT_BITS: Final = np.uint64(32)
_WEIGHT_MASK: Final = np.uint64((1 << 32) - 1)

# More rows than a task has.
_ROWS_OF_TASK: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """Summarises rows of the indexed columns. Picklable."""

    schema: pl.Schema
    cube_size: int | None = None
    limits: SampleLimits = field(default_factory=domain_limits)
    # Summarise rows outside the space of this revision separately, see `IndexSummary.outside`.
    apart: Revision | None = None
    # Schema of the partition columns.
    partitions: pl.Schema = field(default_factory=pl.Schema)
    # Schema of the sampling key. Empty: the weight of a row is the hash of the columns of `schema`.
    sample_by: pl.Schema = field(default_factory=pl.Schema)

    @property
    def read_schema(self) -> pl.Schema:
        """Schema of all columns to read."""
        return pl.Schema({**self.schema, **self.sample_by, **self.partitions})

    @property
    def hashed(self) -> list[str]:
        """Columns whose hash is the weight of a row."""
        return list(self.sample_by or self.schema)

    def summarise(self, rows: ArrowStream | pl.DataFrame, *, first_row: int) -> IndexSummary:
        """Summarise one batch."""
        partitions = tuple(self.partitions)
        frame = RowShape(_NO_RULES, self.read_schema, merge=False, partitions=partitions).fit(rows)
        if self.apart is None:
            return self._summarise(frame, first_row)
        inside, outside = (self._summarise(part, first_row) for part in split_rows(frame, self.apart))
        return replace(inside, outside=outside)

    def _summarise(self, frame: pl.DataFrame, first_row: int) -> IndexSummary:
        summary = summarise(
            frame,
            list(self.schema),
            partitions=list(self.partitions),
            sample_by=list(self.sample_by),
            first_row=first_row,
            limits=self.limits,
        )
        return replace(summary, weight_sum=int(frame_weights(frame, self.hashed).sum(dtype=np.int64)))


def split_rows(rows: pl.DataFrame, revision: Revision) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows inside, and those outside the space of a revision."""
    outside = pl.Series(rows_outside(rows, revision), dtype=pl.Boolean)
    return rows.filter(~outside), rows.filter(outside)


@dataclass(frozen=True, slots=True, eq=False)
class PlaceTask:
    """Places rows and writes files. The pickle has a few MB at most."""

    target: FileTarget
    revision: Revision
    outline: Outline
    # Lowest sort key of each file, ascending; the first is 0.
    file_starts: U64Array
    # Target number of rows per file.
    file_rows: int
    # Number of summarised rows, and the sum of their weights.
    rows: int
    weight_sum: int
    # Partitions of the table and of the summarised rows. Each has a tree in the outline.
    partitions: Partitions = NO_PARTITIONS
    # Revision whose space holds the rows to place, or not, if they are outside. None: all rows.
    part: tuple[Revision, bool] | None = None

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self.file_starts)

    def select(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that this task places."""
        rows = with_stored_values(rows, self.target.columns.partitions)
        if self.part is None:
            return rows
        revision, is_outside = self.part
        return split_rows(rows, revision)[is_outside]

    def place(self, frame: pl.DataFrame) -> U64Array:
        """Return the sort key of each row. It defines the order of rows across and within files."""
        revision = self.revision
        weights = frame_weights(frame, revision.hashed)
        trees = self.partitions.numbers(frame)
        if trees is not None and (trees < 0).any():
            msg = (
                "the rows changed while they were written: the second read returned a value of "
                f"{', '.join(self.partitions.columns)} that the first did not. Pass rows that "
                "are the same each time."
            )
            raise InputChangedError(msg, rows_before=self.rows)
        nodes = self.outline.place(grid_columns(frame, revision), weights, trees)
        return sort_keys(self.outline, nodes, weights)


def sort_keys(outline: Outline, nodes: I32Array, weights: I32Array) -> U64Array:
    """Return keys that sort rows in the order of data files: by node of the outline, then by weight."""
    keys = outline.places_in_files[nodes].astype(np.uint64) << _WEIGHT_BITS
    keys |= (weights.astype(np.int64) + _BIAS).astype(np.uint64)
    return keys


def _nodes_and_weights(outline: Outline, keys: U64Array) -> tuple[I32Array, I32Array]:
    """Return the node and the weight of each row from its sort key."""
    weights = (keys & _WEIGHT_MASK).astype(np.int64) - _BIAS
    return outline.nodes_in_files[keys >> _WEIGHT_BITS], weights.astype(np.int32)


def summarise_task(names: Sequence[str], item: tuple[int, ScanTask]) -> IndexSummary:
    """Summarise some columns of the rows of a numbered task, by batches."""
    number, task = item
    row, parts = number * _ROWS_OF_TASK, list[IndexSummary]()
    for frame in task.read():
        parts.append(summarise(frame, names, first_row=row))
        row += frame.height
    return merge_summaries(parts)


def write_plain(batches: Iterable[FrameLike], target: FileTarget, *, max_bytes: int) -> list[AddFile]:
    """Write rows to files without an index, of one partition each. If that fails, the written files are deleted.

    The rows in memory that wait for their file have at most `max_bytes`.
    """
    files = _PlainFiles(target)
    try:
        for batch in batches:
            files.add(target.shape.fit(batch), max_bytes=max_bytes)
        for key in list(files.waiting):
            files.write(key)
    except BaseException:  # also after an interrupt or a panic of Rust
        delete_data_files(target.store, files.adds)
        raise
    return files.adds


def rows_of(adds: Iterable[AddFile]) -> int:
    """Return the number of rows of new files."""
    return sum(int(orjson.loads(add.stats or "{}")["numRecords"]) for add in adds)


class _PlainFiles:
    """The files so far, and the rows that wait for their file, by the values of the partition columns."""

    def __init__(self, target: FileTarget) -> None:
        self.target = target
        self.adds: list[AddFile] = []
        self.waiting: dict[tuple[object, ...], list[pl.DataFrame]] = {}

    def add(self, rows: pl.DataFrame, *, max_bytes: int) -> None:
        """Add rows. Write files that are full, then the largest ones until the others need at most `max_bytes`."""
        partitions = self.target.columns.partitions
        parts = rows.partition_by(partitions, maintain_order=True, as_dict=True) if partitions else {(): rows}
        for key, part in parts.items():
            held = self.waiting.setdefault(key, [])
            held.append(part)
            if sum(frame.height for frame in held) >= _rows_per_file(held):
                self.write(key)
        sizes = {key: _size_bytes(held) for key, held in self.waiting.items()}
        while sum(sizes.values()) > max_bytes:
            largest = max(sizes, key=sizes.__getitem__)
            self.write(largest)
            del sizes[largest]

    def write(self, key: tuple[object, ...]) -> None:
        """Write the waiting rows of a partition."""
        held = self.waiting.pop(key)
        rows = pl.concat(held)
        count = max(round(rows.height / _rows_per_file(held)), 1)
        for places in np.array_split(np.arange(rows.height), min(count, rows.height)) if rows.height else ():
            part = rows.slice(int(places[0]), len(places))
            self.adds.append(store_file(NewFile(part), FileSettings.of(self.target, part, ())))


def _size_bytes(frames: list[pl.DataFrame]) -> int:
    return sum(int(frame.estimated_size()) for frame in frames)


def _rows_per_file(frames: list[pl.DataFrame]) -> int:
    return rows_per_file(_size_bytes(frames) / max(sum(frame.height for frame in frames), 1))


# Returns the rows at some places, with some columns.
Take: TypeAlias = Callable[[I64Array, Sequence[str]], pl.DataFrame]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedFile:
    """A data file, whose blocks have the thresholds of the outline, see `with_final_thresholds`."""

    add: AddFile
    # Node of the outline of each block; of a child, which is not a node, the inverted bits of its parent.
    nodes: I32Array
    weight_sum: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(block.element_count for block in self.add.blocks or ())


def write_file(task: PlaceTask, parts: Sequence[pl.DataFrame], keys: Sequence[U64Array]) -> list[PlacedFile]:
    """Write the rows of one file. Too many rows are split into several files."""
    rows = pl.concat(parts, rechunk=True)
    all_keys = np.concatenate(list(keys))

    def take(places: I64Array, names: Sequence[str]) -> pl.DataFrame:
        return rows.select(names)[pl.Series(places)]

    files = files_of_rows(task, take, all_keys, np.arange(rows.height))
    return [store_placed(task, file, nodes) for file, nodes in files]


def files_of_rows(
    task: PlaceTask, take: Take, keys: U64Array, places: I64Array
) -> list[tuple[NewFile, I32Array]]:
    """Return the file of the rows at some places, and the nodes of its blocks. Too many rows are split into several."""
    order, sorted_keys, children = _ordered(task, take, keys, places)
    height = len(order)
    pieces = max(round(height / task.file_rows), 1) if height > 2 * task.file_rows else 1
    cuts = [height * i // pieces for i in range(pieces + 1)]
    return [
        _new_file(task, take, order[a:b], sorted_keys[a:b], children[a:b]) for a, b in pairwise(cuts) if a < b
    ]


def store_placed(
    task: PlaceTask, file: NewFile, nodes: I32Array, *, settings: FileSettings | None = None
) -> PlacedFile:
    """Write a file with a new name."""
    settings = settings or FileSettings.of(task.target, file.rows, task.revision.columns)
    weight_sum = 0 if file.weights is None else int(file.weights.sum(dtype=np.int64))
    return PlacedFile(store_file(file, settings), nodes, weight_sum)


def _new_file(
    task: PlaceTask, take: Take, order: I64Array, keys: U64Array, children: I64Array
) -> tuple[NewFile, I32Array]:
    """Return a file, given the places, keys and children of its rows in the order of blocks, and its blocks' nodes."""
    nodes, weights = _nodes_and_weights(task.outline, keys)
    begins: BoolArray = np.concatenate([[True], (nodes[1:] != nodes[:-1]) | (children[1:] != children[:-1])])
    starts = np.flatnonzero(begins)
    counts = np.diff(starts, append=len(keys))
    nodes, children = nodes[starts], children[starts]
    highest = np.where(children > 0, MAX_WEIGHT, task.outline.thresholds[nodes])
    columns = (column.tolist() for column in (weights[starts], highest, counts))
    blocks = tuple(
        Block(cube=cube, min_weight=low, max_weight=high, element_count=count)
        for cube, low, high, count in zip(
            encode_cubes(_cubes(task.outline, nodes, children)), *columns, strict=True
        )
    )
    by_place = np.argsort(order)
    rows = take(order[by_place], list(task.target.shape.schema))
    file = NewFile(rows, weights[by_place], task.revision, blocks)
    return file, np.where(children > 0, ~nodes, nodes).astype(np.int32)


def _ordered(
    task: PlaceTask, take: Take, keys: U64Array, places: I64Array
) -> tuple[I64Array, U64Array, I64Array]:
    """Return the order of the rows, and in this order their keys and children (0: none).

    Rows above the threshold of their node go to a child cube, which is not a node of the outline.
    """
    order = places[np.argsort(keys[places])]
    keys = keys[order]
    nodes, weights = _nodes_and_weights(task.outline, keys)
    children = np.zeros(len(keys), np.int64)
    beyond = np.flatnonzero(weights > task.outline.thresholds[nodes])
    if len(beyond):
        shifts = np.uint32(GRID_BITS - 1) - task.outline.cubes.depth[nodes[beyond]].astype(np.uint32)
        cells = grid_columns(take(order[beyond], task.revision.columns), task.revision)
        children[beyond] = child_codes([column >> shifts for column in cells]) + 1
        by_child = np.lexsort((weights, children, task.outline.places_in_files[nodes]))
        order, keys, children = order[by_child], keys[by_child], children[by_child]
    return order, keys, children


def with_final_thresholds(files: Sequence[PlacedFile], outline: Outline) -> list[AddFile]:
    """Return the files with the thresholds of their blocks, which depend on the cubes that all files use."""
    if not files:
        return []
    nodes = np.concatenate([file.nodes for file in files])
    is_child = nodes < 0
    nodes = np.where(is_child, ~nodes, nodes)
    used = np.zeros(len(outline.thresholds), np.bool_)
    below = used.copy()
    used[nodes[~is_child]] = True
    below[nodes[is_child]] = True
    highest = np.where(is_child, MAX_WEIGHT, outline.max_weights(used, below)[nodes])
    of_files = np.split(highest, np.cumsum([len(file.nodes) for file in files])[:-1])
    return [_with_thresholds(file.add, some.tolist()) for file, some in zip(files, of_files, strict=True)]


def _with_thresholds(add: AddFile, highest: Sequence[int]) -> AddFile:
    pairs = zip(add.blocks or (), highest, strict=True)
    return add.model_copy(update={"blocks": tuple(replace(block, max_weight=high) for block, high in pairs)})


def _cubes(outline: Outline, nodes: I32Array, children: I64Array) -> Cubes:
    depths, cells = outline.cubes.depth[nodes], outline.cubes.cells[nodes]
    is_child = np.flatnonzero(children)
    shifts = np.arange(outline.dimensions - 1, -1, -1)
    bits = ((children[is_child, None] - 1) >> shifts) & 1
    cells[is_child] = (cells[is_child] << np.uint64(1)) | bits.astype(np.uint64)
    depths[is_child] += np.uint8(1)
    return Cubes(depths, cells)


_ALL_BYTES: Final = 1 << 62  # the rows are in memory already
_MAX_WRITERS: Final = 4  # other tasks write beside this one


@dataclass(frozen=True, slots=True, eq=False)
class AppendedPart:
    """Files that one task wrote. They are invisible until a commit names them."""

    # Version that the task was planned on.
    version: int
    revision: Revision | None
    # Files without blocks wait for an index.
    files: tuple[AddFile, ...]
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class AppendTask:
    """State of the table that a task needs for an append. Picklable; about as large as the outline of the tree."""

    # Local tables have absolute paths.
    target: FileTarget
    version: int
    indexed: tuple[str, ...]
    # Revision to index in. None: the table has no revision yet, and all rows are staged.
    revision: Revision | None = field(repr=False)
    tree: ExistingTree | None = field(repr=False)
    # Returns the metadata of a new table, or of one that is replaced, given its rows. None: the task appends.
    begins: Callable[[int], Metadata] | None = field(default=None, repr=False)

    def write(self, data: FrameLike) -> AppendedPart:
        """Write the rows of this task, planned without the rows of other tasks."""
        if not self.indexed:  # a table without index
            adds = tuple(write_plain([data], self.target, max_bytes=_ALL_BYTES))
            return AppendedPart(self.version, None, adds, rows_of(adds))
        frame = self.target.shape.fit(data)
        settings = FileSettings.of(self.target, frame, self.indexed)
        revision = self.revision
        outside = np.ones(frame.height, np.bool_) if revision is None else rows_outside(frame, revision)
        written: list[AddFile] = []
        try:
            if revision is not None and not outside.all():
                inside = frame.filter(pl.Series(~outside)) if outside.any() else frame
                written += self._index(inside, revision, settings)
            self._stage(frame.filter(pl.Series(outside)), settings, written)
        except BaseException:  # also after an interrupt or a panic of Rust
            delete_data_files(self.target.store, written)
            raise
        return AppendedPart(self.version, revision, tuple(written), frame.height)

    def _index(self, frame: pl.DataFrame, revision: Revision, settings: FileSettings) -> list[AddFile]:
        weights = frame_weights(frame, revision.hashed)
        partitions = partitions_of(self.tree).with_rows(frame.select(self.target.columns.partitions))
        plan = plan_index(
            grid_columns(frame, revision),
            revision,
            weights,
            existing=self.tree,
            file_rows=_file_rows(frame),
            trees=partitions.numbers(frame),
        )
        writers = min(_MAX_WRITERS, os.cpu_count() or 1)
        return write_data_files(CodedRows(frame, settings), plan, settings=settings, writers=writers)

    def _stage(self, frame: pl.DataFrame, settings: FileSettings, written: list[AddFile]) -> None:
        """Write rows without index, the lowest weights first, so that samples can skip some of these files."""
        names = self.target.columns.partitions
        trees = NO_PARTITIONS.with_rows(frame.select(names)).numbers(frame)
        for tree in () if trees is None else distinct(trees):
            self._stage_tree(frame.filter(pl.Series(trees == tree)), settings, written)
        if trees is None:
            self._stage_tree(frame, settings, written)

    def _stage_tree(self, frame: pl.DataFrame, settings: FileSettings, written: list[AddFile]) -> None:
        weights = frame_weights(frame, self.target.sample_by or self.indexed)
        order = np.argsort(weights, kind="stable")
        for rows in np.array_split(order, max(-(-frame.height // _file_rows(frame)), 1)):
            if len(rows):
                file = NewFile(frame[pl.Series(rows)], weights[rows])
                written.append(store_file(file, settings).without_index())


def _file_rows(frame: pl.DataFrame) -> int:
    return rows_per_file(frame.estimated_size() / max(frame.height, 1))
