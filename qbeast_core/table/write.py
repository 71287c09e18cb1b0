"""Write rows to a table: read a snapshot, plan purely, write invisible files, commit once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl

from qbeast_core.errors import CommitUnknownError, InvalidInputError, QbeastError
from qbeast_core.io.store import Store, open_store
from qbeast_core.log.actions import AddFile, Metadata, Txn
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.rebase import found_dialect
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import BLOCKS_DIALECT, qbeast_spark_entries
from qbeast_core.table.column_stats import parse_column_stats
from qbeast_core.table.commit import CommitOutcome, commit
from qbeast_core.table.data_files import FileSettings, World, delete_data_files, write_data_files
from qbeast_core.table.design import table_design_effect
from qbeast_core.table.frames import FrameLike, to_frame
from qbeast_core.table.live_tree import growth_of, live_tree
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.progress import Progress
from qbeast_core.table.result import WriteResult, transformers_of
from qbeast_core.table.schema_match import fit_frame, merged_schema
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.table.target import check_columns, find_target, resolve_specs
from qbeast_core.table.warn import warn_if_clustered
from qbeast_core.table.write_options import WriteOptions, check_options
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.evolve import IndexWish, first_revision, next_revision
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.pack import rows_per_file
from qbeast_core.tree.plan import IndexPlan, plan_index
from qbeast_core.tree.summary import summarise

__all__ = ["write_frame"]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that fit the table, and what the table will look like."""

    frame: pl.DataFrame
    metadata: Metadata
    specs: tuple[ColumnSpec, ...]
    dialect: BlocksDialect
    current: Revision | None  # the revision to go on with; None: begin a new one

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)


@dataclass(frozen=True, slots=True)
class _Index:
    """How the rows are indexed."""

    plan: IndexPlan
    new_revision: bool
    design_effect: float


def write_frame(data: FrameLike, uri: str, options: WriteOptions, world: World) -> WriteResult:
    """Write `data`; see `qbeast.write_table` for what the options mean and what is raised."""
    check_options(options)
    target = find_target(uri, options.mode, options.storage_options)
    if target is not None and (options.mode == "ignore" or _is_applied(target, options.txn)):
        return WriteResult.untouched(target.version, target.config.latest)
    _tell(options, Progress("read"))
    rows = _prepare(to_frame(data), target, options, world)
    store = open_store(uri, options.storage_options)
    refuse_unsafe_locking(store.uri, options.storage_options)
    _tell(options, Progress("plan", rows=rows.frame.height))
    with ThreadPoolExecutor(1) as aside:  # while the plan is made
        trial = aside.submit(FileSettings.of, rows.frame, rows.names, rows.metadata.configuration)
        index = _index(rows, target, options, uri, world)
        settings = trial.result()
    adds = write_data_files(
        rows.frame,
        index.plan,
        store=store,
        settings=settings,
        design_effect=index.design_effect,
        world=world,
        progress=options.progress,
    )
    _tell(options, Progress("commit", len(adds), len(adds), rows.frame.height))
    outcome = _publish(store, target, _intent(rows, index, adds, target, options), options)
    _tell(options, Progress("done", len(adds), len(adds), rows.frame.height))
    if outcome.already_applied:
        return WriteResult.untouched(outcome.version, index.plan.revision)
    known = None if rows.current is None or target is None else table_design_effect(target)
    warn_if_clustered(rows.frame, rows.names, index.design_effect, known=known)
    return _result(index, adds, outcome)


def _publish(
    store: Store, target: Snapshot | None, intent: WriteIntent, options: WriteOptions
) -> CommitOutcome:
    """Commit; files that no version will ever name are deleted again."""
    try:
        outcome = commit(store, target, intent, storage_options=options.storage_options)
    except CommitUnknownError:
        raise  # the commit may have landed: its files must stay
    except QbeastError:
        delete_data_files(store, intent.adds)
        raise
    if outcome.already_applied:
        delete_data_files(store, intent.adds)
    return outcome


def _is_applied(target: Snapshot, txn: tuple[str, int] | None) -> bool:
    if txn is None:
        return False
    version = target.transaction_version(txn[0])
    return version is not None and version >= txn[1]


def _tell(options: WriteOptions, progress: Progress) -> None:
    if options.progress is not None:
        options.progress(progress)


def _prepare(frame: pl.DataFrame, target: Snapshot | None, options: WriteOptions, world: World) -> _Rows:
    appending = target is not None and options.mode == "append"
    latest = target.config.latest if target is not None else None
    known = latest if appending or options.columns is None else None
    specs = resolve_specs(_asked(options, target), known)
    dialect = _dialect(options, target)
    if target is None or options.schema_mode == "overwrite":
        schema_json = schema_to_delta(frame.schema)
    else:
        merge = options.schema_mode == "merge"
        frame = fit_frame(frame, target.schema_json, target.schema, merge=merge)
        schema_json = merged_schema(target.schema_json, target.schema, frame)
    check_columns(specs, frame.schema, dialect)
    metadata = _metadata(target, schema_json, options, world)
    if dialect == "qbeast-spark" and not appending:
        listed = [str(spec) for spec in specs]
        entries = qbeast_spark_entries(listed, cube_size=options.cube_size or 0)
        metadata = metadata.model_copy(update={"configuration": {**metadata.configuration, **entries}})
    current = latest if appending and latest is not None and latest.transformations else None
    if current is not None and current.revision_id == 0:
        current = None  # a converted table: its first real revision is still to be made
    return _Rows(frame, metadata, specs, dialect, current)


def _asked(options: WriteOptions, target: Snapshot | None) -> Sequence[str] | None:
    if options.columns is None and target is not None and options.mode == "append":
        return target.config.column_specs
    return options.columns


def _dialect(options: WriteOptions, target: Snapshot | None) -> BlocksDialect:
    if target is None:
        return options.dialect or "documented"
    intent = WriteIntent(
        mode="overwrite" if options.mode == "overwrite" else "append", dialect=options.dialect
    )
    found = found_dialect(intent, target.metadata, target.files)
    if options.dialect not in (None, found):
        msg = (
            f"the table's blocks are spelled in dialect {found!r}, not {options.dialect!r}; nothing was written. "
            "Append without `dialect`."
        )
        raise InvalidInputError(msg, argument="dialect")
    return found


def _metadata(target: Snapshot | None, schema_json: str, options: WriteOptions, world: World) -> Metadata:
    if target is None:
        return Metadata(
            id=world.new_id(),
            schema_string=schema_json,
            configuration={BLOCKS_DIALECT: options.dialect or "documented"},
            created_time=world.now_ms(),
        )
    return target.metadata.model_copy(update={"schema_string": schema_json})


def _index(rows: _Rows, target: Snapshot | None, options: WriteOptions, uri: str, world: World) -> _Index:
    weights = frame_weights(rows.frame, rows.names)
    wish = IndexWish(
        specs=rows.specs,
        cube_size=options.cube_size,
        dialect=rows.dialect,
        bounds=parse_column_stats(options.column_stats, rows.frame.schema, rows.names),
    )
    with ThreadPoolExecutor(1) as pool:
        effect = pool.submit(design_effect, weights)
        revision, tree = _space(rows, target, wish, uri, world.now_ms())
        plan = plan_index(
            rows.frame,
            revision,
            weights,
            existing=tree,
            file_rows=rows_per_file(rows.frame.estimated_size() / max(rows.frame.height, 1)),
        )
    return _Index(plan, revision is not rows.current, effect.result())


def _space(
    rows: _Rows, target: Snapshot | None, wish: IndexWish, uri: str, now_ms: int
) -> tuple[Revision, ExistingTree | None]:
    """Return the revision to index in, and its live tree if it has one."""
    summary = summarise(rows.frame, rows.names)
    if rows.current is None or target is None:
        return first_revision(wish, summary, table_id=uri, timestamp_ms=now_ms), None
    tree = live_tree(target, rows.current)
    growth = growth_of(target, rows.current, tree)
    revision = next_revision(rows.current, wish, summary, growth=growth, timestamp_ms=now_ms)
    return revision, tree if revision is rows.current else None


def _intent(
    rows: _Rows, index: _Index, adds: list[AddFile], target: Snapshot | None, options: WriteOptions
) -> WriteIntent:
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputRows": str(rows.frame.height),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }
    info: dict[str, Any] = {**options.commit_metadata, "operationMetrics": metrics}
    changed = target is None or rows.metadata != target.metadata
    return WriteIntent(
        mode="create" if target is None else "overwrite" if options.mode == "overwrite" else "append",
        adds=tuple(adds),
        revision=index.plan.revision,
        new_revision=index.new_revision,
        metadata=rows.metadata if changed else None,
        dialect=rows.dialect,
        txn=None if options.txn is None else Txn(app_id=options.txn[0], version=options.txn[1]),
        commit_info=info,
    )


def _result(index: _Index, adds: list[AddFile], outcome: CommitOutcome) -> WriteResult:
    revision = index.plan.revision
    return WriteResult(
        version=outcome.version,
        written=True,
        rows=len(index.plan.weights),
        files=len(adds),
        bytes=sum(add.size for add in adds),
        cubes=len(index.plan.thresholds),
        revision_id=revision.revision_id if outcome.revision_id is None else outcome.revision_id,
        new_revision=index.new_revision,
        transformers=transformers_of(revision),
        cube_size=revision.desired_cube_size,
        design_effect=index.design_effect,
        attempts=outcome.attempts,
    )
