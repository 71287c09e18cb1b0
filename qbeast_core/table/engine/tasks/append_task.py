"""Append with independent tasks. A task indexes the rows that fit the newest revision and stages the others.

A task cannot make a revision. Rows that need one go to staging files, which optimize indexes later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.space.values import distinct
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import new_id
from qbeast_core.table.data.files import CodedRows, FileSettings, delete_data_files, write_data_files
from qbeast_core.table.data.frames import FrameLike
from qbeast_core.table.engine.file_target import FileTarget
from qbeast_core.table.engine.tasks.store_files import PlainTask, rows_of, settings_for, store_arranged
from qbeast_core.tree.build import ExistingTree, partitions_of
from qbeast_core.tree.files import plan_index, rows_per_file
from qbeast_core.tree.fit import rows_outside
from qbeast_core.tree.grid import frame_weights
from qbeast_core.tree.summary import NO_PARTITIONS

_ALL_BYTES: Final = 1 << 62  # the rows are in memory already
_MAX_WRITERS: Final = 4  # other tasks write beside this one


@dataclass(frozen=True, slots=True, eq=False)
class AppendedPart:
    """Files that one task wrote. They are invisible until a commit names them."""

    # Version that the task was planned on.
    version: int
    revision: Revision | None
    # Files with blocks, and files without index.
    indexed: tuple[AddFile, ...]
    staged: tuple[AddFile, ...]
    rows: int

    @property
    def files(self) -> tuple[AddFile, ...]:
        """All of the files."""
        return self.indexed + self.staged


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
            adds = tuple(PlainTask(target=self.target, max_bytes=_ALL_BYTES).write([data]))
            return AppendedPart(self.version, None, (), adds, rows_of(adds))
        frame = self.target.shape.fit(data)
        settings = settings_for(self.target, frame, self.indexed)
        revision = self.revision
        outside = np.ones(frame.height, np.bool_) if revision is None else rows_outside(frame, revision)
        written: list[AddFile] = []
        try:
            if revision is not None and not outside.all():
                inside = frame.filter(pl.Series(~outside)) if outside.any() else frame
                written += self._index(inside, revision, settings)
            indexed = tuple(written)
            self._stage(frame.filter(pl.Series(outside)), settings, written)
        except BaseException:  # also after an interrupt or a panic of Rust
            delete_data_files(self.target.store, written)
            raise
        return AppendedPart(self.version, revision, indexed, tuple(written[len(indexed) :]), frame.height)

    def _index(self, frame: pl.DataFrame, revision: Revision, settings: FileSettings) -> list[AddFile]:
        weights = frame_weights(frame, revision.hashed)
        partitions = partitions_of(self.tree).with_rows(frame.select(self.target.columns.partitions))
        plan = plan_index(
            frame,
            revision,
            weights,
            existing=self.tree,
            file_rows=_file_rows(frame),
            trees=partitions.numbers(frame),
        )
        writers = min(_MAX_WRITERS, os.cpu_count() or 1)
        return write_data_files(
            CodedRows(frame, settings), plan, store=self.target.store, settings=settings, writers=writers
        )

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
                sorted_rows = frame[pl.Series(rows)]
                path = f"{new_id()}.parquet"
                add = store_arranged(self.target, sorted_rows, weights[rows], settings, path=path)
                written.append(add.without_index())


def _file_rows(frame: pl.DataFrame) -> int:
    return rows_per_file(frame.estimated_size() / max(frame.height, 1))
