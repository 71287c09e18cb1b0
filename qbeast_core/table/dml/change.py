"""Change rows: match, replace and publish, with the change data feed. Plan again after another commit.

The files of the feed are written after the new data files, and published by the same commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, Literal, cast

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError, UnsupportedTableError, invalid_argument, unknown_columns
from qbeast_core.log.actions import CHANGE_FOLDER, CdcFile, Txn
from qbeast_core.log.deletion_vectors import rows_in
from qbeast_core.log.protocol import (
    CHANGE_FEED,
    Brings,
    WriteIntent,
    WriteMode,
    damaged_index,
    has_change_feed,
)
from qbeast_core.plan.nodes import Node
from qbeast_core.plan.predicate import understand
from qbeast_core.space.values import BoolArray
from qbeast_core.support.hints import condition_text, quoted, values_hint
from qbeast_core.support.process import (
    Progress,
    ProgressCallback,
    ProgressLike,
    callback_of,
    new_id,
    now_ms,
    report,
)
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.expressions import Condition, Predicate, Value, condition_of, value_of
from qbeast_core.table.data.files import delete_data_files, delete_files_named
from qbeast_core.table.data.rules import RowRules, refuse_new_numbers, rules_of
from qbeast_core.table.data.schema import CHANGE_TYPE, refuse_sample_column
from qbeast_core.table.dml.plan import (
    NO_MATCHES,
    ChangedBy,
    ChangePlan,
    ChangeResult,
    find_matches,
    hides_rows,
)
from qbeast_core.table.dml.tasks import Assignments, DeleteChange, FeedPart, UpdateChange, WriteFeed
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.engine.sources import FilesSource
from qbeast_core.table.index.live_index import Index, NeedsAllFilesError
from qbeast_core.table.read.planner import Planner, scan_of_rows, scans_of
from qbeast_core.table.rewrite.replace import (
    Replaced,
    Replacement,
    publish_replaced,
    refuse_copies,
    replace_rows,
    with_attempts,
)
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh, with_schema
from qbeast_core.table.write.options import check_txn, metadata_of

_AT_ONCE: Final = 2
_SMALL_FILE_BYTES: Final = 4 << 20
# Memory of a task, as a multiple of the bytes of a file: rows as read, before and after, joined and encoded.
_HELD: Final = 8
# Files with few changed rows share a task of `Sizing.feed_task_rows`.
_FILES_PER_TASK: Final = 16


def _keeps_feed(snapshot: Snapshot) -> bool:
    """Return whether a table has a change data feed."""
    return has_change_feed(snapshot.protocol, snapshot.metadata)


def _refuse_feed_column(snapshot: Snapshot) -> None:
    """Raise if the table has a feed and a column with the name of a column of the feed."""
    if _keeps_feed(snapshot) and CHANGE_TYPE in map(str.lower, snapshot.schema):
        msg = (
            f"{snapshot.uri} has a change data feed and a column {CHANGE_TYPE!r}, which the feed uses too. "
            f"Disable the feed with Table.set_properties({{{CHANGE_FEED!r}: None}})."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=CHANGE_FEED)


def write_feed(
    snapshot: Snapshot, plan: ChangePlan, replaced: Replaced, engine: Engine
) -> tuple[CdcFile, ...]:
    """Write the files of the feed.

    No file is written if the added and removed files are the feed. If this fails, its files and the new data files are
    deleted.
    """
    if not _keeps_feed(snapshot) or not _rewrites_rows(plan, replaced):
        return ()
    store, prefix = snapshot.store, f"cdc-{new_id()}"
    try:
        call = _call(snapshot, plan, replaced, engine, prefix)
        written = engine.map(call, _parts(snapshot, plan, call.file_bytes), at_once=_AT_ONCE)
    except BaseException:  # also after an interrupt or a panic of Rust
        delete_data_files(store, replaced.adds)
        delete_files_named(store, CHANGE_FOLDER, prefix)
        raise
    return tuple(file for files in written for file in files)


def _rewrites_rows(plan: ChangePlan, replaced: Replaced) -> bool:
    """Return whether a changed file has rows that stay. If not, removed rows are deleted and added rows inserted."""
    rewritten = replaced.gone.copy()
    rewritten[plan.replacement.dropped] = False
    return bool(rewritten.any() or replaced.hidden)


def _call(snapshot: Snapshot, plan: ChangePlan, replaced: Replaced, engine: Engine, prefix: str) -> WriteFeed:
    planner = Planner(snapshot)
    scan = plan.matches.scan or planner.plan(None, None)
    file_bytes = sizing().feed_file_bytes
    has_room = engine.has_room(file_bytes * _HELD * _AT_ONCE)
    return WriteFeed(
        files=planner.files,
        keep=planner.row_filter(scan, list(snapshot.schema)),
        change=plan.replacement.change,
        target=FilesSource(snapshot=snapshot, files=plan.replacement.files).target,
        hashed=snapshot.hashed if replaced.revision is None else replaced.revision.hashed,
        prefix=prefix,
        file_bytes=file_bytes if has_room else _SMALL_FILE_BYTES,
    )


def _parts(snapshot: Snapshot, plan: ChangePlan, file_bytes: int) -> list[FeedPart]:
    """Split the feed into tasks."""
    matches, added = plan.matches, plan.replacement.added
    inserts = list[FeedPart](added.pieces(list(snapshot.schema), size_bytes=file_bytes))
    if matches.scan is None:
        return inserts
    planner, scan, hidden = Planner(snapshot), matches.scan, plan.replacement.hidden
    most = sizing().feed_task_rows
    rows = np.cumsum(np.maximum(matches.rows, most // _FILES_PER_TASK))
    cuts = np.flatnonzero(np.diff((rows - 1) // most)) + 1
    groups = [group.tolist() for group in np.split(matches.files, cuts) if len(group)]
    others = [file for file in matches.files.tolist() if file not in hidden]
    scans = dict(zip(others, scans_of(planner, scan, others), strict=True))
    scans |= {file: scan_of_rows(snapshot, file, rows_in(rows)) for file, rows in hidden.items()}
    return [tuple(scans[file] for file in group) for group in groups] + inserts


_NOTHING: Final = ChangePlan(matches=NO_MATCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Options common to delete, update and merge."""

    dry_run: bool = False
    txn: tuple[str, int] | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: ProgressCallback | None = None


def change_options(
    *,
    dry_run: bool = False,
    txn: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
) -> ChangeOptions:
    """Return the options of a change from the arguments of a public function."""
    metadata = metadata_of(commit_metadata)
    return ChangeOptions(dry_run=dry_run, txn=txn, commit_metadata=metadata, progress=callback_of(progress))


class Change(ABC):
    """A delete, an update or a merge. It can be planned on any version."""

    operation: ClassVar[ChangedBy]
    """Name in the history."""

    adds_rows: ClassVar[bool] = True
    """Whether rows may be added or changed. False: rows are only deleted."""

    @property
    def mode(self) -> WriteMode:
        """``"overwrite"`` if rows may be changed or deleted, ``"append"`` if rows are only added."""
        return "overwrite"

    def with_new_columns(self, snapshot: Snapshot) -> Snapshot:
        """Return the version with the columns that the change adds. By default it adds none."""
        return snapshot

    def scope(self, snapshot: Snapshot) -> Node | None:
        """Return the condition of all rows that may be changed or deleted. None: these may be any rows."""
        del snapshot
        return None

    @abstractmethod
    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """Plan the change against a version; raise on invalid input."""

    @abstractmethod
    def affects(self, snapshot: Snapshot, files: BoolArray, engine: Engine) -> bool:
        """Return whether the result depends on a row in these files of a version."""


def run_change(
    snapshot: Snapshot, change: Change, options: ChangeOptions, *, engine: Engine = MEMORY
) -> tuple[ChangeResult, Snapshot | None]:
    """Apply a change to the newest version. Return the result and the new version, or None if that cannot be loaded."""
    check_txn(options.txn)

    def attempt(newest: Snapshot) -> tuple[ChangeResult, Snapshot | None]:
        scope = None if newest.planned is None else change.scope(newest)
        if scope is not None:
            with suppress(NeedsAllFilesError):
                result, latest = _attempt(newest.narrowed(scope), change, options, engine)
                return result, latest and (latest.whole or latest)
        return _attempt(newest.unplanned, change, options, engine)

    return with_attempts(refresh(snapshot), attempt)


def _attempt(
    snapshot: Snapshot, change: Change, options: ChangeOptions, engine: Engine
) -> tuple[ChangeResult, Snapshot | None]:
    started = now_ms()
    _check_changeable(snapshot, change)
    refuse_copies(Index(snapshot))
    if snapshot.has_applied(options.txn):
        return _NOTHING.result(snapshot, change.operation, dry_run=options.dry_run), snapshot
    report(options.progress, Progress("read"))
    wide = change.with_new_columns(snapshot)
    _refuse_feed_column(wide)
    plan = change.plan(wide, engine)
    # An empty change with a transaction is committed too: the log then records that it was applied.
    if options.dry_run or (plan.is_empty and options.txn is None):
        return plan.result(snapshot, change.operation, dry_run=options.dry_run), snapshot
    replaced = replace_rows(wide, plan.replacement, "keep", engine=engine, progress=options.progress)
    changes = write_feed(wide, plan, replaced, engine)
    intent = WriteIntent(
        mode="append",
        brings="rows" if change.adds_rows else "files",
        changes=changes,
        txn=None if options.txn is None else Txn(app_id=options.txn[0], version=options.txn[1]),
        operation=change.operation,
        commit_info={
            **options.commit_metadata,
            "operationParameters": plan.parameters,
            "operationMetrics": {**plan.metrics(snapshot, replaced), "executionTimeMs": now_ms() - started},
        },
    )
    conflict_with = partial(_conflict, snapshot, change, engine)
    published = wide if plan.schema_json is None else with_schema(wide, plan.schema_json)
    outcome = publish_replaced(
        published, replaced, intent, data_change=True, base=snapshot, conflict_with=conflict_with
    )
    if outcome.already_applied:
        newest = outcome.snapshot or snapshot
        return _NOTHING.result(newest, change.operation), newest
    result = plan.result(snapshot, change.operation, (replaced, outcome))
    report(options.progress, Progress("done", result.files, result.files, replaced.rows))
    return result, outcome.snapshot


def _check_changeable(snapshot: Snapshot, change: Change) -> None:
    brings: Brings = "rows" if change.adds_rows else "files"
    snapshot.check_writable(change.mode, brings=brings)
    if snapshot.config.newest_fault is not None:  # rows that are put back go to the newest revision
        raise InvalidMetadataError(damaged_index(snapshot.config, path=snapshot.uri))


def _conflict(snapshot: Snapshot, change: Change, engine: Engine, newest: Snapshot) -> str | None:
    """Return why a change planned on a version conflicts with the newest version, or None."""
    if newest.schema_json != snapshot.schema_json:
        return "another writer changed the schema"
    _check_changeable(newest, change)
    if _keeps_feed(newest) and not _keeps_feed(snapshot):
        return "another writer enabled the change data feed"
    if hides_rows(snapshot) and not hides_rows(newest):
        return "another writer disabled deletion vectors"
    newest = _without_known(snapshot, newest)
    key = ["path", "deletion_vector"]
    old = snapshot.files.select(key).with_columns(pl.lit(value=True).alias("old"))
    joined = newest.files.select(key).join(old, on=key, how="left", nulls_equal=True, maintain_order="left")
    new = joined["old"].is_null().to_numpy()
    if np.any(new) and change.affects(newest, new, engine):
        return "another writer added rows that this change has to look at"
    return None


def _without_known(snapshot: Snapshot, newest: Snapshot) -> Snapshot:
    """Return a newer version without files that the version of a plan has, if both have the same plan file."""
    whole = snapshot.whole or snapshot
    if whole.planned is None or newest.planned is None or whole.planned.plan is not newest.planned.plan:
        return newest
    key = ["path", "deletion_vector"]
    return newest.with_files(newest.listed.join(whole.listed, on=key, how="anti", nulls_equal=True))


def assignments_of(
    values: Mapping[str, Value],
    snapshot: Snapshot,
    scope: pl.Schema,
    rules: RowRules | None,
    *,
    argument: str = "set",
) -> Assignments:
    """Return compiled values for columns. Raise if they do not fit the table.

    `rules` are the rules for changed rows, or None.
    """
    if not isinstance(cast("object", values), Mapping) or not values:
        problem = "must map columns to values, at least one"
        invalid_argument(argument, problem, value=values, cure=values_hint(argument, values))
    schema = snapshot.schema
    unknown = [name for name in values if name not in schema]
    if unknown:
        unknown_columns(argument, unknown, schema)
    refuse_sample_column(snapshot.sample_column, values, argument=argument)
    if rules is not None:
        refuse_new_numbers(rules.identities, values, argument)
    compiled = [
        value_of(value, scope, schema[name], column=name, argument=argument) for name, value in values.items()
    ]
    applied = None if rules is None else rules.on_changed(values)
    return Assignments(tuple(compiled), required_columns(snapshot) & frozenset(values), argument, applied)


def required_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the columns of a table that may hold no nulls."""
    fields = orjson.loads(snapshot.schema_json)["fields"]
    return frozenset(field["name"] for field in fields if not field.get("nullable", True))


@dataclass(frozen=True)
class ConditionalChange:
    """A change of the rows that match a condition. True matches all rows."""

    predicate: Predicate | Literal[True]

    def __post_init__(self) -> None:
        where = cast("object", self.predicate)
        if where is None or where is False or isinstance(where, Mapping):
            problem = "must be a condition, or True for all rows"
            invalid_argument("where", problem, value=where, cure=self._instead_of(where))

    def _instead_of(self, where: object) -> str:
        """Return what to write instead of a value that is not a condition, as a sentence."""
        return f"Write where={quoted(condition_text(where))}." if isinstance(where, Mapping) and where else ""

    def scope(self, snapshot: Snapshot) -> Node | None:
        """See `Change`."""
        condition = self.condition(snapshot)
        return None if condition.constant else understand(condition.expr, snapshot.schema)[0]

    def condition(self, snapshot: Snapshot) -> Condition:
        """Return the condition for the columns of a version."""
        return condition_of(None if self.predicate is True else self.predicate, snapshot.schema)

    def affects(self, snapshot: Snapshot, files: BoolArray, engine: Engine) -> bool:
        """Return whether a row of the files matches."""
        return bool(len(find_matches(snapshot, self.condition(snapshot), engine, among=files).files))


@dataclass(frozen=True)
class Delete(ConditionalChange, Change):
    """Deletes the matching rows."""

    operation: ClassVar[ChangedBy] = "DELETE"
    adds_rows: ClassVar[bool] = False

    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """See `Change`."""
        condition = self.condition(snapshot)
        matches = find_matches(snapshot, condition, engine)
        deleted, is_marked = int(matches.rows.sum()), matches.markable(snapshot)
        rewritten = matches.files[~matches.whole & ~is_marked]
        return ChangePlan(
            matches=matches,
            replacement=Replacement(
                files=rewritten,
                in_place=rewritten,
                dropped=matches.files[matches.whole],
                change=DeleteChange(condition),
                keeps_keys=True,
                hidden=matches.found_in(is_marked),
            ),
            deleted=deleted,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numDeletedRows": deleted},
        )


@dataclass(frozen=True)
class Update(ConditionalChange, Change):
    """Sets new values in the matching rows."""

    operation: ClassVar[ChangedBy] = "UPDATE"

    assignments: Mapping[str, Value]

    def _instead_of(self, where: object) -> str:
        return "The condition comes first: update(where, set)." if isinstance(where, Mapping) else ""

    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """See `Change`."""
        condition = self.condition(snapshot)
        rules = rules_of(snapshot, present=snapshot.schema)
        assignments = assignments_of(self.assignments, snapshot, snapshot.schema, rules)
        assignments = assignments.of_updates(snapshot.row_id_columns)
        matches = find_matches(snapshot, condition, engine)
        updated = int(matches.rows.sum())
        keeps_keys = not set(assignments.columns) & set(snapshot.key_columns)
        is_marked = matches.markable(snapshot)
        rewritten, moved = matches.files[~is_marked], matches.found_in(is_marked)
        return ChangePlan(
            matches=matches,
            replacement=Replacement(
                files=rewritten,
                change=UpdateChange(condition, assignments),
                keeps_keys=keeps_keys,
                in_place=rewritten if keeps_keys else rewritten[:0],
                hidden=moved,
                moved=moved,
            ),
            updated=updated,
            parameters={"predicate": orjson.dumps([condition.text]).decode()},
            counts={"numUpdatedRows": updated},
        )
