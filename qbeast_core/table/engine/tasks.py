"""The part of a scattered write that any worker does: place rows, and write one file's worth of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from qbeast_core.io.store import Store, open_store
from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import BoolArray, I32Array, I64Array, U64Array
from qbeast_core.space.cubes import Cubes, encode_cubes
from qbeast_core.space.weights import MAX_WEIGHT
from qbeast_core.spec.block import Block, BlocksDialect
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import FileSettings, store_file
from qbeast_core.table.data.frames import ArrowStream, to_frame
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.grid import GRID_BITS
from qbeast_core.tree.outline import Outline
from qbeast_core.tree.pack import page_rows_for
from qbeast_core.tree.plan import grid_columns
from qbeast_core.tree.summary import DOMAIN_LIMITS, IndexSummary, SampleLimits, summarise

__all__ = [
    "FileTarget",
    "PlaceTask",
    "PlacedFile",
    "RowShape",
    "SummaryTask",
    "count_cubes",
    "sort_keys",
    "with_blocks",
]


_BIAS: Final = 1 << 31

_WEIGHT_BITS: Final = np.uint64(32)

_WEIGHT_MASK: Final = np.uint64((1 << 32) - 1)

_NO_RULES: Final = '{"fields":[]}'


@dataclass(frozen=True, slots=True)
class RowShape:
    """How rows become rows of the table: the Delta schema, the same as Polars types, whether columns may be missing."""

    schema_json: str
    schema: pl.Schema
    merge: bool

    def fit(self, rows: ArrowStream | pl.DataFrame) -> pl.DataFrame:
        """Return the rows with the table's columns and types.

        Raises
        ------
        SchemaMismatchError
            If they do not fit, or hold nulls where none may be.
        """
        return fit_frame(to_frame(rows), self.schema_json, self.schema, merge=self.merge)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """Where the files of an operation go, and what they follow; picklable.

    Attributes
    ----------
    uri : str
        The table, as workers reach it too.
    storage_options : Mapping
        As `deltalake` takes them.
    shape : RowShape
        Of the table's rows.
    configuration : Mapping
        The table's properties that files follow: those of Delta.
    dialect : BlocksDialect
        Of the table: a JVM may read files without the table's schema.
    """

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    shape: RowShape
    configuration: Mapping[str, str]
    dialect: BlocksDialect

    @staticmethod
    def of(
        uri: str,
        shape: RowShape,
        configuration: Mapping[str, str],
        *,
        dialect: BlocksDialect,
        storage_options: Mapping[str, str] | None = None,
    ) -> FileTarget:
        """Return the target of files in a table of that configuration."""
        kept = {key: value for key, value in configuration.items() if key.startswith("delta.")}
        return FileTarget(
            uri=uri,
            storage_options=dict(storage_options or {}),
            shape=shape,
            configuration=kept,
            dialect=dialect,
        )

    def settings(self, rows: pl.DataFrame, indexed: tuple[str, ...]) -> FileSettings:
        """Choose how files of such rows are encoded."""
        return FileSettings.of(rows, indexed, self.configuration, dialect=self.dialect)

    @property
    def store(self) -> Store:
        """The store below the table's root."""
        return open_store(self.uri, self.storage_options)


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """Summarises rows of the indexed columns; picklable.

    Parameters
    ----------
    schema : polars.Schema
        The indexed columns in order, of the table's types.
    cube_size : int, optional
        Rows that a cube will aim at, where that is known: how large a sample has to be.
    """

    schema: pl.Schema
    cube_size: int | None = None

    @property
    def limits(self) -> SampleLimits:
        """How large a summary may be: the same for parts and for what they merge to."""
        return DOMAIN_LIMITS

    def summarise(self, rows: ArrowStream | pl.DataFrame, *, first_row: int) -> IndexSummary:
        """Summarise one batch.

        Parameters
        ----------
        rows : anything with ``__arrow_c_stream__``
            The indexed columns alone, in order.
        first_row : int
            A number that no other row of the input has, nor the next ones have: 0 or more, below 2**63.

        Returns
        -------
        IndexSummary
            With a sample that a tree can be drawn from, and the sum of weights.
        """
        frame = RowShape(_NO_RULES, self.schema, merge=False).fit(rows)
        names = list(self.schema)
        found = summarise(frame, names, first_row=first_row, limits=self.limits)
        return replace(found, weight_sum=int(frame_weights(frame, names).sum(dtype=np.int64)))


@dataclass(frozen=True, slots=True, eq=False)
class PlaceTask:
    """Everything a worker needs; pickles to a few MB at most.

    Attributes
    ----------
    target : FileTarget
        Where the files go.
    revision : Revision
        The rows are indexed with.
    outline : Outline
        Where rows go.
    file_starts : ndarray of uint64, shape (files,)
        Sort key of the first row that each file may hold, increasing, the first one 0.
    file_rows : int
        Rows that a file aims at.
    rows, weight_sum : int
        Rows summarised, and the sum of their weights.
    """

    target: FileTarget
    revision: Revision
    outline: Outline
    file_starts: U64Array
    file_rows: int
    rows: int
    weight_sum: int

    @property
    def file_count(self) -> int:
        """Files that rows are sent to."""
        return len(self.file_starts)

    def fit(self, rows: ArrowStream | pl.DataFrame) -> pl.DataFrame:
        """Return rows as they came as rows of the table; see `RowShape.fit`."""
        return self.target.shape.fit(rows)

    def place(self, frame: pl.DataFrame) -> U64Array:
        """Return the sort key of each row: rows go to files, and lie in them, in the order of their keys.

        Parameters
        ----------
        frame : polars.DataFrame
            Rows as `fit` gives them.

        Returns
        -------
        ndarray of uint64, shape (rows,)
            File ``n`` takes the keys from ``file_starts[n]`` to the next one's start.
        """
        revision = self.revision
        weights = frame_weights(frame, revision.columns)
        return sort_keys(self.outline.place(grid_columns(frame, revision), weights), weights)

    def write_file(self, parts: Sequence[pl.DataFrame], keys: Sequence[U64Array]) -> list[PlacedFile]:
        """Write rows of one file, sorted, under a new name; more files than one where they are too many.

        Parameters
        ----------
        parts : sequence of polars.DataFrame
            Rows as `fit` gives them; held in memory twice.
        keys : sequence of ndarray of uint64
            The sort keys of each part.

        Raises
        ------
        StorageError
            If the store refuses.
        """
        frame = pl.concat(parts, rechunk=True)
        order, keys_in_order, children = self._ordered(frame, np.concatenate(list(keys)))
        pieces = max(round(frame.height / self.file_rows), 1) if frame.height > 2 * self.file_rows else 1
        cuts = [frame.height * i // pieces for i in range(pieces + 1)]
        return [
            self._write(frame[pl.Series(order[a:b])], keys_in_order[a:b], children[a:b])
            for a, b in pairwise(cuts)
            if a < b
        ]

    def _ordered(self, frame: pl.DataFrame, keys: U64Array) -> tuple[I64Array, U64Array, I64Array]:
        """Return the order of the rows, and in this order their keys and nameless children (0: none)."""
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        nodes, weights = _nodes_and_weights(keys)
        children = np.zeros(len(keys), np.int64)
        beyond = np.flatnonzero(weights > self.outline.thresholds[nodes])
        if len(beyond):
            depths = self.outline.cubes.depth[nodes[beyond]].astype(np.uint32)
            children[beyond] = self._child_codes(frame[pl.Series(order[beyond])], depths) + 1
            again = np.lexsort((weights, children, nodes))
            order, keys, children = order[again], keys[again], children[again]
        return order, keys, children

    def _child_codes(self, frame: pl.DataFrame, depths: npt.NDArray[np.uint32]) -> I64Array:
        shifts = np.uint32(GRID_BITS - 1) - depths
        codes = np.zeros(frame.height, np.int64)
        for cells in grid_columns(frame, self.revision):
            codes = (codes << 1) | ((cells >> shifts) & np.uint32(1)).astype(np.int64)
        return codes

    def _write(self, rows: pl.DataFrame, keys: U64Array, children: I64Array) -> PlacedFile:
        nodes, weights = _nodes_and_weights(keys)
        begins: BoolArray = np.concatenate(
            [[True], (nodes[1:] != nodes[:-1]) | (children[1:] != children[:-1])]
        )
        starts = np.flatnonzero(begins)
        revision = self.revision
        add = store_file(
            rows,
            weights,
            page_rows_for(rows.height, cube_size=revision.desired_cube_size),
            store=self.target.store,
            path=f"{uuid.uuid4()}.parquet",
            settings=self.target.settings(rows, revision.columns),
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        return PlacedFile(
            add=add,
            nodes=nodes[starts],
            children=children[starts],
            min_weights=weights[starts],
            counts=np.diff(starts, append=rows.height),
            weight_sum=int(weights.sum(dtype=np.int64)),
        )


def sort_keys(nodes: I32Array, weights: I32Array) -> U64Array:
    """Return numbers that sort rows by node and weight."""
    keys = nodes.astype(np.uint64) << _WEIGHT_BITS
    keys |= (weights.astype(np.int64) + _BIAS).astype(np.uint64)
    return keys


def _nodes_and_weights(keys: U64Array) -> tuple[I32Array, I32Array]:
    weights = (keys & _WEIGHT_MASK).astype(np.int64) - _BIAS
    return (keys >> _WEIGHT_BITS).astype(np.int32), weights.astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedFile:
    """A data file, and its blocks by numbers of an outline.

    Parameters
    ----------
    add : AddFile
        Without blocks.
    nodes : ndarray of int32, shape (blocks,)
        Node of each block, in the order of the file.
    children : ndarray of int64, shape (blocks,)
        0 for the node's own block, else 1 + the code of its nameless child.
    min_weights : ndarray of int32, shape (blocks,)
        Smallest weight in each block.
    counts : ndarray of int64, shape (blocks,)
        Rows of each block.
    weight_sum : int
        Sum of the weights of all rows.
    """

    add: AddFile
    nodes: I32Array
    children: I64Array
    min_weights: I32Array
    counts: I64Array
    weight_sum: int

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return int(self.counts.sum())

    def dump(self) -> bytes:
        """Return the file's facts as bytes."""
        add = self.add
        return orjson.dumps(
            {
                "add": [add.path, add.size, add.modification_time, add.stats, add.tags],
                "nodes": self.nodes,
                "children": self.children,
                "minWeights": self.min_weights,
                "counts": self.counts,
                "weightSum": self.weight_sum,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    @staticmethod
    def load(data: bytes) -> PlacedFile:
        """Return what was dumped."""
        facts = orjson.loads(data)
        path, size, modified, stats, tags = facts["add"]
        return PlacedFile(
            add=AddFile(path=path, size=size, modification_time=modified, stats=stats, tags=tags),
            nodes=np.array(facts["nodes"], np.int32),
            children=np.array(facts["children"], np.int64),
            min_weights=np.array(facts["minWeights"], np.int32),
            counts=np.array(facts["counts"], np.int64),
            weight_sum=facts["weightSum"],
        )


def with_blocks(files: Sequence[PlacedFile], outline: Outline) -> list[AddFile]:
    """Return the files with their blocks: cubes by name, thresholds as they are now that all rows are known.

    Parameters
    ----------
    files : sequence of PlacedFile
        All files of a write.
    outline : Outline
        By which their rows were placed.
    """
    if not files:
        return []
    nodes = np.concatenate([file.nodes for file in files])
    children = np.concatenate([file.children for file in files])
    used = np.zeros(len(outline.thresholds), np.bool_)
    below = used.copy()
    used[nodes[children == 0]] = True
    below[nodes[children > 0]] = True
    highest = outline.max_weights(used, below)[nodes]
    highest[children > 0] = MAX_WEIGHT
    texts = encode_cubes(_cubes(outline, nodes, children))
    blocks = [
        Block(cube=cube, min_weight=low, max_weight=high, element_count=count)
        for cube, low, high, count in zip(
            texts,
            np.concatenate([file.min_weights for file in files]).tolist(),
            highest.tolist(),
            np.concatenate([file.counts for file in files]).tolist(),
            strict=True,
        )
    ]
    ends = np.cumsum([len(file.nodes) for file in files]).tolist()
    return [
        file.add.model_copy(update={"blocks": tuple(blocks[end - len(file.nodes) : end])})
        for file, end in zip(files, ends, strict=True)
    ]


def count_cubes(files: Sequence[PlacedFile]) -> int:
    """Return how many cubes took rows.

    Examples
    --------
    >>> count_cubes([])
    0
    """
    if not files:
        return 0
    nodes = np.concatenate([file.nodes.astype(np.int64) for file in files])
    children = np.concatenate([file.children for file in files])
    return len(np.unique(np.stack([nodes, children]), axis=1).T)


def _cubes(outline: Outline, nodes: I32Array, children: I64Array) -> Cubes:
    depths, cells = outline.cubes.depth[nodes], outline.cubes.cells[nodes]
    nameless = np.flatnonzero(children)
    shifts = np.arange(outline.dimensions - 1, -1, -1)
    bits = ((children[nameless, None] - 1) >> shifts) & 1
    cells[nameless] = (cells[nameless] << np.uint64(1)) | bits.astype(np.uint64)
    depths[nameless] += np.uint8(1)
    return Cubes(depths, cells)
