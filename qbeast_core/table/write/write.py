"""Write rows to a table: load a snapshot, plan, let an engine write files, commit once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

import polars as pl

from qbeast_core.errors import TableExistsError, changed_before
from qbeast_core.io.location import Location
from qbeast_core.io.store import Store
from qbeast_core.log.actions import AddFile, Metadata
from qbeast_core.log.protocol import WriteIntent, WriteMode
from qbeast_core.results import FilesResult
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import LOG, Progress, now_ms, refuse_forked, report
from qbeast_core.support.sizing import sizing
from qbeast_core.table.commit import CommitOutcome, publish
from qbeast_core.table.data.files import delete_data_files
from qbeast_core.table.engine.engine import Engine, Rows, Source, WritePlan
from qbeast_core.table.engine.files import rows_of
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.engine.sources import marked_table, numbered_source, required_columns
from qbeast_core.table.index.counts import (
    KeyCounts,
    count_keys,
    keys_of_write,
    known_counts,
    warn_if_clustered,
    warn_if_one_key,
    warn_if_small,
    with_write,
)
from qbeast_core.table.index.revision import ChosenRevision, choose_revision
from qbeast_core.table.snapshot.snapshot import Snapshot, newest_snapshot, warn_of_added_columns
from qbeast_core.table.write.options import WriteOptions, check_options, find_target_once_created
from qbeast_core.table.write.prepare import PreparedTable, prepare, rows_intent
from qbeast_core.tree.keys import CLUSTERED

# Number of pages of a table of which filters open a third or more, whatever the index.
_FEW_PAGES: Final = 4


def _hint_of(prepared: PreparedTable, chosen: ChosenRevision | None, result: WriteResult) -> str | None:
    """Return what to know about the index of a new table. None: all is well, or a warning was given."""
    rows, design_effect = result.rows, result.design_effect
    if (
        chosen is None
        or not (prepared.table.is_new and rows)
        or prepared.wish.dialect != "documented"
        or prepared.target.columns.partitions
    ):
        return None
    pages = -(-rows // sizing().min_page_rows)
    if pages <= _FEW_PAGES:
        opened = "all of them" if pages == 1 else "a third of them or more"
        return (
            f"{rows:,} row(s) fill {pages} page(s): filters open {opened}, and skip more as the table grows"
        )
    if design_effect is None or design_effect > CLUSTERED:
        return None
    name = min(chosen.few_values, key=chosen.few_values.__getitem__, default=None)
    others = [column for column in chosen.revision.columns if column != name]
    if name is None or not others:
        return None
    count = chosen.few_values[name]
    share = f"{count} values: a filter on one of them opens about {100 / count:.0f} % or more"
    has = share if count > 1 else "one value: a filter on it opens all"
    return (
        f"{name!r} has {has}, and filters on other columns open less without it: "
        f"table.reindex(columns={others}, full=True)"
    )


# How often a write may find no table and lose the race to create it: between two times, the table vanished.
_MAX_CREATIONS: Final = 5

ResultT = TypeVar("ResultT")


def write_rows(
    source: Source, path: str | os.PathLike[str] | Location, options: WriteOptions, *, engine: Engine = MEMORY
) -> WriteResult:
    """Write the rows of a source; see `qbeast.write_table` for the options and errors."""

    def attempt(before: Snapshot) -> WriteResult:
        if not before.is_new and (options.mode == "ignore" or before.has_applied(options.txn)):
            effect = known_counts(before).design_effect
            result = WriteResult.of(before.config.latest, version=before.version, design_effect=effect)
            return replace(result, skipped=True, dry_run=options.dry_run)
        report(options.progress, Progress("read"))
        return _write(source, before, options, engine)

    if options.register is None:
        return on_table(path, options, attempt)
    return _registered(path, options, attempt)


def _registered(
    path: str | os.PathLike[str] | Location, options: WriteOptions, attempt: Callable[[Snapshot], WriteResult]
) -> WriteResult:
    """Write to the table at a path, and create its entry in the catalog."""
    from qbeast_core.io.catalog.register import NewEntry  # noqa: PLC0415 - loads an HTTP client

    check_options(options)
    given = options.storage_options or {}
    location = Location.of(path, given)
    entry = NewEntry.of(options.register, location.uri, given)
    location = replace(location, storage_options=entry.storage_options)
    result = on_table(location, options, attempt)
    if not options.dry_run:
        with changed_before(lambda: result.committed):
            metadata = newest_snapshot(location).metadata
            entry.create(metadata.schema_string, metadata.partition_columns, metadata.description)
    return result


def on_table(
    path: str | os.PathLike[str] | Location, options: WriteOptions, attempt: Callable[[Snapshot], ResultT]
) -> ResultT:
    """Write to the table at a path, or create it. Write again if another writer creates it first."""
    check_options(options)
    location = Location.of(path, options.storage_options)
    refuse_forked(location.uri)
    for left in reversed(range(_MAX_CREATIONS)):
        before = find_target_once_created(location, options.mode)
        try:
            return attempt(before)
        except TableExistsError:
            if not (left and before.is_new) or options.mode == "error":
                raise
    raise AssertionError  # the last round returns or raises


def _write(source: Source, before: Snapshot, options: WriteOptions, engine: Engine) -> WriteResult:
    """Plan, write the files, and commit."""
    prepared = prepare(source.empty, before, options, required=required_columns(source))
    source = numbered_source(source, prepared.drawn)
    before.location.refuse_changes()
    rows = engine.open(source, prepared.target, options.progress)
    chosen = _choose(prepared, rows)
    revision = None if chosen is None else chosen.revision
    index = None if chosen is None or chosen.is_new else prepared.index
    plan = rows.plan(revision, None if index is None or revision is None else index.tree(revision))
    if chosen is not None:
        LOG.debug("plans %d rows for %s: %d files", chosen.rows, before.uri, plan.file_count)
    # The files beside which the new ones stay.
    stays = before if prepared.index is not None else None
    if options.dry_run:
        result = _dry_result(before, stays, plan, chosen, rows)
        return replace(result, hint=_hint_of(prepared, chosen, result))
    adds = _written(plan, before.store, options)
    count = rows_of(adds)
    intent = _intent(before, marked_table(source, prepared.table, count).metadata, prepared, options, adds)
    intent = replace(intent, revision=revision, new_revision=chosen is not None and chosen.is_new)
    outcome = publish(before, intent)
    report(options.progress, Progress("done", len(adds), len(adds), count))
    if outcome.already_applied:
        return replace(WriteResult.of(revision, version=outcome.version), skipped=True)
    if chosen is None:
        return replace(_done(WriteResult.of(None, rows=count), adds, outcome), staged_files=0)
    if stays is not None:
        warn_of_added_columns(stays, prepared.target.shape.schema)
    if outcome.snapshot is not None:
        warn_if_small(stays, outcome.snapshot)
    earlier, counts = with_write(_others(stays, outcome, adds), keys_of_write(adds, plan.design_effect))
    effects, own = (earlier, counts.lower_bound), plan.design_effect
    warn_if_clustered(effects, chosen.revision, rows.in_memory_rows, own_effect=own)
    if stays is None:
        warn_if_one_key(chosen.revision, count, own)
    result = WriteResult.of(revision, rows=count, design_effect=counts.design_effect)
    result = _done(replace(result, new_revision=chosen.is_new), adds, outcome)
    return replace(result, hint=_hint_of(prepared, chosen, result))


def _choose(prepared: PreparedTable, rows: Rows) -> ChosenRevision | None:
    """Return the revision for the rows. None: the table has no index."""
    wish, index = prepared.wish, prepared.index
    if not wish.specs:
        return None
    newest = None if index is None else index.newest
    cube_size = wish.cube_size or (None if newest is None else newest.desired_cube_size)
    summary_of = partial(rows.summary, cube_size=cube_size)
    return choose_revision(wish, summary_of, index, uri=prepared.table.uri, now_ms=now_ms())


def _intent(
    before: Snapshot,
    metadata: Metadata,
    prepared: PreparedTable,
    options: WriteOptions,
    adds: Sequence[AddFile],
) -> WriteIntent:
    """Return the intent of a write, without the revision of its files."""
    mode: WriteMode = "append" if prepared.index else "create" if before.is_new else "overwrite"
    return replace(
        rows_intent(mode, adds, options),
        metadata=None if metadata == before.metadata else metadata,
        dialect=prepared.wish.dialect,
    )


def _written(plan: WritePlan, store: Store, options: WriteOptions) -> list[AddFile]:
    """Write all files; if that fails, delete the written ones as far as the store allows."""
    adds: list[AddFile] = []
    try:
        adds += plan.write()
        report(options.progress, Progress("commit", len(adds), len(adds), rows_of(adds)))
    except BaseException:  # an interrupt or a panic of Rust leaves no files either; raised again
        delete_data_files(store, adds)
        raise
    return adds


def _others(stays: Snapshot | None, outcome: CommitOutcome, adds: Sequence[AddFile]) -> KeyCounts | None:
    """Return how often keys repeat in the other files of the table; None: there are none."""
    newest = outcome.snapshot
    if stays is not None and (newest is None or newest.version == stays.version + 1):
        return known_counts(stays)
    if newest is None:
        return None
    if newest.planned is not None:
        return known_counts(newest)
    return count_keys(newest.files.filter(~pl.col("path").is_in([add.path for add in adds])))


def _done(result: WriteResult, adds: Sequence[AddFile], outcome: CommitOutcome) -> WriteResult:
    return replace(
        result,
        version=outcome.version,
        committed=True,
        files=len(adds),
        bytes=sum(add.size for add in adds),
        cubes=len(
            {(*add.partition_values.values(), block.cube) for add in adds for block in add.blocks or ()}
        ),
        revision_id=result.revision_id if outcome.revision_id is None else outcome.revision_id,
        attempts=outcome.attempts,
        staged_files=outcome.staged_files,
    )


def _dry_result(
    before: Snapshot,
    stays: Snapshot | None,
    plan: WritePlan,
    chosen: ChosenRevision | None,
    rows: Rows,
) -> WriteResult:
    """Return the result of a dry run."""
    if chosen is None:
        result = WriteResult.of(None, rows=rows.height)
    else:
        _, counts = with_write(None if stays is None else known_counts(stays), plan.keys())
        effect = counts.design_effect
        result = WriteResult.of(chosen.revision, rows=chosen.rows, design_effect=effect)
        result = replace(result, new_revision=chosen.is_new, cubes=plan.cube_count)
    return replace(
        result,
        version=before.version,
        dry_run=True,
        files=plan.file_count,
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WriteResult(FilesResult):
    """Outcome of `qbeast.write_table`.

    Attributes
    ----------
    version : int
        Version of the table with the rows. The current version if nothing was written; -1 if there is no table yet.
    committed : bool
        Whether a version was committed. False for a dry run, and if there was nothing to do.
    rows, files, bytes : int
        Number of rows, data files and bytes added.
    cubes : int
        Number of cubes with new rows.
    revision_id : int
        Revision of the rows.
    new_revision : bool
        Whether this write created the revision.
    transformers : dict of str to str
        Kind of each indexed column: ``"linear"``, ``"quantiles"`` or ``"hash"``.
    cube_size : int
        Target number of rows per cube.
    design_effect : float or None
        Design effect of the table with the new rows, see `Table.design_effect`. 1.0 is the minimum.
    attempts : int
        Number of commits attempted. More than one if other writers committed first.
    staged_files : int
        Number of `files` without index, because they do not fit the tree after a concurrent commit. Reads return
        their rows, and `Table.optimize` indexes them.
    dry_run : bool
        Whether the write was only planned. Rows, files, cubes and revision may change if other writers commit first.
    skipped : bool
        Whether there was nothing to do: with mode ``"ignore"`` a table exists, or `txn` was applied before.
    rows_deleted : int
        Number of rows that the new rows replace, with `where`. An overwrite of all rows does not count them.
    rows_copied : int
        Number of unchanged rows that were written again, with `where`, because they shared a file with replaced rows.
        The minimum if `dry_run`.
    copies : polars.DataFrame or None
        With `where`: what the write copies at least, without and with deletion vectors, as `ChangeResult.copies`.
    hint : str or None
        Of the write that makes a table: one line about its index if filters will skip little with it, because the
        table is small or an indexed column has few values. With `where`: the call that makes such writes cheaper, as
        `ChangeResult.hint`. None if all is well.
    """

    rows: int = 0
    cubes: int = 0
    revision_id: int = 0
    new_revision: bool = False
    transformers: dict[str, str] = field(default_factory=dict[str, str])
    cube_size: int = 0
    design_effect: float | None = None
    attempts: int = 0
    staged_files: int = 0
    skipped: bool = False
    rows_deleted: int = 0
    rows_copied: int = 0
    copies: pl.DataFrame | None = field(default=None, repr=False)
    hint: str | None = None

    def _facts(self) -> dict[str, str]:
        facts = super(WriteResult, self)._facts()
        if self.copies is None or not self.dry_run:
            return facts
        shown = [
            f"{rows:,} rows, {size:,} bytes {'with' if vectors else 'without'} deletion vectors"
            for vectors, rows, size in self.copies.iter_rows()
        ]
        hint = {"hint": facts.pop("hint")} if "hint" in facts else {}
        return {**facts, "copies": f"at least {'; '.join(shown)}", **hint}

    @staticmethod
    def of(
        revision: Revision | None, *, version: int = -1, rows: int = 0, design_effect: float | None = None
    ) -> WriteResult:
        """Return the result of a write in a revision before its files are written."""
        result = WriteResult(
            version=version,
            committed=False,
            dry_run=False,
            files=0,
            bytes=0,
            rows=rows,
            design_effect=design_effect,
        )
        if revision is None:
            return result
        return replace(
            result,
            revision_id=revision.revision_id,
            transformers=revision.transformer_kinds,
            cube_size=revision.desired_cube_size,
        )
