"""Tasks for the two passes of workers over rows: summarise the rows, then place them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InputChangedError
from qbeast_core.space.values import I32Array, U64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.frames import ArrowStream
from qbeast_core.table.engine.file_target import FileTarget, RowShape
from qbeast_core.table.read.scan_task import ScanTask
from qbeast_core.tree.fit import rows_outside
from qbeast_core.tree.grid import frame_weights, grid_columns
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
        parts = [SpacePart(self.apart, outside).select(frame) for outside in (False, True)]
        inside, outside = (self._summarise(part, first_row) for part in parts)
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


@dataclass(frozen=True, slots=True)
class SpacePart:
    """The rows inside or outside the space of a revision."""

    revision: Revision
    outside: bool

    def select(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the part."""
        outside = pl.Series(rows_outside(rows, self.revision), dtype=pl.Boolean)
        return rows.filter(outside if self.outside else ~outside)


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
    # Part of the rows to place. None: all rows.
    part: SpacePart | None = None

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self.file_starts)

    def select(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that this task places."""
        rows = with_stored_values(rows, self.target.columns.partitions)
        return rows if self.part is None else self.part.select(rows)

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


def nodes_and_weights(outline: Outline, keys: U64Array) -> tuple[I32Array, I32Array]:
    """Return the node and the weight of each row from its sort key."""
    weights = (keys & _WEIGHT_MASK).astype(np.int64) - _BIAS
    return outline.nodes_in_files[keys >> _WEIGHT_BITS], weights.astype(np.int32)


@dataclass(frozen=True, slots=True)
class SummariseTask:
    """Summarises some columns, by batches. Picklable."""

    names: tuple[str, ...]

    def __call__(self, item: tuple[int, ScanTask]) -> IndexSummary:
        """Summarise the rows of a numbered task."""
        number, task = item
        row, parts = number * _ROWS_OF_TASK, list[IndexSummary]()
        for frame in task.read():
            parts.append(summarise(frame, self.names, first_row=row))
            row += frame.height
        return merge_summaries(parts)
