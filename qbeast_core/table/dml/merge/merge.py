"""Merge rows into a table: rows that match change, new ones come, and only files that hold matches are rewritten."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.log.protocol import WriteMode
from qbeast_core.space.arrays import BoolArray
from qbeast_core.table.dml.change import Change, ChangedBy, ChangePlan
from qbeast_core.table.dml.merge.clauses import Clauses
from qbeast_core.table.dml.merge.rules import MergeRules, fit_source
from qbeast_core.table.dml.merge.schema import evolved
from qbeast_core.table.dml.merge.source import MergeSource
from qbeast_core.table.dml.row_changes import Assignments
from qbeast_core.table.dml.values import assignments_of, required_columns
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.snapshot.snapshot import Snapshot

_SPELLING: Final = {
    "numCopiedRows": "numTargetRowsCopied",
    "numAddedFiles": "numTargetFilesAdded",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numRemovedBytes": "numTargetBytesRemoved",
}


@dataclass(frozen=True, slots=True, eq=False)
class Merge(Change):
    """Rows to merge, and how."""

    operation: ClassVar[ChangedBy] = "MERGE"

    source: MergeSource
    clauses: Clauses

    @property
    def mode(self) -> WriteMode:
        """Rows change, or only come."""
        return "overwrite" if self.clauses.changes_rows else "append"

    def plan(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find the rows that match in a version."""
        rules = self._rules(reader)
        found = self.source.find(rules, reader, engine)
        updated, deleted, not_matched = found.counts.sum(axis=1).tolist()
        inserted = 0 if found.added is None else found.added.height
        return ChangePlan(
            matches=found.matches,
            drops=np.equal(found.counts[1:].sum(axis=0), found.matches.live),
            change=found.change,
            keeps_keys=rules.updates is None or not set(rules.updates.columns) & set(reader.indexed),
            in_place=found.matches.files[found.counts[1:].sum(axis=0) == 0],
            added=found.added if inserted else None,
            deleted=deleted + not_matched,
            updated=updated,
            parameters=self._parameters(),
            counts={
                "numSourceRows": found.source_rows,
                "numTargetRowsInserted": inserted,
                "numTargetRowsUpdated": updated,
                "numTargetRowsMatchedUpdated": updated,
                "numTargetRowsDeleted": deleted + not_matched,
                "numTargetRowsMatchedDeleted": deleted,
                "numTargetRowsNotMatchedBySourceDeleted": not_matched,
            },
            spelling=_SPELLING,
        )

    def sees(self, reader: Reader) -> Reader:
        """Return the version with the columns that the source brings."""
        return reader.at(evolved(reader.snapshot, self.source.empty, self.clauses))

    def concerns(self, reader: Reader, files: BoolArray, engine: Engine) -> bool:
        """Tell whether one of the files holds a match, or a row that goes for want of one."""
        reader = self.sees(reader)
        found = self.source.find(self._rules(reader), reader, engine, among=files)
        return found.any_matched or bool(len(found.matches.files))

    def _rules(self, reader: Reader) -> MergeRules:
        return _understood(self.source.empty, self.clauses, reader.snapshot)

    def _parameters(self) -> dict[str, str]:
        name = self.clauses.source_name
        pairs = " AND ".join(f"target.{key} = {name}.{key}" for key in self.clauses.keys)
        described = {key: orjson.dumps(text).decode() for key, text in self.clauses.described().items()}
        return {"predicate": orjson.dumps([pairs]).decode(), **described}


def _understood(source: pl.DataFrame, clauses: Clauses, snapshot: Snapshot) -> MergeRules:
    """Check the clauses against the columns of the table and of the source, of which no row is looked at."""
    clauses.check(snapshot.schema)
    missing = [name for name in clauses.keys if name not in source.columns]
    if missing:
        msg = f"the source has no column(s) {missing} to match by, only {source.columns}; nothing was changed"
        raise InvalidInputError(msg, argument="on")
    fitted = fit_source(source, clauses, snapshot.schema_json, snapshot.schema).schema
    conditions = clauses.conditions(snapshot.schema, fitted)
    return MergeRules(
        snapshot.schema_json,
        snapshot.schema,
        clauses,
        conditions,
        _updates(clauses, snapshot, fitted, source.columns),
        _inserts(clauses, snapshot, fitted),
        fitted,
    )


def _updates(
    clauses: Clauses, snapshot: Snapshot, source: pl.Schema, names: Collection[str]
) -> Assignments | None:
    """Return what rows that match are set to, by default these columns to those of the source; None: to nothing."""
    name, given = clauses.source_name, clauses.update
    if clauses.when_matched != "update":
        return None
    if given is None:  # the source has them in the table's types: nothing is left to be understood
        values = tuple(pl.col(name).struct.field(column) for column in snapshot.schema if column in names)
        return Assignments(values, required_columns(snapshot), "update")
    seen = pl.Schema({**snapshot.schema, name: pl.Struct(source)})
    return assignments_of(given, snapshot, seen, argument="update")


def _inserts(clauses: Clauses, snapshot: Snapshot, source: pl.Schema) -> Assignments | None:
    """Return what new rows consist of; None: of the source's columns."""
    if clauses.insert is None:
        return None
    seen = pl.Schema({clauses.source_name: pl.Struct(source)})
    found = assignments_of(clauses.insert, snapshot, seen, argument="insert")
    missing = sorted(required_columns(snapshot) - set(found.columns))
    if missing:
        problems = [f"column {name!r} may hold no nulls" for name in missing]
        msg = f"insert leaves columns empty: {'; '.join(problems)}. Nothing was changed."
        raise SchemaMismatchError(msg, problems=problems)
    return found
