"""Merge rows into a table: change matching rows, add new rows. Only files with matches are replaced."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError
from qbeast_core.log.protocol import WriteMode
from qbeast_core.log.rules import with_high_water_marks
from qbeast_core.log.schema import merged_schema
from qbeast_core.plan.nodes import Node
from qbeast_core.space.values import BoolArray
from qbeast_core.table.data.rules import RowRules, drawn_for, rules_of
from qbeast_core.table.data.schema import case_problems, name_problems, refuse_sample_column
from qbeast_core.table.dml.change import Change, assignments_of, required_columns
from qbeast_core.table.dml.merge_rules import Clauses, MergeRules, fit_source, fitted_columns
from qbeast_core.table.dml.merge_sources import MergeMatches, MergeSource, local_merge_source
from qbeast_core.table.dml.plan import ChangedBy, ChangePlan, FileMatches, live_rows
from qbeast_core.table.dml.tasks import Assignments
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.local import LocalEngine
from qbeast_core.table.engine.sources import RowsLike, open_source
from qbeast_core.table.rewrite.replace import Replacement
from qbeast_core.table.snapshot.snapshot import Snapshot, with_schema

_RENAMED: Final = {
    "numCopiedRows": "numTargetRowsCopied",
    "numAddedFiles": "numTargetFilesAdded",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numRemovedBytes": "numTargetBytesRemoved",
}


@contextmanager
def local_merge(source: RowsLike, clauses: Clauses, engine: LocalEngine) -> Generator[Merge]:
    """Open the rows of a merge on this machine."""
    with open_source(source) as rows:
        yield Merge(local_merge_source(rows, engine), clauses)


@dataclass(frozen=True, slots=True, eq=False)
class Merge(Change):
    """Merges the rows of a source."""

    operation: ClassVar[ChangedBy] = "MERGE"

    source: MergeSource
    clauses: Clauses

    @property
    def mode(self) -> WriteMode:
        """See `Change`."""
        return "overwrite" if self.clauses.changes_rows else "append"

    def scope(self, snapshot: Snapshot) -> Node | None:
        """See `Change`."""
        return self.source.scope(self._rules(self.with_new_columns(snapshot)))

    def plan(self, snapshot: Snapshot, engine: Engine) -> ChangePlan:
        """See `Change`."""
        rules = self._rules(snapshot)
        matched = self.source.match(rules, snapshot, engine)
        matched.doubled.refuse()
        updated, deleted, not_matched = matched.counts.sum(axis=1).tolist()
        files, lost, live = matched.files, matched.counts[1:].sum(axis=0), live_rows(snapshot)[matched.files]
        found = {file: places.rows for file, places in matched.found.items()}
        matches = FileMatches(files, matched.counts.sum(axis=0), live, matched.scan, found)
        is_whole, is_marked = np.equal(lost, live), matches.markable(snapshot)
        hidden = matches.found_in(is_marked)
        moved = {file: rows for file in hidden if (rows := matched.found[file].updated)}
        rewritten = files[~is_whole & ~is_marked]
        return ChangePlan(
            matches=matches,
            replacement=Replacement(
                files=rewritten,
                dropped=files[is_whole],
                change=matched.change,
                keeps_keys=rules.updates is None
                or not set(rules.updates.columns) & set(snapshot.key_columns),
                in_place=rewritten,
                hidden=hidden,
                moved=moved,
                read=matched.updated,
                added=matched.added.numbered(rules.drawn),
            ),
            schema_json=with_high_water_marks(snapshot.schema_json, rules.drawn, matched.added.height)
            if rules.drawn
            else None,
            deleted=deleted + not_matched,
            updated=updated,
            parameters=self._parameters(),
            counts=_metrics(matched),
            renamed=_RENAMED,
        )

    def with_new_columns(self, snapshot: Snapshot) -> Snapshot:
        """Return the version with the columns that the source adds."""
        return _evolved(snapshot, self.source.empty, self.clauses)

    def affects(self, snapshot: Snapshot, files: BoolArray, engine: Engine) -> bool:
        """Return whether the files hold a match, or a row that is deleted because it has none."""
        snapshot = self.with_new_columns(snapshot)
        matched = self.source.match(self._rules(snapshot), snapshot, engine, among=files)
        return matched.any_matched or bool(len(matched.files))

    def _rules(self, snapshot: Snapshot) -> MergeRules:
        return _rules_of(self.source.empty, self.clauses, snapshot)

    def _parameters(self) -> dict[str, str]:
        name = self.clauses.source_name
        pairs = " AND ".join(f"target.{key} = {name}.{key}" for key in self.clauses.keys)
        described = {key: orjson.dumps(text).decode() for key, text in self.clauses.described().items()}
        return {"predicate": orjson.dumps([pairs]).decode(), **described}


def _metrics(matched: MergeMatches) -> dict[str, int]:
    """Return the counts of rows for the history, by Delta's names."""
    updated, deleted, not_matched = matched.counts.sum(axis=1).tolist()
    return {
        "numSourceRows": matched.source_rows,
        "numTargetRowsInserted": matched.added.height,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": updated,
        "numTargetRowsDeleted": deleted + not_matched,
        "numTargetRowsMatchedDeleted": deleted,
        "numTargetRowsNotMatchedBySourceDeleted": not_matched,
    }


def _evolved(snapshot: Snapshot, source: pl.DataFrame, clauses: Clauses) -> Snapshot:
    """Return the version with the new columns of the source if ``schema_mode="merge"``, else the version.

    Columns of the table get new fields if the source has values for all columns.
    """
    if clauses.schema_mode is None:
        return snapshot
    named = {*(clauses.update or ()), *(clauses.insert or ())}
    every, schema = clauses.needs_every_column, snapshot.schema
    new = {
        name: dtype
        for name, dtype in source.schema.items()
        if name not in schema and dtype != pl.Null() and (every or name in named)
    }
    problems = [*case_problems(list(new), schema), *name_problems(pl.Schema(new))]
    if problems:
        msg = f"the source's new columns cannot be added to the table: {'; '.join(problems)}."
        raise SchemaMismatchError(msg, problems=problems)
    known = [name for name, dtype in schema.items() if every and dtype.is_nested() and name in source.columns]
    grown = fitted_columns(source, known, snapshot.schema_json, schema, merge=True).schema
    columns = {**{name: grown[name] for name in known}, **new}
    return with_schema(snapshot, merged_schema(snapshot.schema_json, columns))


def _rules_of(source: pl.DataFrame, clauses: Clauses, snapshot: Snapshot) -> MergeRules:
    """Check and compile the clauses for the columns of the table and the source. No row is read."""
    clauses.check(snapshot.schema)
    missing = [name for name in clauses.keys if name not in source.columns]
    if missing:
        msg = f"the source has no column(s) {missing} to match by, only {source.columns}"
        raise InvalidInputError(msg, argument="on")
    computed = snapshot.sample_column
    refuse_sample_column(computed, clauses.keys, argument="on")
    table_rules = rules_of(snapshot)
    optional = set[str]() if table_rules is None else table_rules.optional - set(source.columns)
    names = [name for name in snapshot.schema if name not in {computed, *optional}]
    named_schema = pl.Schema({name: snapshot.schema[name] for name in names})
    fitted = fit_source(source, clauses, snapshot.schema_json, named_schema).schema
    conditions = clauses.conditions(snapshot.schema, fitted)
    updates = _updates(
        clauses, snapshot, fitted, [name for name in source.columns if name in named_schema], table_rules
    )
    rules = MergeRules(
        snapshot.schema_json,
        snapshot.schema,
        named_schema,
        clauses,
        conditions,
        None if updates is None else updates.of_updates(snapshot.row_id_columns),
        _inserts(clauses, snapshot, fitted, table_rules),
        fitted,
        snapshot.copied_schema,
    )
    return rules if table_rules is None else _with_rules(rules, table_rules, snapshot)


def _with_rules(rules: MergeRules, table_rules: RowRules, snapshot: Snapshot) -> MergeRules:
    """Return a merge whose new rows follow the rules of the table."""
    if rules.clauses.when_not_matched != "insert":
        return rules
    columns = list(rules.named_schema) if rules.inserts is None else rules.inserts.columns
    argument = "source" if rules.inserts is None else "insert"
    drawn = drawn_for(table_rules.identities, columns, argument)
    applied = table_rules.on_new(columns)
    used = sorted(applied.sources & {identity.column for identity in drawn})
    if used:
        msg = (
            f"a merge cannot add rows to {snapshot.uri}: rules of the table use the identity column(s) {used}, whose "
            "numbers a merge draws after it checks the rules. Append the new rows instead."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature="identityColumns")
    return replace(rules, of_new_rows=applied, drawn=drawn)


def _updates(
    clauses: Clauses,
    snapshot: Snapshot,
    source: pl.Schema,
    names: Collection[str],
    rules: RowRules | None,
) -> Assignments | None:
    """Return the new values of matching rows, by default the values of the source. None: no row is updated."""
    name, update = clauses.source_name, clauses.update
    if clauses.when_matched != "update":
        return None
    if update is None:  # `fit_source` converted the columns to the types of the table
        kept = {identity.column for identity in rules.identities} if rules is not None else set[str]()
        columns = [column for column in snapshot.schema if column in names and column not in kept]
        values = tuple(pl.col(name).struct.field(column) for column in columns)
        applied = None if rules is None else rules.on_changed(columns)
        return Assignments(values, required_columns(snapshot), "update", applied)
    scope = pl.Schema({**snapshot.schema, name: pl.Struct(source)})
    return assignments_of(update, snapshot, scope, rules, argument="update")


def _inserts(
    clauses: Clauses, snapshot: Snapshot, source: pl.Schema, rules: RowRules | None
) -> Assignments | None:
    """Return the values of new rows. None: the columns of the source."""
    if clauses.insert is None:
        return None
    scope = pl.Schema({clauses.source_name: pl.Struct(source)})
    inserts = assignments_of(clauses.insert, snapshot, scope, None, argument="insert")
    computed = frozenset[str]() if rules is None else rules.optional
    missing = sorted(required_columns(snapshot) - set(inserts.columns) - computed)
    if missing:
        problems = [f"column {name!r} may hold no nulls" for name in missing]
        msg = f"insert leaves columns empty: {'; '.join(problems)}."
        raise SchemaMismatchError(msg, problems=problems)
    return inserts
