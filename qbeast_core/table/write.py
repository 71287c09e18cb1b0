"""Write rows to a table: read a snapshot, plan purely, write invisible files, commit once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from qbeast_core.errors import TableExistsError
from qbeast_core.io.location import resolve_location
from qbeast_core.io.store import open_store
from qbeast_core.table.creation import MOST_CREATIONS, goes_on, target_once_created
from qbeast_core.table.data_file import FileSettings
from qbeast_core.table.data_files import World, write_data_files
from qbeast_core.table.design import keys_of_write, table_design_effect
from qbeast_core.table.frames import FrameLike, to_frame
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.prepare import Prepared, Space, choose_space, prepare
from qbeast_core.table.progress import Progress
from qbeast_core.table.publish import Written, is_applied, publish
from qbeast_core.table.result import WriteResult
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.table.warn import warn_if_clustered
from qbeast_core.table.write_options import WriteOptions, check_options, tell
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.pack import rows_per_file
from qbeast_core.tree.plan import IndexPlan, plan_index
from qbeast_core.tree.summary import summarise

__all__ = ["index_rows", "write_frame"]


def write_frame(
    data: FrameLike, uri: str | os.PathLike[str], options: WriteOptions, world: World
) -> WriteResult:
    """Write `data`; see `qbeast.write_table` for what the options mean and what is raised."""
    check_options(options)
    uri = resolve_location(uri)
    frame: pl.DataFrame | None = None
    for left in reversed(range(MOST_CREATIONS)):
        target = target_once_created(options, uri)
        if target is not None and (options.mode == "ignore" or is_applied(target, options.txn)):
            return WriteResult.untouched(target.version, target.config.latest, table_design_effect(target))
        if frame is None:
            tell(options, Progress("read"))
            frame = to_frame(data)
        rows, prepared = prepare(frame, target, options, world)
        try:
            return _write_rows(rows, prepared, target, options, uri=uri, world=world)
        except TableExistsError:
            if left and goes_on(target, options.mode):
                continue
            raise
    raise AssertionError  # the last round returns or raises


def _write_rows(
    rows: pl.DataFrame,
    prepared: Prepared,
    target: Snapshot | None,
    options: WriteOptions,
    *,
    uri: str,
    world: World,
) -> WriteResult:
    """Plan, write the files, and commit."""
    store = open_store(uri, options.storage_options)
    refuse_unsafe_locking(store.uri, options.storage_options)
    tell(options, Progress("plan", rows=rows.height))
    with ThreadPoolExecutor(1) as aside:  # while the plan is made
        configuration = prepared.metadata.configuration
        trial = aside.submit(FileSettings.of, rows, prepared.names, configuration, dialect=prepared.dialect)
        space, plan, effect = index_rows(rows, prepared, target, options, uri=uri, now_ms=world.now_ms())
        settings = trial.result()
    adds = write_data_files(
        rows,
        plan,
        store=store,
        settings=settings,
        world=world,
        progress=options.progress,
    )
    tell(options, Progress("commit", len(adds), len(adds), rows.height))
    keys = keys_of_write(adds, effect)
    written = Written(prepared, space, adds, rows.height, len(plan.thresholds), keys)
    published = publish(store, target, written, options)
    tell(options, Progress("done", len(adds), len(adds), rows.height))
    warn_if_clustered(published.effects, prepared.names, rows, own_effect=effect)
    return published.result


def index_rows(
    rows: pl.DataFrame,
    prepared: Prepared,
    target: Snapshot | None,
    options: WriteOptions,
    *,
    uri: str,
    now_ms: int,
) -> tuple[Space, IndexPlan, float]:
    """Return the revision for these rows, which cube and file takes each of them, and their own design effect."""
    weights = frame_weights(rows, prepared.names)
    with ThreadPoolExecutor(1) as pool:
        effect = pool.submit(design_effect, weights)
        summary = summarise(rows, prepared.names)
        space = choose_space(prepared, rows.schema, summary, target, options, uri=uri, now_ms=now_ms)
        plan = plan_index(
            rows,
            space.revision,
            weights,
            existing=space.tree,
            file_rows=rows_per_file(rows.estimated_size() / max(rows.height, 1)),
        )
    return space, plan, effect.result()
