"""Run a change of rows: match, replace and publish. Plan it again if another writer committed first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, cast

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidMetadataError, invalid_argument, unknown_columns
from qbeast_core.log.actions import Txn
from qbeast_core.log.protocol import Brings, WriteIntent, WriteMode, check_writable, damaged_index
from qbeast_core.space.values import BoolArray
from qbeast_core.support.process import Progress, ProgressCallback, ProgressLike, callback_of, now_ms, report
from qbeast_core.table.data.expressions import Value, value_of
from qbeast_core.table.data.rules import RowRules, refuse_new_numbers, rules_of
from qbeast_core.table.data.schema import refuse_sample_column
from qbeast_core.table.dml.change_plan import ChangedBy, ChangePlan, ChangeResult
from qbeast_core.table.dml.feed import keeps_feed, refuse_feed_column, write_feed
from qbeast_core.table.dml.file_matches import NO_MATCHES, hides_rows
from qbeast_core.table.dml.row_changes import Assignments
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.rewrite.replace import publish_replaced, refuse_copies, replace_rows, with_attempts
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh, with_schema
from qbeast_core.table.write.options import check_txn, is_applied, metadata_of

_NOTHING: Final = ChangePlan(matches=NO_MATCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Options common to delete, update and merge."""

    dry_run: bool = False
    txn: tuple[str, int] | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: ProgressCallback | None = None


def change_options(
    dry_run: bool,  # noqa: FBT001 - passed on
    txn: tuple[str, int] | None,
    commit_metadata: Mapping[str, str] | None,
    progress: ProgressLike,
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
    return with_attempts(refresh(snapshot), lambda newest: _attempt(newest, change, options, engine))


def _attempt(
    snapshot: Snapshot, change: Change, options: ChangeOptions, engine: Engine
) -> tuple[ChangeResult, Snapshot | None]:
    started = now_ms()
    _check_changeable(snapshot, change)
    refuse_copies(Index(snapshot))
    if is_applied(snapshot, options.txn):
        return _NOTHING.result(snapshot, change.operation, dry_run=options.dry_run), snapshot
    report(options.progress, Progress("read"))
    wide = change.with_new_columns(snapshot)
    refuse_feed_column(wide)
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
    check_writable(snapshot.protocol, snapshot.metadata, mode=change.mode, path=snapshot.uri, brings=brings)
    if snapshot.config.newest_fault is not None:  # rows that are put back go to the newest revision
        raise InvalidMetadataError(damaged_index(snapshot.config, path=snapshot.uri))


def _conflict(snapshot: Snapshot, change: Change, engine: Engine, newest: Snapshot) -> str | None:
    """Return why a change planned on a version conflicts with the newest version, or None."""
    planned = snapshot
    if newest.schema_json != planned.schema_json:
        return "another writer changed the schema"
    _check_changeable(newest, change)
    if keeps_feed(newest) and not keeps_feed(planned):
        return "another writer enabled the change data feed"
    if hides_rows(planned) and not hides_rows(newest):
        return "another writer disabled deletion vectors"
    key = ["path", "deletion_vector"]
    old = planned.files.select(key).with_columns(pl.lit(value=True).alias("old"))
    joined = newest.files.select(key).join(old, on=key, how="left", nulls_equal=True, maintain_order="left")
    new = joined["old"].is_null().to_numpy()
    if np.any(new) and change.affects(newest, new, engine):
        return "another writer added rows that this change has to look at"
    return None


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
        invalid_argument(argument, problem, value=values)
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


def rules_of_version(snapshot: Snapshot, *, given: Collection[str] = ()) -> RowRules | None:
    """Return the rules of a table for its rows, see `rules_of`. None: it has none."""
    return rules_of(snapshot.metadata, snapshot.protocol, snapshot.schema, path=snapshot.uri, given=given)


def required_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the columns of a table that may hold no nulls."""
    fields = orjson.loads(snapshot.schema_json)["fields"]
    return frozenset(field["name"] for field in fields if not field.get("nullable", True))
