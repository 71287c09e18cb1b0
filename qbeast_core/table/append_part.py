"""Appends by many tasks, each knowing its own rows alone: index what fits the newest revision, stage the rest.

A task cannot make a revision. Rows that would ask for one go to staging files, which optimize indexes later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError, TableNotFoundError
from qbeast_core.io.location import resolve_location
from qbeast_core.io.store import Store, open_store
from qbeast_core.log.actions import AddFile
from qbeast_core.log.rebase import dialect_of
from qbeast_core.query.fitting import texts_changed
from qbeast_core.space.arrays import BoolArray
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data_file import FileSettings, store_file
from qbeast_core.table.data_files import World, delete_data_files, write_data_files
from qbeast_core.table.fit_blocks import without_index
from qbeast_core.table.foreign_schema import refuse_lost_columns, refuse_taken_name
from qbeast_core.table.frames import FrameLike, to_frame
from qbeast_core.table.live_tree import live_tree
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.schema_match import fit_frame
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.table.target import find_target
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.outside import rows_outside
from qbeast_core.tree.pack import page_rows_for, rows_per_file
from qbeast_core.tree.plan import plan_index

__all__ = ["AppendContext", "AppendedPart", "begin_append", "write_part"]

_TABLE_KEYS: Final = "delta."  # what of the configuration a task asks for: how Delta wants statistics


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


def begin_append(
    uri: str, empty: pl.DataFrame, storage_options: Mapping[str, str] | None = None
) -> tuple[Snapshot, AppendContext]:
    """Look at the table before tasks append to it.

    Parameters
    ----------
    uri : str
        Path or address of the table.
    empty : polars.DataFrame
        No rows, with the columns and types of those to come.
    storage_options : Mapping, optional
        For object stores.

    Returns
    -------
    tuple of Snapshot and AppendContext
        The newest version, and what tasks need of it.

    Raises
    ------
    TableNotFoundError
        There is no table: tasks cannot create one.
    SchemaMismatchError
        The rows do not fit the table; all differences are listed.
    NotQbeastTableError, UnsupportedTableError
        The table has no index, or must not be written.
    """
    uri = resolve_location(uri)
    snapshot = find_target(uri, "append", storage_options)
    latest = None if snapshot is None else snapshot.config.latest
    if snapshot is None or latest is None:
        msg = (
            f"there is no table at {uri!r}, and tasks cannot create one; nothing was written. Create it with "
            "write_table(df, path, columns=[...])."
        )
        raise TableNotFoundError(msg, path=uri)
    store = snapshot.source.store
    refuse_unsafe_locking(store.uri, snapshot.storage_options)
    refuse_taken_name(store.uri, snapshot.schema_json)
    fit_frame(to_frame(empty), snapshot.schema_json, snapshot.schema, merge=False)
    refuse_lost_columns(store.uri, latest.columns, snapshot.schema, done="written")
    fits = latest.revision_id and latest.transformations and not texts_changed(latest, snapshot.schema)
    revision = latest if fits else None
    settings = {
        key: text for key, text in snapshot.metadata.configuration.items() if key.startswith(_TABLE_KEYS)
    }
    context = AppendContext(
        uri=store.uri,
        version=snapshot.version,
        indexed=latest.columns,
        schema=snapshot.schema,
        schema_json=snapshot.schema_json,
        revision=revision,
        tree=None if revision is None else live_tree(snapshot, revision),
        configuration=settings,
        dialect=dialect_of(snapshot),
        storage_options=dict(snapshot.storage_options),
    )
    return snapshot, context


def write_part(context: AppendContext, data: FrameLike, world: World) -> AppendedPart:
    """Write some of the rows of an append: planned for themselves, on the table as it was looked at.

    Parameters
    ----------
    context : AppendContext
        Of the table.
    data : FrameLike
        Rows that fit in memory.
    world : World
        Clock and ids, unique among all tasks and their attempts.

    Returns
    -------
    AppendedPart
        For `qbeast_core.table.append_commit.publish_parts`.

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
    indexed = _write_indexed(context, inside, store, settings, world) if inside.height else []
    try:
        staged = _stage(context, frame.filter(pl.Series(outside)), store, settings, world)
    except BaseException:  # an interrupt and a panic of Rust too
        delete_data_files(store, indexed)
        raise
    return AppendedPart(context.version, context.revision, tuple(indexed), tuple(staged), frame.height)


def _outside(context: AppendContext, frame: pl.DataFrame) -> BoolArray:
    if context.revision is None:
        return np.ones(frame.height, np.bool_)
    return rows_outside(frame, context.revision)


def _write_indexed(
    context: AppendContext, frame: pl.DataFrame, store: Store, settings: FileSettings, world: World
) -> list[AddFile]:
    if context.revision is None:
        msg = "rows cannot be indexed without a revision"
        raise InvalidInputError(msg)
    weights = frame_weights(frame, context.indexed)
    plan = plan_index(frame, context.revision, weights, existing=context.tree, file_rows=_file_rows(frame))
    return write_data_files(frame, plan, store=store, settings=settings, world=world)


def _stage(
    context: AppendContext, frame: pl.DataFrame, store: Store, settings: FileSettings, world: World
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
                path=f"{world.new_id()}.parquet",
                settings=settings,
                now_ms=world.now_ms,
            )
            written.append(without_index(add))
    except BaseException:  # an interrupt and a panic of Rust too
        delete_data_files(store, written)
        raise
    return written


def _file_rows(frame: pl.DataFrame) -> int:
    return rows_per_file(frame.estimated_size() / max(frame.height, 1))
