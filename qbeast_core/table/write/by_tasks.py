"""Writes by parallel tasks: their common plan, the one commit, and files that wait for an index.

Tasks cannot make a revision: they do not know the rows of others. So the rows of a new table wait for an index, which
optimize makes. Rows that follow are indexed by the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

import polars as pl

from qbeast_core.errors import (
    CommitConflictError,
    InvalidInputError,
    TableNotFoundError,
    UnsupportedTableError,
)
from qbeast_core.io.location import Location
from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.log.columns import StoredColumns, stored_revision, stored_specs
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import ColumnSpec, parse_column_spec, staging_revision
from qbeast_core.spec.table_config import (
    BLOCKS_DIALECT,
    COLUMN_SPECS,
    HIGHEST_REVISION_ID,
    LAST_REVISION_ID,
    REPLICATED_SET_PREFIX,
    REVISION_PREFIX,
    TableConfig,
    qbeast_spark_entries,
)
from qbeast_core.support.process import now_ms
from qbeast_core.table.commit import CommitOutcome, commit, discarding
from qbeast_core.table.data.files import delete_files
from qbeast_core.table.data.frames import to_frame
from qbeast_core.table.data.schema import refuse_names
from qbeast_core.table.engine.files import AppendedPart, AppendTask
from qbeast_core.table.index.counts import warn_if_growing, warn_if_small
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.index.revision import check_columns, fit_blocks, resolve_specs
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from qbeast_core.table.write.options import (
    WriteOptions,
    check_options,
    find_target,
    find_target_once_created,
    partition_columns,
    sampling_key,
    with_sampling_key,
)
from qbeast_core.table.write.prepare import PreparedTable, prepare, rows_intent
from qbeast_core.tree.fit import IndexWish, default_cube_size

_DEFAULT: Final[BlocksDialect] = "documented"


def indexed_metadata(
    plain: Metadata,
    schema: pl.Schema,
    specs: Sequence[ColumnSpec],
    options: WriteOptions,
    *,
    uri: str,
    rows: int | None,
) -> Metadata:
    """Return the metadata with revision 0, which owns the files without an index; without `specs`, with no revision."""
    dialect = options.dialect or _DEFAULT
    refuse_names(schema, argument="path")
    check_columns(specs, schema, dialect)
    if not specs:
        unindexed = TableConfig.from_configuration(plain.configuration).left_unindexed()
        return plain.model_copy(update={"configuration": unindexed.to_configuration()})
    size = options.cube_size or default_cube_size(rows or 0)
    sample_by = sampling_key(options.sample_by, schema, now=(), may_change=True, dialect=dialect)
    partition_columns(None, schema, now=plain.partition_columns, may_change=False, dialect=dialect)
    names = [spec.name for spec in specs]
    staging = staging_revision(names, timestamp_ms=now_ms(), table_id=uri, cube_size=size)
    listed = [str(spec) for spec in specs]
    entries: dict[str, str] = {BLOCKS_DIALECT: dialect}
    if dialect == "qbeast-spark":
        entries |= qbeast_spark_entries(listed, cube_size=size)
    config = TableConfig.from_configuration(plain.configuration).without_faults().with_entries(entries)
    columns = StoredColumns.of(plain)
    config = config.with_revisions([stored_revision(staging, columns)])
    config = config.with_column_specs(stored_specs(listed, columns))
    indexed = plain.model_copy(update={"configuration": config.to_configuration()})
    return with_sampling_key(indexed, sample_by)


def _without_index(metadata: Metadata) -> Metadata:
    """Return the metadata without the revisions of an index. Their numbers are not used again."""
    dropped = (REVISION_PREFIX, REPLICATED_SET_PREFIX, LAST_REVISION_ID, COLUMN_SPECS)
    configuration = metadata.configuration
    kept = {key: text for key, text in configuration.items() if not key.startswith(dropped)}
    highest = TableConfig.from_configuration(configuration).highest_revision_id
    had = {HIGHEST_REVISION_ID: str(highest)} if highest else {}
    return metadata.model_copy(update={"configuration": kept | had})


def begin_append(
    path: str | Location, empty: pl.DataFrame, storage_options: Mapping[str, str] | None = None
) -> AppendTask:
    """Read the table, and plan what tasks need to append to it."""
    location = Location.of(path, storage_options)
    if find_target(location, "append").is_new:
        msg = (
            f"no table found at {location.uri!r}. Create it with qbeast_spark_bridge.write_table(df, path, "
            "columns=[...])."
        )
        raise TableNotFoundError(msg, path=location.uri)
    return begin_write(location, empty, WriteOptions(mode="append"))


def begin_write(location: Location, empty: pl.DataFrame, options: WriteOptions) -> AppendTask:
    """Read the table, if there is one, and plan what tasks need to append to it, or to create or replace it."""
    check_options(options)
    before = find_target_once_created(location, options.mode)
    location.refuse_changes()
    if before.is_new and options.columns is None:
        msg = (
            f"no table found at {location.uri!r}, and a new one needs columns to index: "
            '.option("columnsToIndex", "user,price"), and .option("cubeSize", 100000) for other cubes.'
        )
        raise InvalidInputError(msg, argument="columnsToIndex")
    if not before.is_new:
        options = _without_index_of_table(before, options)
    prepared = prepare(to_frame(empty), before, options)
    _refuse_drawn(prepared)
    # The rows that replace others go to the space and the tree of these.
    keeps = options.columns is None and options.schema_mode != "overwrite"
    index = prepared.index or Index(before)
    revision = index.newest if keeps else None
    task = AppendTask(
        target=prepared.target,
        version=before.version,
        indexed=tuple(prepared.wish.names),
        revision=revision,
        tree=None if revision is None else index.tree(revision),
    )
    if prepared.index is not None:
        return task
    options = replace(options, storage_options=None)  # the target has them
    metadata = prepared.table.metadata
    if revision is not None:
        return replace(task, begins=partial(_as_planned, metadata=metadata))
    wish, schema = prepared.wish, prepared.target.shape.schema
    begins = partial(
        _waiting_metadata, metadata=metadata, schema=schema, wish=wish, options=options, uri=before.uri
    )
    return replace(task, begins=begins)


def _waiting_metadata(
    rows: int, *, metadata: Metadata, schema: pl.Schema, wish: IndexWish, options: WriteOptions, uri: str
) -> Metadata:
    """Return the metadata of a new table, or of one that is replaced, whose rows wait for an index."""
    options = replace(options, cube_size=wish.cube_size, dialect=wish.dialect)
    return indexed_metadata(_without_index(metadata), schema, wish.specs, options, uri=uri, rows=rows)


def _as_planned(rows: int, *, metadata: Metadata) -> Metadata:
    """Return the metadata of a table whose rows go to the space of those that they replace."""
    del rows
    return metadata


def _without_index_of_table(snapshot: Snapshot, options: WriteOptions) -> WriteOptions:
    """Return the options without those of the index that equal the table's; raise if tasks cannot follow them."""
    config, latest = snapshot.config, snapshot.config.latest
    stays = options.mode == "append"
    size = None if latest is None else latest.desired_cube_size
    listed = config.column_specs or (() if latest is None else latest.column_specs)
    specs = () if options.columns is None else resolve_specs(options.columns, None)
    same_columns = options.columns is None or _agree(specs, listed)
    same_size = options.cube_size in (None, size)
    if same_columns and same_size and (stays or options.column_stats is None):
        return replace(options, columns=None, cube_size=None, column_stats=None)
    if stays:
        msg = (
            f"{snapshot.uri!r} is indexed by {', '.join(listed)}, with cubes of {size} rows, and an append keeps that. "
            "Omit the options of the index, or change it first: Table.reindex(columns=[...], cube_size=...)."
        )
        raise InvalidInputError(msg, argument="cube_size" if same_columns else "columns")
    return options if options.columns is not None else replace(options, columns=list(listed))


def _agree(specs: Sequence[ColumnSpec], listed: Sequence[str]) -> bool:
    """Return whether columns are those of a table; a kind that is left to the writer agrees with any."""
    own = [parse_column_spec(text) for text in listed]
    return [spec.name for spec in specs] == [spec.name for spec in own] and all(
        "auto" in (spec.kind, kept.kind) or spec.kind == kept.kind
        for spec, kept in zip(specs, own, strict=True)
    )


def _refuse_drawn(prepared: PreparedTable) -> None:
    """Raise if tasks would draw numbers of identity columns: they could draw the same numbers."""
    uri, drawn = prepared.table.uri, [identity.column for identity in prepared.drawn]
    if drawn:
        msg = (
            f"tasks cannot append to {uri!r}: it draws the numbers of {drawn}, "
            "and tasks would draw the same ones. Use qbeast_spark_bridge.write_table(df, path, "
            'mode="append"), for a stream in foreachBatch.'
        )
        raise UnsupportedTableError(msg, path=uri, feature="identityColumns")


def publish_parts(
    task: AppendTask,
    parts: Sequence[AppendedPart],
    *,
    txn: tuple[str, int] | None = None,
    operation: str = "",
    info: Mapping[str, str] = MappingProxyType({}),
) -> CommitOutcome | None:
    """Commit the parts of a write, all of them or none. `info` is kept in the history.

    Files that do not fit those of other tasks or of another writer (format 8.3) are published without index: their
    rows count, and optimize indexes them later.
    """
    if task.begins is not None:
        metadata = task.begins(sum(part.rows for part in parts))
        return _publish_table(task, metadata, parts, txn=txn, operation=operation, info=info)
    adds = _files_of(parts)
    if not adds:
        return None
    target = task.target
    options = WriteOptions(mode="append", txn=txn, commit_metadata=dict(info))
    intent = rows_intent("append", adds, options, operation=operation)
    revisions = [part.revision for part in parts if any(add.blocks for add in part.files)]
    with discarding(target.store, intent.new_paths):
        # What the oldest part was planned on: later commits are checked against it.
        oldest = min(part.version for part in parts)
        base = load_snapshot(target.location, version=oldest)
        outcome = None
        if revisions and revisions.count(revisions[0]) == len(revisions):
            # Staged files conflict with nothing that concerns the index; any other conflict comes again.
            with suppress(CommitConflictError):
                indexed = replace(intent, revision=revisions[0])
                outcome = commit(base.source.store, base, fit_blocks(indexed, base))
        if outcome is None:
            staged = tuple(add.without_index() for add in adds)
            outcome = commit(base.source.store, base, replace(intent, adds=staged))
    if outcome.already_applied:
        delete_files(target.store, intent.new_paths)
    elif outcome.snapshot is not None:
        files = outcome.snapshot.files
        before = files.filter(~pl.col("path").is_in([add.path for add in adds]))
        warn_if_growing(before, files, outcome.snapshot.config.latest)
        warn_if_small(base, outcome.snapshot)
    return outcome


def _files_of(parts: Sequence[AppendedPart]) -> list[AddFile]:
    """Return the files of all parts. Those of a part have a time of their own: they divide a space of their own."""
    times = [add.modification_time for part in parts for add in part.files]
    return [
        add.model_copy(update={"modification_time": min(times) + number})
        for number, part in enumerate(parts)
        for add in part.files
    ]


def _publish_table(
    task: AppendTask,
    metadata: Metadata,
    parts: Sequence[AppendedPart],
    *,
    txn: tuple[str, int] | None,
    operation: str,
    info: Mapping[str, str],
) -> CommitOutcome:
    """Commit a new table, or the rows that replace all others."""
    target, adds = task.target, _files_of(parts)
    options = WriteOptions(mode="overwrite", txn=txn, commit_metadata=dict(info))
    is_new = task.version < 0
    intent = replace(
        rows_intent("create" if is_new else "overwrite", adds, options, operation=operation),
        metadata=metadata,
        dialect=target.dialect,
    )
    with discarding(target.store, intent.new_paths):
        base = (
            Snapshot.empty(target.location)
            if is_new
            else load_snapshot(target.location, version=task.version)
        )
        if task.revision is not None:
            # In the order of the tree that tasks placed rows by; the commit removes the live files.
            fitted = fit_blocks(replace(intent, mode="append", metadata=None, revision=task.revision), base)
            intent = replace(fitted, mode="overwrite", metadata=metadata)
        outcome = commit(target.store, base, intent)
    if outcome.already_applied:
        delete_files(target.store, intent.new_paths)
    return outcome
