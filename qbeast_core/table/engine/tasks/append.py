"""Appends by many tasks, each knowing its own rows alone: index what fits the newest revision, stage the rest.

A task cannot make a revision. Rows that would ask for one go to staging files, which optimize indexes later.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.spec.revision import Revision
from qbeast_core.support.runtime import new_id
from qbeast_core.table.data.data_files import (
    CodedRows,
    FileSettings,
    delete_data_files,
    store_file,
    write_data_files,
)
from qbeast_core.table.data.frames import FrameLike
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.layout.existing import ExistingTree
from qbeast_core.tree.layout.pack import page_rows_for, rows_per_file
from qbeast_core.tree.layout.plan import plan_index
from qbeast_core.tree.space.columns import frame_weights
from qbeast_core.tree.space.outside import rows_outside

_MAX_WRITERS: Final = 4  # other tasks write beside this one


@dataclass(frozen=True, slots=True, eq=False)
class AppendedPart:
    """What one part wrote: invisible files, until a commit names them."""

    # The version that was looked at.
    version: int
    revision: Revision | None
    # Files with blocks still to be spelled, and files without index.
    indexed: tuple[AddFile, ...]
    staged: tuple[AddFile, ...]
    rows: int

    @property
    def files(self) -> tuple[AddFile, ...]:
        """All of the files."""
        return self.indexed + self.staged


@dataclass(frozen=True, slots=True, eq=False)
class AppendTask:
    """What a task must know of the table it appends to. It pickles; its size is that of the tree's outline."""

    # Where files go; local tables by absolute paths.
    target: FileTarget
    version: int
    indexed: tuple[str, ...]
    # To index in; None: the table has no real revision yet, and all rows are staged.
    revision: Revision | None = field(repr=False)
    tree: ExistingTree | None = field(repr=False)

    def write(self, data: FrameLike) -> AppendedPart:
        """Write some of the rows: planned for themselves, on the table as it was looked at."""
        frame = self.target.shape.fit(data)
        settings = FileSettings.of(
            frame, self.indexed, self.target.configuration, dialect=self.target.dialect
        )
        revision = self.revision
        outside = np.ones(frame.height, np.bool_) if revision is None else rows_outside(frame, revision)
        written: list[AddFile] = []
        try:
            if revision is not None and not outside.all():
                inside = frame.filter(pl.Series(~outside)) if outside.any() else frame
                written += self._index(inside, revision, settings)
            indexed = tuple(written)
            self._stage(frame.filter(pl.Series(outside)), settings, written)
        except BaseException:  # an interrupt or a panic of Rust leaves no files either; raised again
            delete_data_files(self.target.store, written)
            raise
        return AppendedPart(self.version, revision, indexed, tuple(written[len(indexed) :]), frame.height)

    def _index(self, frame: pl.DataFrame, revision: Revision, settings: FileSettings) -> list[AddFile]:
        weights = frame_weights(frame, self.indexed)
        plan = plan_index(frame, revision, weights, existing=self.tree, file_rows=_file_rows(frame))
        writers = min(_MAX_WRITERS, os.cpu_count() or 1)
        return write_data_files(
            CodedRows(frame, settings),
            plan,
            store=self.target.store,
            settings=settings,
            writers=writers,
        )

    def _stage(self, frame: pl.DataFrame, settings: FileSettings, written: list[AddFile]) -> None:
        """Write rows without index, by weight: engines that skip pages of a sample do so in such files too."""
        weights = frame_weights(frame, self.indexed)
        order = np.argsort(weights, kind="stable")
        for rows in np.array_split(order, max(-(-frame.height // _file_rows(frame)), 1)):
            if not len(rows):
                continue
            add, _ = store_file(
                frame[pl.Series(rows)],
                weights[rows],
                page_rows_for(len(rows), cube_size=len(rows)),
                put=self.target.store.put,
                path=f"{new_id()}.parquet",
                settings=settings,
            )
            written.append(add.without_index())


def _file_rows(frame: pl.DataFrame) -> int:
    return rows_per_file(frame.estimated_size() / max(frame.height, 1))
