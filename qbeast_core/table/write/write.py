"""Write rows to a table: read a snapshot, plan purely, write invisible files, commit once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl

from qbeast_core.errors import CommitUnknownError, QbeastError, TableExistsError
from qbeast_core.io.location import resolve_location
from qbeast_core.io.store import Store, open_store
from qbeast_core.log.actions import AddFile, Txn
from qbeast_core.log.intent import WriteIntent
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit.commit import CommitOutcome, commit
from qbeast_core.table.commit.s3_locking import refuse_unsafe_locking
from qbeast_core.table.data.data_files import FileSettings, delete_data_files, write_data_files
from qbeast_core.table.data.frames import FrameLike, to_frame
from qbeast_core.table.index.design_effect import (
    keys_of_write,
    table_design_effect,
    warn_if_clustered,
    with_write,
)
from qbeast_core.table.runtime import Progress, Runtime
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.creation import MOST_CREATIONS, goes_on, target_once_created
from qbeast_core.table.write.options import WriteOptions, check_options, report_progress
from qbeast_core.table.write.plan import ChosenRevision, Prepared, choose_space, prepare
from qbeast_core.table.write.target import find_target
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.key_sketch import KeySketch
from qbeast_core.tree.key_total import KeyTotal
from qbeast_core.tree.pack import rows_per_file
from qbeast_core.tree.plan import IndexPlan, plan_index
from qbeast_core.tree.summary import summarise

__all__ = [
    "Published",
    "WritePreview",
    "WriteResult",
    "Written",
    "index_rows",
    "is_applied",
    "preview_frame",
    "publish",
    "transformers_of",
    "write_frame",
]


def write_frame(
    data: FrameLike, uri: str | os.PathLike[str], options: WriteOptions, runtime: Runtime
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
            report_progress(options, Progress("read"))
            frame = to_frame(data)
        rows, prepared = prepare(frame, target, options, runtime)
        try:
            return _write_rows(rows, prepared, target, options, uri=uri, runtime=runtime)
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
    runtime: Runtime,
) -> WriteResult:
    """Plan, write the files, and commit."""
    store = open_store(uri, options.storage_options)
    refuse_unsafe_locking(store.uri, options.storage_options)
    report_progress(options, Progress("plan", rows=rows.height))
    with ThreadPoolExecutor(1) as aside:  # while the plan is made
        configuration = prepared.metadata.configuration
        trial = aside.submit(FileSettings.of, rows, prepared.names, configuration, dialect=prepared.dialect)
        space, plan, effect = index_rows(rows, prepared, target, options, uri=uri, now_ms=runtime.now_ms())
        settings = trial.result()
    adds = write_data_files(
        rows,
        plan,
        store=store,
        settings=settings,
        runtime=runtime,
        progress=options.progress,
    )
    report_progress(options, Progress("commit", len(adds), len(adds), rows.height))
    keys = keys_of_write(adds, effect)
    written = Written(prepared, space, adds, rows.height, len(plan.thresholds), keys)
    published = publish(store, target, written, options)
    report_progress(options, Progress("done", len(adds), len(adds), rows.height))
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
) -> tuple[ChosenRevision, IndexPlan, float]:
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


@dataclass(frozen=True, slots=True)
class Written:
    """What was written and is still invisible.

    Attributes
    ----------
    prepared : Prepared
        What the table will look like.
    space : ChosenRevision
        How the rows are indexed.
    adds : sequence of AddFile
        The data files.
    rows, cubes : int
        Rows written, and cubes that took some.
    keys : KeySketch
        How often index keys repeat in the rows.
    """

    prepared: Prepared
    space: ChosenRevision
    adds: Sequence[AddFile]
    rows: int
    cubes: int
    keys: KeySketch


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a write.

    Attributes
    ----------
    result : WriteResult
        The outcome.
    effects : tuple of two floats
        The least that the design effect of the table can be, without these rows and with them.
    """

    result: WriteResult
    effects: tuple[float, float] = (1.0, 1.0)


def publish(store: Store, target: Snapshot | None, written: Written, options: WriteOptions) -> Published:
    """Commit; files that no version will ever name are deleted again.

    Parameters
    ----------
    store : Store
        Below the table's root.
    target : Snapshot or None
        The version the write was planned on.
    written : Written
        What to publish.
    options : WriteOptions
        What was asked for.

    Raises
    ------
    ConflictError
        Another writer was faster, and the rows do not fit what it left; nothing was written.
    CommitUnknownError
        The store did not say whether the commit landed.
    """
    intent = _intent(target, written, options)
    try:
        outcome = commit(store, target, intent, storage_options=options.storage_options)
    except CommitUnknownError:
        raise  # the commit may have landed: its files must stay
    except QbeastError:
        delete_data_files(store, intent.adds)
        raise
    if outcome.already_applied:
        delete_data_files(store, intent.adds)
        return Published(WriteResult.untouched(outcome.version, written.space.revision))
    stays = target if options.mode == "append" else None
    found = stays if outcome.snapshot is None else outcome.snapshot
    before, counts = with_write(None if found is None else found.files, written.adds, written.keys)
    return Published(_result(written, outcome, counts.design_effect), (before, counts.lower_bound))


def is_applied(target: Snapshot, txn: tuple[str, int] | None) -> bool:
    """Tell whether the table holds that version of the application, or a later one."""
    if txn is None:
        return False
    version = target.transaction_version(txn[0])
    return version is not None and version >= txn[1]


def _intent(target: Snapshot | None, written: Written, options: WriteOptions) -> WriteIntent:
    adds, prepared = written.adds, written.prepared
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputRows": str(written.rows),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }
    info: dict[str, Any] = {**options.commit_metadata, "operationMetrics": metrics}
    changed = target is None or prepared.metadata != target.metadata
    return WriteIntent(
        mode="create" if target is None else "overwrite" if options.mode == "overwrite" else "append",
        adds=tuple(adds),
        revision=written.space.revision,
        new_revision=written.space.is_new,
        metadata=prepared.metadata if changed else None,
        dialect=prepared.dialect,
        txn=None if options.txn is None else Txn(app_id=options.txn[0], version=options.txn[1]),
        commit_info=info,
    )


def _result(written: Written, outcome: CommitOutcome, design_effect: float | None) -> WriteResult:
    revision = written.space.revision
    return WriteResult(
        version=outcome.version,
        written=True,
        rows=written.rows,
        files=len(written.adds),
        bytes=sum(add.size for add in written.adds),
        cubes=written.cubes,
        revision_id=revision.revision_id if outcome.revision_id is None else outcome.revision_id,
        new_revision=written.space.is_new,
        transformers=transformers_of(revision),
        cube_size=revision.desired_cube_size,
        design_effect=design_effect,
        attempts=outcome.attempts,
        staged_files=outcome.staged_files,
    )


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Outcome of `qbeast.write_table`.

    Attributes
    ----------
    version : int
        Version of the table that holds the rows; the present one when nothing was written.
    written : bool
        False when mode ``"ignore"`` met a table, or `txn` had been applied before.
    rows, files, bytes : int
        Rows, data files and bytes added.
    cubes : int
        Cubes that took rows.
    revision_id : int
        Revision the rows are indexed with.
    new_revision : bool
        Whether this write made it.
    transformers : dict of str to str
        How each indexed column is indexed: ``"linear"``, ``"quantiles"``, ``"hashing"`` or ``"histogram"``.
    cube_size : int
        Rows a cube aims to hold.
    design_effect : float or None
        Of the table with these rows in it, see `Table.design_effect`: ``sum(m_k ** 2) / n`` over its index keys,
        how many times the variance of a sampled count is that of independent rows. 1.0 is the best.
    attempts : int
        Commits tried; more than one when other writers were faster.
    staged_files : int
        Those of `files` without index, because what another writer committed meanwhile left their rows no place
        in the tree. Reads are right, and `Table.optimize` indexes them.
    """

    version: int
    written: bool
    rows: int
    files: int
    bytes: int
    cubes: int
    revision_id: int
    new_revision: bool
    transformers: dict[str, str]
    cube_size: int
    design_effect: float | None
    attempts: int
    staged_files: int = 0

    @staticmethod
    def untouched(version: int, revision: Revision | None, design_effect: float | None = None) -> WriteResult:
        """Return the outcome of a write that had nothing to do."""
        return WriteResult(
            version=version,
            written=False,
            rows=0,
            files=0,
            bytes=0,
            cubes=0,
            revision_id=revision.revision_id if revision else 0,
            new_revision=False,
            transformers=transformers_of(revision),
            cube_size=revision.desired_cube_size if revision else 0,
            design_effect=design_effect,
            attempts=0,
        )


def transformers_of(revision: Revision | None) -> dict[str, str]:
    """Return how each column of a revision is indexed.

    Examples
    --------
    >>> transformers_of(None)
    {}
    """
    return {t.column_name: t.kind for t in revision.column_transformers} if revision else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePreview:
    """What a write would do; other writers may change that until it is done.

    Attributes
    ----------
    version : int
        The newest version of the table, -1 where there is none.
    would_write : bool
        False where mode ``"ignore"`` meets a table, or `txn` has been applied before.
    rows, files, cubes : int
        Rows that would be added, in how many data files, in how many cubes.
    revision_id : int
        Revision the rows would be indexed with.
    new_revision : bool
        Whether the write would make it.
    transformers : dict of str to str
        How each indexed column would be indexed, as in `WriteResult`.
    cube_size : int
        Rows a cube would aim to hold.
    design_effect : float or None
        Of the table with the rows in it, as in `WriteResult`.
    """

    version: int
    would_write: bool
    rows: int
    files: int
    cubes: int
    revision_id: int
    new_revision: bool
    transformers: dict[str, str]
    cube_size: int
    design_effect: float | None


def preview_frame(data: FrameLike, uri: str, options: WriteOptions, runtime: Runtime) -> WritePreview:
    """Plan a write of `data` and throw the plan away; options and errors are those of `qbeast.write_table`."""
    check_options(options)
    uri = resolve_location(uri)
    target = find_target(uri, options.mode, options.storage_options)
    version = -1 if target is None else target.version
    if target is not None and (options.mode == "ignore" or is_applied(target, options.txn)):
        latest = target.config.latest
        return WritePreview(
            version=version,
            would_write=False,
            rows=0,
            files=0,
            cubes=0,
            revision_id=latest.revision_id if latest else 0,
            new_revision=False,
            transformers=transformers_of(latest),
            cube_size=latest.desired_cube_size if latest else 0,
            design_effect=table_design_effect(target),
        )
    report_progress(options, Progress("read"))
    rows, prepared = prepare(to_frame(data), target, options, runtime)
    refuse_unsafe_locking(uri, options.storage_options)
    report_progress(options, Progress("plan", rows=rows.height))
    space, plan, effect = index_rows(rows, prepared, target, options, uri=uri, now_ms=runtime.now_ms())
    return WritePreview(
        version=version,
        would_write=True,
        rows=rows.height,
        files=plan.file_count,
        cubes=len(plan.thresholds),
        revision_id=space.revision.revision_id,
        new_revision=space.is_new,
        transformers=transformers_of(space.revision),
        cube_size=space.revision.desired_cube_size,
        design_effect=_design_effect(plan, target if options.mode == "append" else None, effect),
    )


def _design_effect(plan: IndexPlan, target: Snapshot | None, own: float) -> float | None:
    total = KeyTotal()
    for number in range(plan.file_count):
        total.add(KeySketch.of(plan.file(number).weights))
    keys = total.joined(own * total.rows)
    return with_write(None if target is None else target.files, (), keys)[1].design_effect
