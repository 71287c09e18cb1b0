"""Index a table by other columns, or with another cube size: a new revision, to which rows move later (format 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import polars as pl

from qbeast_core.errors import InvalidColumnsError, InvalidInputError, changed_before
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import stored_revision, stored_specs
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.log.rebase import dialect_of
from qbeast_core.results import Result
from qbeast_core.spec.revision import STAGING_REVISION_ID, ColumnSpec, Revision, staging_revision
from qbeast_core.spec.table_config import (
    OTHER_COLUMNS_READER,
    REVISION_PREFIX,
    TableConfig,
    min_reader_entry,
    qbeast_spark_entries,
)
from qbeast_core.support.process import Progress, now_ms, report
from qbeast_core.support.sizing import sizing
from qbeast_core.table.commit import CommitOutcome, commit
from qbeast_core.table.data.schema import refuse_sample_column, refuse_taken_name
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.files import summarise_task
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.index.counts import latest_revision
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.index.revision import check_columns, refuse_collations, specs_of_overwrite
from qbeast_core.table.read.planner import TASK_BYTES, Planner, scan_tasks
from qbeast_core.table.rewrite.optimize import OptimizeOptions, OptimizeResult, optimize
from qbeast_core.table.rewrite.replace import refuse_copies, with_attempts
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh
from qbeast_core.table.write.by_tasks import indexed_metadata
from qbeast_core.table.write.options import WriteOptions, check_options, with_importance
from qbeast_core.tree.fit import ColumnBounds, IndexWish, default_cube_size, first_revision, keeps_kind
from qbeast_core.tree.summary import IndexSummary, merge_summaries, summarise, summarise_ends

_OPERATION: Final = "REINDEX"

# Maximum number of tasks that read the columns: each returns a sample.
_MAX_TASKS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReindexResult(Result):
    """Result of `Table.reindex`.

    Attributes
    ----------
    version : int
        Version of the table; the current one if nothing was committed.
    committed : bool
        Whether a version was committed. False if the table has these columns and this cube size already, and no row
        had to move.
    new_revision : bool
        Whether a new revision was added.
    revision_id : int
        The newest revision.
    columns : tuple of str
        Its columns, in order.
    transformers : dict of str to str
        Kind of each column: ``"linear"``, ``"quantiles"`` or ``"hash"``; ``"empty"`` for a converted table that waits
        for its first optimize.
    cube_size : int
        Target number of rows per cube.
    rows : int
        Number of rows that ``full=True`` moved.
    rows_left : int
        Number of rows that are still indexed by other columns. `Table.optimize` moves them in steps.
    """

    new_revision: bool
    revision_id: int
    columns: tuple[str, ...]
    transformers: dict[str, str]
    cube_size: int
    rows: int
    rows_left: int


def reindex(
    snapshot: Snapshot, options: WriteOptions, *, full: bool, engine: Engine = MEMORY
) -> tuple[ReindexResult, Snapshot]:
    """Index a table otherwise; see `Table.reindex`. Return the result and the new version."""
    check_options(options)
    before = refresh(snapshot)
    snapshot, outcome = with_attempts(before, lambda newest: _attempt(newest, options, engine))
    changed = snapshot.config.revisions != before.config.revisions
    if not full:
        return _result(snapshot, outcome, None, new_revision=changed), snapshot
    moving = OptimizeOptions(
        into="newest", commit_metadata=options.commit_metadata, progress=options.progress
    )
    with changed_before(lambda: outcome is not None):
        moved, snapshot = optimize(snapshot, moving, engine=engine)
    return _result(snapshot, outcome, moved, new_revision=changed), snapshot


def _result(
    snapshot: Snapshot, outcome: CommitOutcome | None, moved: OptimizeResult | None, *, new_revision: bool
) -> ReindexResult:
    latest = latest_revision(snapshot)
    return ReindexResult(
        version=snapshot.version,
        committed=outcome is not None or (moved is not None and moved.committed),
        new_revision=outcome is not None and new_revision,
        revision_id=latest.revision_id,
        columns=latest.columns,
        transformers=latest.transformer_kinds,
        cube_size=latest.desired_cube_size,
        rows=0 if moved is None else moved.rows,
        rows_left=Index(snapshot).rows_of_other_columns,
    )


def _attempt(
    snapshot: Snapshot, options: WriteOptions, engine: Engine
) -> tuple[Snapshot, CommitOutcome | None]:
    """Commit the new revision. Return the new version, and None if there is nothing to change."""
    if snapshot.config.is_left_unindexed:
        return _first(snapshot, options)
    latest = latest_revision(snapshot)
    # As for an append, the newest revision has to be known.
    snapshot.check_writable("append", brings="settings")
    refuse_copies(Index(snapshot))
    specs = _specs(snapshot, options)
    size = options.cube_size or latest.desired_cube_size
    intent = WriteIntent(mode="metadata", brings="settings")
    if latest.revision_id == STAGING_REVISION_ID:
        metadata = _staged(snapshot, latest, specs, size)
    else:
        revision = _revision(snapshot, specs, size, options, engine)
        metadata = snapshot.metadata
        if revision is not None:
            metadata = _metadata(snapshot, revision, specs)
            intent = replace(intent, revision=revision, new_revision=True)
    if options.importance is not None:
        metadata = with_importance(metadata, options.importance, [spec.name for spec in specs])
    if metadata == snapshot.metadata and not intent.new_revision:
        return snapshot, None
    return _committed(snapshot, replace(intent, metadata=metadata), specs, size, options)


def _first(snapshot: Snapshot, options: WriteOptions) -> tuple[Snapshot, CommitOutcome]:
    """Begin the index of a table without one, as a conversion does."""
    snapshot.check_writable("metadata", brings="settings")
    specs, rows = _specs(snapshot, options), snapshot.counted_rows
    metadata = indexed_metadata(
        snapshot.metadata, snapshot.schema, specs, options, uri=snapshot.uri, rows=rows
    )
    if options.importance is not None:
        metadata = with_importance(metadata, options.importance, [spec.name for spec in specs])
    intent = WriteIntent(mode="metadata", brings="settings", metadata=metadata)
    return _committed(snapshot, intent, specs, options.cube_size or default_cube_size(rows), options)


def _committed(
    snapshot: Snapshot,
    intent: WriteIntent,
    specs: tuple[ColumnSpec, ...],
    size: int,
    options: WriteOptions,
) -> tuple[Snapshot, CommitOutcome]:
    parameters = {"columns": ",".join(map(str, specs)), "cubeSize": str(size)}
    info = {**options.commit_metadata, "operationParameters": parameters}
    intent = replace(intent, operation=_OPERATION, commit_info=info)
    outcome = commit(snapshot.store, snapshot, intent, conflict_with=lambda now: _conflict(snapshot, now))
    return outcome.snapshot or refresh(snapshot), outcome


def _conflict(base: Snapshot, newest: Snapshot) -> str | None:
    """Return why another writer's version conflicts with a new revision, or None."""
    same = newest.config.latest == base.config.latest
    return None if same else "another writer began a revision"


def _specs(snapshot: Snapshot, options: WriteOptions) -> tuple[ColumnSpec, ...]:
    """Validate and return the columns to index."""
    dialect = dialect_of(snapshot)
    if dialect == "qbeast-spark":
        msg = (
            f"{snapshot.uri!r} uses the dialect 'qbeast-spark', and qbeast-spark knows one list of columns. "
            'Call Table.switch_dialect("documented") first, or write the rows with mode="overwrite".'
        )
        raise InvalidInputError(msg, argument="columns", value=options.columns)
    refuse_taken_name(snapshot.uri, snapshot.schema_json)
    specs = specs_of_overwrite(options.columns, snapshot.config, snapshot.schema)
    if not specs:
        msg = "a table keeps its index: `columns` must name at least one column"
        raise InvalidColumnsError(msg, value=options.columns)
    names = [spec.name for spec in specs]
    refuse_sample_column(snapshot.sample_column, names, argument="columns")
    check_columns(specs, snapshot.schema, dialect)
    refuse_collations([name for name in names if name not in snapshot.indexed], snapshot.columns.collated)
    return specs


def _revision(
    snapshot: Snapshot, specs: tuple[ColumnSpec, ...], size: int, options: WriteOptions, engine: Engine
) -> Revision | None:
    """Return the new revision, or None if the newest one has these columns and this cube size."""
    newest, uri = Index(snapshot).newest, snapshot.uri
    wish = IndexWish(
        specs,
        size,
        "documented",
        decimals=snapshot.columns.rehashed,
        sample_by=snapshot.config.sample_by,
    )
    if newest is not None and tuple(wish.names) == newest.columns:
        pairs = zip(specs, newest.column_transformers, strict=True)
        if all(keeps_kind(spec.kind, transformer.kind) for spec, transformer in pairs):
            if size == newest.desired_cube_size:
                return None
            return newest.model_copy(update={"desired_cube_size": size, "timestamp_ms": now_ms()})
    report(options.progress, Progress("read"))
    bounds = _ranges(snapshot, wish.names)
    summary = _summary(snapshot, wish.names, engine, sampled=bounds is not None)
    wish = replace(wish, bounds=bounds or {})
    return first_revision(wish, summary, table_id=uri, timestamp_ms=now_ms())


def _metadata(snapshot: Snapshot, revision: Revision, specs: tuple[ColumnSpec, ...]) -> Metadata:
    """Return the metadata without the new revision, which gets its number in the commit."""
    config, columns = snapshot.config, revision.columns
    entries = _entries(config, specs, revision.desired_cube_size)
    if any(older.columns != columns for older in config.revisions.values()):
        entries |= min_reader_entry(config.entries, OTHER_COLUMNS_READER)
        staging = f"{REVISION_PREFIX}{STAGING_REVISION_ID}"
        if staging in config.entries:  # files without index have the weights of the newest revision
            entries[staging] = stored_revision(revision, snapshot.columns).staging().to_json()
    return snapshot.metadata.model_copy(update={"configuration": {**config.entries, **entries}})


def _staged(snapshot: Snapshot, latest: Revision, specs: tuple[ColumnSpec, ...], size: int) -> Metadata:
    """Return the metadata of a converted table that has no index yet."""
    config, listed = snapshot.config, tuple(map(str, specs))
    if listed == config.column_specs and size == latest.desired_cube_size:
        return snapshot.metadata
    names = [spec.name for spec in specs]
    staging = staging_revision(names, timestamp_ms=now_ms(), table_id=snapshot.uri, cube_size=size)
    staging = staging.with_sample_by(config.sample_by)
    entries = _entries(config, specs, size)
    if staging.hashed != latest.hashed:  # other weights than the hidden ones, if files have them
        entries |= min_reader_entry(config.entries, OTHER_COLUMNS_READER)
    config = config.with_entries(entries).with_revisions([stored_revision(staging, snapshot.columns)])
    config = config.with_column_specs(stored_specs(listed, snapshot.columns))
    return snapshot.metadata.model_copy(update={"configuration": config.to_configuration()})


def _entries(config: TableConfig, specs: tuple[ColumnSpec, ...], size: int) -> dict[str, str]:
    """Return the keys of qbeast-spark 0.8 that the table has, with new values."""
    entries = qbeast_spark_entries([str(spec) for spec in specs], cube_size=size)
    return {key: text for key, text in entries.items() if key in config.entries}


def _ranges(snapshot: Snapshot, names: list[str]) -> dict[str, ColumnBounds] | None:
    """Return the ranges of all columns but texts, from the log; None if a file lacks one."""
    ranges: dict[str, ColumnBounds] = {}
    for name in names:
        dtype = snapshot.schema[name]
        if dtype == pl.String:
            continue  # its quantiles need no range
        try:
            bounds = snapshot.files.select(
                pl.col("min").struct.field(name).alias("low"),
                pl.col("max").struct.field(name).alias("high"),
                pl.col("null_count").struct.field(name).eq(pl.col("num_records")).alias("empty"),
            )
        except pl.exceptions.PolarsError:  # no file has statistics of the column
            return None
        bounds = bounds.filter(~pl.col("empty").fill_null(value=False))
        if bounds["low"].null_count() or bounds["high"].null_count():
            return None
        ends = pl.Series(name, [bounds["low"].min(), bounds["high"].max()], dtype=bounds["low"].dtype)
        if dtype.is_float() and not ends.is_finite().fill_null(value=True).all():
            return None  # the range of a space is finite
        column = summarise_ends(ends.cast(dtype), nulls=0)
        ranges[name] = ColumnBounds(column.lowest, column.highest)
    return ranges


def _summary(snapshot: Snapshot, names: list[str], engine: Engine, *, sampled: bool) -> IndexSummary:
    """Summarise columns: of a sample of the rows, or of all rows if the sample is small or not allowed."""
    rows = snapshot.counted_rows
    if sampled and rows > sizing().domain_rows and Index(snapshot).newest is not None:
        summary = _summarised(snapshot, names, engine, sizing().domain_rows / rows)
        if summary.rows >= sizing().domain_rows // 2:  # else few keys have most rows
            return summary
    return _summarised(snapshot, names, engine, None)


def _summarised(snapshot: Snapshot, names: list[str], engine: Engine, sample: float | None) -> IndexSummary:
    size = int(snapshot.files["size_bytes"].sum())
    planner = Planner(snapshot)
    plan, task_bytes = planner.plan(None, sample), max(TASK_BYTES, size // _MAX_TASKS)
    tasks = list(enumerate(scan_tasks(planner, plan, names, task_bytes=task_bytes)))
    parts = engine.map(partial(summarise_task, tuple(names)), tasks, at_once=1)
    nothing = summarise(snapshot.schema.to_frame(), names)
    return merge_summaries([nothing, *parts])
