"""Write the placed rows of one file, and compute the blocks of all files of a write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.replay import FileIndex
from qbeast_core.space.cubes import Cubes, encode_cubes
from qbeast_core.space.values import MAX_WEIGHT, BoolArray, I32Array, I64Array, U64Array
from qbeast_core.spec.blocks import Block
from qbeast_core.support.process import new_id
from qbeast_core.table.data.files import FileSettings, arrange_rows, store_file
from qbeast_core.table.engine.tasks.passes import PlaceTask, nodes_and_weights
from qbeast_core.table.engine.tasks.store_files import settings_for
from qbeast_core.tree.grid import GRID_BITS, child_codes, grid_columns
from qbeast_core.tree.outline import Outline

# Returns the rows at some places, with some columns.
Take: TypeAlias = Callable[[I64Array, Sequence[str]], pl.DataFrame]


@dataclass(frozen=True, slots=True, eq=False)
class FileBlocks:
    """The blocks of a file. `nodes` are indexes of the outline; `children` are codes, 0 for none."""

    nodes: I32Array
    children: I64Array
    min_weights: I32Array
    counts: I64Array


@dataclass(frozen=True, slots=True, eq=False)
class PlacedFile:
    """A data file and its blocks."""

    add: AddFile
    blocks: FileBlocks
    weight_sum: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.blocks.counts.sum())


@dataclass(slots=True, eq=False)
class RowsOfFile:
    """The rows of a data file to write, in the order of the input, and its blocks."""

    rows: pl.DataFrame
    weights: I32Array
    blocks: FileBlocks

    def pop_rows(self) -> pl.DataFrame:
        """Return the rows without keeping them: they are freed once they are copied into the order of the file."""
        rows, self.rows = self.rows, self.rows.clear()
        return rows


def write_file(task: PlaceTask, parts: Sequence[pl.DataFrame], keys: Sequence[U64Array]) -> list[PlacedFile]:
    """Write the rows of one file. Too many rows are split into several files."""
    rows = pl.concat(parts, rechunk=True)
    all_keys = np.concatenate(list(keys))

    def take(places: I64Array, names: Sequence[str]) -> pl.DataFrame:
        return rows.select(names)[pl.Series(places)]

    return [store_placed(task, file) for file in rows_of_files(task, take, all_keys, np.arange(rows.height))]


def rows_of_files(task: PlaceTask, take: Take, keys: U64Array, places: I64Array) -> list[RowsOfFile]:
    """Return the rows of one file, which are at some places of all rows. Too many rows are split into several files."""
    order, sorted_keys, children = _ordered(task, take, keys, places)
    height = len(order)
    pieces = max(round(height / task.file_rows), 1) if height > 2 * task.file_rows else 1
    cuts = [height * i // pieces for i in range(pieces + 1)]
    return [
        _of_file(task, take, order[a:b], sorted_keys[a:b], children[a:b]) for a, b in pairwise(cuts) if a < b
    ]


def store_placed(task: PlaceTask, file: RowsOfFile, *, settings: FileSettings | None = None) -> PlacedFile:
    """Write a file with a new name."""
    settings = settings or settings_for(task.target, file.rows, task.revision.columns)
    index = FileIndex(task.revision, _planned_blocks(file.blocks, task.outline))
    path = f"{new_id()}.parquet"
    arranged = arrange_rows(file.pop_rows, file.weights, settings, index)
    put = task.target.store.put
    add = store_file(arranged, put=put, path=path, settings=settings, index=index)[0]
    return PlacedFile(add, file.blocks, int(file.weights.sum(dtype=np.int64)))


def _of_file(task: PlaceTask, take: Take, order: I64Array, keys: U64Array, children: I64Array) -> RowsOfFile:
    """Return the rows of a file, given their places, keys and children in the order of blocks."""
    nodes, weights = nodes_and_weights(task.outline, keys)
    begins: BoolArray = np.concatenate([[True], (nodes[1:] != nodes[:-1]) | (children[1:] != children[:-1])])
    starts = np.flatnonzero(begins)
    blocks = FileBlocks(nodes[starts], children[starts], weights[starts], np.diff(starts, append=len(keys)))
    by_place = np.argsort(order)
    return RowsOfFile(take(order[by_place], list(task.target.shape.schema)), weights[by_place], blocks)


def _ordered(
    task: PlaceTask, take: Take, keys: U64Array, places: I64Array
) -> tuple[I64Array, U64Array, I64Array]:
    """Return the order of the rows, and in this order their keys and children (0: none).

    Rows above the threshold of their node go to a child cube, which is not a node of the outline.
    """
    order = places[np.argsort(keys[places])]
    keys = keys[order]
    nodes, weights = nodes_and_weights(task.outline, keys)
    children = np.zeros(len(keys), np.int64)
    beyond = np.flatnonzero(weights > task.outline.thresholds[nodes])
    if len(beyond):
        depths = task.outline.cubes.depth[nodes[beyond]].astype(np.uint32)
        indexed = take(order[beyond], task.revision.columns)
        children[beyond] = _child_codes(task, indexed, depths) + 1
        by_child = np.lexsort((weights, children, task.outline.places_in_files[nodes]))
        order, keys, children = order[by_child], keys[by_child], children[by_child]
    return order, keys, children


def _child_codes(task: PlaceTask, frame: pl.DataFrame, depths: npt.NDArray[np.uint32]) -> I64Array:
    shifts = np.uint32(GRID_BITS - 1) - depths
    return child_codes([cells >> shifts for cells in grid_columns(frame, task.revision)])


def with_blocks(files: Sequence[PlacedFile], outline: Outline) -> list[AddFile]:
    """Return the files with their blocks. Thresholds depend on the cubes that all files use."""
    if not files:
        return []
    of_files = [file.blocks for file in files]
    nodes = np.concatenate([blocks.nodes for blocks in of_files])
    children = np.concatenate([blocks.children for blocks in of_files])
    used = np.zeros(len(outline.thresholds), np.bool_)
    below = used.copy()
    used[nodes[children == 0]] = True
    below[nodes[children > 0]] = True
    merged = FileBlocks(
        nodes,
        children,
        np.concatenate([blocks.min_weights for blocks in of_files]),
        np.concatenate([blocks.counts for blocks in of_files]),
    )
    blocks = _blocks(merged, outline, outline.max_weights(used, below))
    ends = np.cumsum([len(blocks.nodes) for blocks in of_files]).tolist()
    return [
        file.add.model_copy(update={"blocks": blocks[end - len(file.blocks.nodes) : end]})
        for file, end in zip(files, ends, strict=True)
    ]


def _planned_blocks(blocks: FileBlocks, outline: Outline) -> tuple[Block, ...]:
    """Return the blocks of one file, before it is known which cubes the other files use."""
    return _blocks(blocks, outline, outline.thresholds)


def _blocks(blocks: FileBlocks, outline: Outline, max_weights: I32Array) -> tuple[Block, ...]:
    """Return blocks, given the `maxWeight` of each node."""
    highest = max_weights[blocks.nodes]
    highest[blocks.children > 0] = MAX_WEIGHT
    texts = encode_cubes(_cubes(outline, blocks.nodes, blocks.children))
    columns = (column.tolist() for column in (blocks.min_weights, highest, blocks.counts))
    return tuple(
        Block(cube=cube, min_weight=low, max_weight=high, element_count=count)
        for cube, low, high, count in zip(texts, *columns, strict=True)
    )


def _cubes(outline: Outline, nodes: I32Array, children: I64Array) -> Cubes:
    depths, cells = outline.cubes.depth[nodes], outline.cubes.cells[nodes]
    is_child = np.flatnonzero(children)
    shifts = np.arange(outline.dimensions - 1, -1, -1)
    bits = ((children[is_child, None] - 1) >> shifts) & 1
    cells[is_child] = (cells[is_child] << np.uint64(1)) | bits.astype(np.uint64)
    depths[is_child] += np.uint8(1)
    return Cubes(depths, cells)
