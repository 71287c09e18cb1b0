"""Appends by many tasks, each knowing its own rows alone: index what fits the newest revision, stage the rest.

A task cannot make a revision. Rows that would ask for one go to staging files, which optimize indexes later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.store import Store, open_store
from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import BoolArray
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import FileSettings, delete_data_files, store_file, write_data_files
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.table.runtime import Runtime
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.outside import rows_outside
from qbeast_core.tree.pack import page_rows_for, rows_per_file
from qbeast_core.tree.plan import plan_index

__all__ = ["AppendContext", "AppendedPart", "write_part"]


TABLE_KEYS: Final = "delta."  # what of the configuration a task asks for: how Delta wants statistics


@dataclass(frozen=True, slots=True, eq=False)
class AppendContext:
    """What a task must know of the table it appends to. It pickles; its size is that of the tree's outline.

    Attributes
    ----------
    uri : str
        The table; local ones as absolute paths.
    version : int
        What was looked at.
    indexed : tuple of str
        Indexed columns, in order.
    schema, schema_json : polars.Schema, str
        The table's columns.
    revision : Revision or None
        To index in; None: the table has no real revision yet, and all rows are staged.
    tree : ExistingTree or None
        The revision's live tree.
    configuration : Mapping
        Of the table, what tasks need.
    dialect : BlocksDialect
        Of the table.
    storage_options : Mapping
        For the store.
    """

    uri: str
    version: int
    indexed: tuple[str, ...]
    schema: pl.Schema
    schema_json: str
    revision: Revision | None = field(repr=False)
    tree: ExistingTree | None = field(repr=False)
    configuration: Mapping[str, str] = field(repr=False)
    dialect: BlocksDialect
    storage_options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class AppendedPart:
    """What one part wrote: invisible files, until a commit names them.

    Attributes
    ----------
    version : int
        The version that was looked at.
    revision : Revision or None
        What `indexed` is indexed in.
    indexed, staged : tuple of AddFile
        Files with blocks still to be spelled, and files without index.
    rows : int
        Rows in all of them.
    """

    version: int
    revision: Revision | None
    indexed: tuple[AddFile, ...]
    staged: tuple[AddFile, ...]
    rows: int

    @property
    def files(self) -> tuple[AddFile, ...]:
        """All of the files."""
        return self.indexed + self.staged


def write_part(context: AppendContext, data: FrameLike, runtime: Runtime) -> AppendedPart:
    """Write some of the rows of an append: planned for themselves, on the table as it was looked at.

    Parameters
    ----------
    context : AppendContext
        Of the table.
    data : FrameLike
        Rows that fit in memory.
    runtime : Runtime
        Clock and ids, unique among all tasks and their attempts.

    Returns
    -------
    AppendedPart
        For `qbeast_core.table.write.append.publish_parts`.

    Raises
    ------
    SchemaMismatchError
        If a row does not fit, say a null where there may be none.
    StorageError
        If the store refuses. Files of this part are deleted as far as the store lets us.
    """
    frame = fit_frame(to_frame(data), context.schema_json, context.schema, merge=False)
    store = open_store(context.uri, context.storage_options)
    if not frame.height:
        return AppendedPart(context.version, context.revision, (), (), 0)
    settings = FileSettings.of(frame, context.indexed, context.configuration, dialect=context.dialect)
    outside = _outside(context, frame)
    inside = frame if not outside.any() else frame.filter(pl.Series(~outside))
    indexed = _write_indexed(context, inside, store, settings, runtime) if inside.height else []
    try:
        staged = _stage(context, frame.filter(pl.Series(outside)), store, settings, runtime)
    except BaseException:  # an interrupt and a panic of Rust too
        delete_data_files(store, indexed)
        raise
    return AppendedPart(context.version, context.revision, tuple(indexed), tuple(staged), frame.height)


def _outside(context: AppendContext, frame: pl.DataFrame) -> BoolArray:
    if context.revision is None:
        return np.ones(frame.height, np.bool_)
    return rows_outside(frame, context.revision)


def _write_indexed(
    context: AppendContext, frame: pl.DataFrame, store: Store, settings: FileSettings, runtime: Runtime
) -> list[AddFile]:
    if context.revision is None:
        msg = "rows cannot be indexed without a revision"
        raise InvalidInputError(msg)
    weights = frame_weights(frame, context.indexed)
    plan = plan_index(frame, context.revision, weights, existing=context.tree, file_rows=_file_rows(frame))
    return write_data_files(frame, plan, store=store, settings=settings, runtime=runtime)


def _stage(
    context: AppendContext, frame: pl.DataFrame, store: Store, settings: FileSettings, runtime: Runtime
) -> list[AddFile]:
    """Write rows without index, by weight: engines that skip pages of a sample do so in such files too."""
    if not frame.height:
        return []
    weights = frame_weights(frame, context.indexed)
    order = np.argsort(weights, kind="stable")
    written: list[AddFile] = []
    try:
        for rows in np.array_split(order, -(-frame.height // _file_rows(frame))):
            add = store_file(
                frame[pl.Series(rows)],
                weights[rows],
                page_rows_for(len(rows), cube_size=len(rows)),
                store=store,
                path=f"{runtime.new_id()}.parquet",
                settings=settings,
                now_ms=runtime.now_ms,
            )
            written.append(add.without_index())
    except BaseException:  # an interrupt and a panic of Rust too
        delete_data_files(store, written)
        raise
    return written


def _file_rows(frame: pl.DataFrame) -> int:
    return rows_per_file(frame.estimated_size() / max(frame.height, 1))
