"""Merge rows into a table: rows that match change, new ones come, and only files that hold matches are rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.log.protocol import WriteMode
from qbeast_core.query.atoms import is_in
from qbeast_core.query.nodes import Operand, Unknown, all_of, any_of
from qbeast_core.query.predicate import parse_predicate
from qbeast_core.query.select import select
from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.table.dml.change import Change, ChangedBy, ChangePlan
from qbeast_core.table.dml.match import UNKNOWN, Matches, live_rows
from qbeast_core.table.dml.merge_clauses import Clauses, MergeConditions
from qbeast_core.table.dml.tasks import ROW, SOURCE_ROW, MatchRows, judge
from qbeast_core.table.dml.values import Assignments, assignments_of, required_columns
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.split_scan import file_parts
from qbeast_core.table.snapshot.snapshot import Snapshot

__all__ = ["Merge"]

_SPELLING: Final = {
    "numCopiedRows": "numTargetRowsCopied",
    "numAddedFiles": "numTargetFilesAdded",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numRemovedBytes": "numTargetBytesRemoved",
}

_ROWS_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Merge(Change):
    """Rows to merge, as `qbeast_core.table.data.frames.to_frame` gives them, and how."""

    operation: ClassVar[ChangedBy] = "MERGE"

    frame: pl.DataFrame
    clauses: Clauses

    @property
    def mode(self) -> WriteMode:
        """Rows change, or only come."""
        return "overwrite" if self.clauses.changes_rows else "append"

    def plan(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find the rows that match in a version."""
        merge = _understood(self.frame, self.clauses, reader.snapshot)
        updates, inserts = merge.updates(), merge.inserts()
        found = merge.find(reader, engine)
        added = merge.added(found, inserts)
        updated, deleted, not_matched = found.counts.sum(axis=1).tolist()
        return ChangePlan(
            matches=found.matches,
            drops=np.equal(found.counts[1:].sum(axis=0), found.matches.live),
            change=_Merged(merge, found, updates),
            keeps_keys=updates is None or not set(updates.columns) & set(reader.indexed),
            added=added if added.height else None,
            deleted=deleted + not_matched,
            updated=updated,
            parameters=self._parameters(),
            counts={
                "numSourceRows": self.frame.height,
                "numTargetRowsInserted": added.height,
                "numTargetRowsUpdated": updated,
                "numTargetRowsMatchedUpdated": updated,
                "numTargetRowsDeleted": deleted + not_matched,
                "numTargetRowsMatchedDeleted": deleted,
                "numTargetRowsNotMatchedBySourceDeleted": not_matched,
            },
            spelling=_SPELLING,
        )

    def concerns(self, reader: Reader, files: BoolArray, engine: Engine) -> bool:
        """Tell whether one of the files holds a match, or a row that goes for want of one."""
        merge = _understood(self.frame, self.clauses, reader.snapshot)
        found = merge.find(reader, engine, among=files)
        return bool(found.matched.any() or len(found.matches.files))

    def _parameters(self) -> dict[str, str]:
        name = self.clauses.source_name
        pairs = " AND ".join(f"target.{key} = {name}.{key}" for key in self.clauses.keys)
        described = {key: orjson.dumps(text).decode() for key, text in self.clauses.described().items()}
        return {"predicate": orjson.dumps([pairs]).decode(), **described}


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What a merge finds in a version.

    Attributes
    ----------
    matches : Matches
        Files with rows that change or go.
    matched : ndarray of bool, shape (source rows,)
        Rows of the source that match, whether a row changes for it or not.
    counts : ndarray of int64, shape (3, files)
        Rows of each file of `matches` that change, that match and go, and that go because they do not match.
    """

    matches: Matches
    matched: BoolArray
    counts: I64Array


@dataclass(frozen=True, slots=True, eq=False)
class _Understood:
    """A merge as one version of the table understands it.

    Attributes
    ----------
    snapshot : Snapshot
        The version.
    frame : polars.DataFrame
        The source; columns that the table has too are of its types.
    clauses, conditions : Clauses, MergeConditions
        What to do.
    """

    snapshot: Snapshot
    frame: pl.DataFrame
    clauses: Clauses
    conditions: MergeConditions

    def source(self, *, whole: bool) -> pl.DataFrame:
        """Return keys and row numbers to join with; the row as a whole as well, if it is looked at."""
        row = [pl.struct(pl.all()).alias(self.clauses.source_name)] if whole else []
        return self.frame.select(*self.clauses.keys, *row).with_row_index(SOURCE_ROW)

    def find(self, reader: Reader, engine: Engine, *, among: BoolArray | None = None) -> _Found:
        """Match the rows of the version, or of some of its files, with the source.

        Of files that can hold no row to look at, by statistics or cubes, nothing is read; of the others the keys and
        what the conditions look at.
        """
        clauses, conditions = self.clauses, self.conditions
        live, plan = live_rows(reader), self._scan_plan(reader)
        files = np.flatnonzero(plan.selection.opened & (True if among is None else among))
        columns = dict.fromkeys([*clauses.keys, *conditions.columns_of_rows(self.snapshot.schema)])
        source = self.source(whole=conditions.looks_at(clauses.source_name))
        matched = np.zeros(self.frame.height, np.bool_)
        counts = np.zeros((3, len(live)), np.int64)
        chunks = list(_chunks(files, live))
        opened = [[file_parts(reader, plan, number) for number in chunk.tolist()] for chunk in chunks]
        call = MatchRows(reader.files, reader.row_filter(plan, list(columns)), source, clauses, conditions)
        for chunk, (having, found) in zip(chunks, engine.map(call, opened, at_once=1), strict=True):
            matched[having] = True
            counts[:, chunk] = found
        touched = np.flatnonzero(counts.sum(axis=0))
        counts = counts[:, touched]
        return _Found(Matches(touched, counts.sum(axis=0), live[touched]), matched, counts)

    def _scan_plan(self, reader: Reader) -> ScanPlan:
        """Plan what to open: what can hold matches, and what can hold rows that go for want of one."""
        schema, not_matched = self.snapshot.schema, self.conditions.not_matched
        keys = [
            is_in(Operand(name, schema[name]), self.frame[name], nulls_equal=False)
            for name in self.clauses.keys
        ]
        nodes = [all_of(keys)]
        if self.clauses.when_not_matched_by_source == "delete":
            nodes.append(Unknown() if not_matched.constant else parse_predicate(not_matched.expr, schema))
        return ScanPlan(select(reader.blocks, any_of(nodes), ALL_WEIGHTS), ALL_WEIGHTS, None)

    def updates(self) -> Assignments | None:
        """Return what rows that match are set to, by default each column to that of the source; None: to nothing."""
        name, snapshot, given = self.clauses.source_name, self.snapshot, self.clauses.update
        if self.clauses.when_matched != "update":
            return None
        if (
            given is None
        ):  # the source has every column, in the table's type: nothing is left to be understood
            values = tuple(pl.col(name).struct.field(column) for column in snapshot.schema)
            return Assignments(values, required_columns(snapshot), "update")
        seen = pl.Schema({**snapshot.schema, name: pl.Struct(self.frame.schema)})
        return assignments_of(given, snapshot, seen, argument="update")

    def inserts(self) -> Assignments | None:
        """Return what new rows consist of; None: of the source's columns."""
        if self.clauses.insert is None:
            return None
        seen = pl.Schema({self.clauses.source_name: pl.Struct(self.frame.schema)})
        found = assignments_of(self.clauses.insert, self.snapshot, seen, argument="insert")
        missing = sorted(required_columns(self.snapshot) - set(found.columns))
        if missing:
            problems = [f"column {name!r} may hold no nulls" for name in missing]
            msg = f"insert leaves columns empty: {'; '.join(problems)}. Nothing was changed."
            raise SchemaMismatchError(msg, problems=problems)
        return found

    def added(self, found: _Found, inserts: Assignments | None) -> pl.DataFrame:
        """Return the rows to add, of the table's columns and types."""
        schema, condition = self.snapshot.schema, self.conditions.new
        if self.clauses.when_not_matched != "insert" or condition.constant is False:
            return pl.DataFrame(schema=schema)
        new = self.frame.filter(~pl.Series(found.matched, dtype=pl.Boolean))
        row = pl.struct(pl.all()).alias(self.clauses.source_name)
        if condition.constant is None:
            new = new.filter(condition.mask(new.select(row)))
        if inserts is None:
            return new.select(list(schema))
        values = inserts.apply(new.select(row))
        given = frozenset(values.columns)
        missing = [
            pl.lit(None, dtype=dtype).alias(name) for name, dtype in schema.items() if name not in given
        ]
        return values.with_columns(missing).select(list(schema))


def _understood(frame: pl.DataFrame, clauses: Clauses, snapshot: Snapshot) -> _Understood:
    """Check the clauses, and bring the source to the types of the table; whatever does not fit is listed."""
    clauses.check(snapshot.schema)
    missing = [name for name in clauses.keys if name not in frame.columns]
    if missing:
        msg = f"the source has no column(s) {missing} to match by, only {frame.columns}; nothing was changed"
        raise InvalidInputError(msg, argument="on")
    names = list(snapshot.schema) if clauses.needs_every_column else list(clauses.keys)
    wanted = pl.Schema({name: snapshot.schema[name] for name in names})
    known = frozenset(frame.columns)
    given = frame.select([name for name in names if name in known])
    try:
        fitted = fit_frame(given, snapshot.schema_json, wanted, merge=False)
    except SchemaMismatchError as error:
        msg = (
            f"the source does not fit the table: {'; '.join(error.problems)}. Nothing was changed. Where it has other "
            "columns, say with `update` and `insert` what is set to what."
        )
        raise SchemaMismatchError(msg, problems=error.problems) from error
    frame = frame.with_columns(fitted.get_columns())
    return _Understood(snapshot, frame, clauses, clauses.conditions(snapshot.schema, frame.schema))


class _Merged:
    """Rows of the table as they will be; the same for the same rows each time."""

    def __init__(self, merge: _Understood, found: _Found, updates: Assignments | None) -> None:
        self._clauses, self._conditions, self._updates = merge.clauses, merge.conditions, updates
        source = merge.source(whole=True)
        if (
            merge.clauses.when_not_matched_by_source == "ignore"
        ):  # else all of them tell which rows do not match
            source = source.filter(pl.Series(found.matched, dtype=pl.Boolean))
        self._source = source

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        numbered = rows.with_row_index(ROW)
        verdict = judge(numbered, self._source, self._clauses, self._conditions)
        frames = (verdict.updated, verdict.deleted, verdict.not_matched)
        gone = pl.concat([frame.select(ROW) for frame in frames])
        kept = numbered.join(gone, on=ROW, how="anti", maintain_order="left").select(rows.columns)
        if self._updates is None:
            return kept
        return pl.concat([kept, self._updates.apply(verdict.updated).select(rows.columns)])


def _chunks(files: I64Array, live: I64Array) -> Iterator[I64Array]:
    """Cut files into chunks of so many rows that joining them is worth the while, and that fit in memory."""
    rows = np.where(live[files] == UNKNOWN, _ROWS_AT_ONCE, live[files])
    cuts = np.flatnonzero(np.diff(np.maximum(np.cumsum(rows) - 1, 0) // _ROWS_AT_ONCE)) + 1
    yield from (part for part in np.split(files, cuts) if len(part))
