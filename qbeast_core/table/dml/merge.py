"""Merge rows into a table: rows that match change, new ones come, and only files that hold partners are rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.log.protocol import Brings, WriteMode
from qbeast_core.query.atoms import is_in
from qbeast_core.query.nodes import Node, Operand, Unknown, all_of, any_of
from qbeast_core.query.predicate import parse_predicate
from qbeast_core.query.select import select
from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.table.dml.change import ChangedBy, ChangePlan
from qbeast_core.table.dml.match import UNKNOWN, Matches, live_rows
from qbeast_core.table.dml.merge_clauses import Clauses, MergeConditions
from qbeast_core.table.dml.tasks import ROW, SOURCE_ROW, MatchRows, judge
from qbeast_core.table.dml.values import Assignments, assignments_of, required_columns
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.split_scan import file_parts
from qbeast_core.table.snapshot.snapshot import Snapshot

__all__ = ["Found", "Merge", "MergeSource", "match_files", "source_of"]

_SPELLING: Final = {
    "numCopiedRows": "numTargetRowsCopied",
    "numAddedFiles": "numTargetFilesAdded",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numRemovedBytes": "numTargetBytesRemoved",
}

_ROWS_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """Rows to merge, as `qbeast_core.table.data.frames.to_frame` gives them, and how."""

    frame: pl.DataFrame
    clauses: Clauses

    @property
    def operation(self) -> ChangedBy:
        """Its name in the history."""
        return "MERGE"

    @property
    def mode(self) -> WriteMode:
        """Rows change, or only come."""
        return "overwrite" if self.clauses.changes_rows else "append"

    @property
    def brings(self) -> Brings:
        """Rows come or change."""
        return "rows"

    def work(self, reader: Reader, engine: Engine) -> ChangePlan:
        """Find partners in a version."""
        snapshot, clauses = reader.snapshot, self.clauses
        source, conditions = self._understood(snapshot)
        assignments = _updates(source, clauses, snapshot) if clauses.when_matched == "update" else None
        insert = _inserts(source, clauses, snapshot)
        found = match_files(reader, source, clauses, conditions, engine)
        wanted = conditions.new if clauses.when_not_matched == "insert" else None
        added = _added(source, found, wanted, insert, snapshot)
        same = assignments is None or not set(assignments.columns) & set(reader.indexed)
        deleted, not_matched = int(found.deleted.sum()), int(found.not_matched.sum())
        return ChangePlan(
            matches=found.matches,
            drops=np.equal(found.deleted + found.not_matched, found.matches.live),
            change=_Merged(source, found, clauses, conditions, assignments),
            keeps_keys=same,
            added=added if added.height else None,
            deleted=deleted + not_matched,
            updated=int(found.updated.sum()),
            parameters=self._parameters(),
            counts=_counts(source, added, int(found.updated.sum()), deleted, not_matched),
            spelling=_SPELLING,
        )

    def concerns(self, reader: Reader, files: BoolArray, engine: Engine) -> bool:
        """Tell whether one of the files holds a partner, or a row that goes for want of one."""
        source, conditions = self._understood(reader.snapshot)
        found = match_files(reader, source, self.clauses, conditions, engine, among=files)
        return bool(found.matched.any() or len(found.matches.files))

    def _understood(self, snapshot: Snapshot) -> tuple[MergeSource, MergeConditions]:
        self.clauses.check(snapshot.schema)
        source = source_of(self.frame, self.clauses, snapshot)
        return source, self.clauses.conditions(snapshot.schema, source.frame.schema)

    def _parameters(self) -> dict[str, str]:
        name = self.clauses.source_name
        pairs = " AND ".join(f"target.{key} = {name}.{key}" for key in self.clauses.keys)
        described = {key: orjson.dumps(text).decode() for key, text in self.clauses.described().items()}
        return {"predicate": orjson.dumps([pairs]).decode(), **described}


class _Merged:
    """Rows of the table as they will be; the same for the same rows each time."""

    def __init__(
        self,
        source: MergeSource,
        found: Found,
        clauses: Clauses,
        conditions: MergeConditions,
        assignments: Assignments | None,
    ) -> None:
        self._clauses, self._conditions, self._assignments = clauses, conditions, assignments
        partners = source.partners(whole=True)
        if clauses.when_not_matched_by_source == "ignore":  # else who is alone depends on all of them
            partners = partners.filter(pl.Series(found.matched, dtype=pl.Boolean))
        self._partners = partners

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        numbered = rows.with_row_index(ROW)
        verdict = judge(numbered, self._partners, self._clauses, self._conditions)
        frames = (verdict.updated, verdict.deleted, verdict.not_matched)
        gone = pl.concat([frame.select(ROW) for frame in frames])
        kept = numbered.join(gone, on=ROW, how="anti", maintain_order="left").select(rows.columns)
        if self._assignments is None:
            return kept
        return pl.concat([kept, self._assignments.apply(verdict.updated).select(rows.columns)])


def _updates(source: MergeSource, clauses: Clauses, snapshot: Snapshot) -> Assignments:
    """Return what rows that match are set to: by default each column to that of the source."""
    given = clauses.update
    if given is None:  # the source has every column, in the table's type: nothing is left to be understood
        values = tuple(pl.col(source.name).struct.field(name) for name in snapshot.schema)
        return Assignments(values, required_columns(snapshot), "update")
    seen = pl.Schema({**snapshot.schema, source.name: pl.Struct(source.frame.schema)})
    return assignments_of(given, snapshot, seen, argument="update")


def _inserts(source: MergeSource, clauses: Clauses, snapshot: Snapshot) -> Assignments | None:
    """Return what new rows consist of; None: of the source's columns."""
    if clauses.insert is None:
        return None
    found = assignments_of(
        clauses.insert,
        snapshot,
        pl.Schema({source.name: pl.Struct(source.frame.schema)}),
        argument="insert",
    )
    missing = sorted(required_columns(snapshot) - set(found.columns))
    if missing:
        problems = [f"column {name!r} may hold no nulls" for name in missing]
        msg = f"insert leaves columns empty: {'; '.join(problems)}. Nothing was changed."
        raise SchemaMismatchError(msg, problems=problems)
    return found


def _added(
    source: MergeSource,
    found: Found,
    wanted: Condition | None,
    insert: Assignments | None,
    snapshot: Snapshot,
) -> pl.DataFrame:
    """Return the rows to add, of the table's columns and types."""
    if wanted is None or wanted.constant is False:
        return pl.DataFrame(schema=snapshot.schema)
    new = source.frame.filter(~pl.Series(found.matched, dtype=pl.Boolean))
    if wanted.constant is None:
        new = new.filter(wanted.mask(new.select(pl.struct(pl.all()).alias(source.name))))
    if insert is None:
        return new.select(list(snapshot.schema))
    values = insert.apply(new.select(pl.struct(pl.all()).alias(source.name)))
    given = frozenset(values.columns)
    missing = {name: dtype for name, dtype in snapshot.schema.items() if name not in given}
    filled = values.with_columns(pl.lit(None, dtype=dtype).alias(name) for name, dtype in missing.items())
    return filled.select(list(snapshot.schema))


def _counts(
    source: MergeSource, added: pl.DataFrame, updated: int, deleted: int, not_matched: int
) -> dict[str, int]:
    return {
        "numSourceRows": source.frame.height,
        "numTargetRowsInserted": added.height,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": updated,
        "numTargetRowsDeleted": deleted + not_matched,
        "numTargetRowsMatchedDeleted": deleted,
        "numTargetRowsNotMatchedBySourceDeleted": not_matched,
    }


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a merge finds in a version.

    Attributes
    ----------
    matches : Matches
        Files with rows that change or go.
    matched : ndarray of bool, shape (source rows,)
        Rows of the source that have a partner, to be changed or not.
    updated, deleted, not_matched : ndarray of int64, shape (files,)
        Rows of each file of `matches` that change, that go with a partner, and that go without one.
    """

    matches: Matches
    matched: BoolArray
    updated: I64Array
    deleted: I64Array
    not_matched: I64Array


def match_files(
    reader: Reader,
    source: MergeSource,
    clauses: Clauses,
    conditions: MergeConditions,
    engine: Engine,
    *,
    among: BoolArray | None = None,
) -> Found:
    """Match the rows of a version with a source.

    Of files that can hold no row to look at, by statistics or cubes, nothing is read; of the others the keys and
    what the conditions look at.

    Parameters
    ----------
    reader : Reader
        Of the version.
    source : MergeSource
        Rows to merge.
    clauses, conditions : Clauses, MergeConditions
        What to do.
    engine : Engine
        Who reads the files.
    among : ndarray of bool, shape (files,), optional
        Files to look at; all by default.

    Raises
    ------
    InvalidInputError
        A row would be changed by several rows of the source.
    """
    live = live_rows(reader)
    job = _job(reader, source, clauses, conditions)
    files = np.flatnonzero(job.selection.opened & (True if among is None else among))
    columns = list(dict.fromkeys([*clauses.keys, *conditions.columns_of_rows(reader.snapshot.schema)]))
    partners = source.partners(whole=conditions.looks_at(source.name))
    matched = np.zeros(source.frame.height, np.bool_)
    counts = np.zeros((3, len(live)), np.int64)
    chunks = list(_chunks(files, live))
    opened = [[file_parts(reader, job, number) for number in chunk.tolist()] for chunk in chunks]
    call = MatchRows(reader.files, reader.wanted(job, columns), partners, clauses, conditions)
    for chunk, (having, found) in zip(chunks, engine.map(call, opened, at_once=1), strict=True):
        matched[having] = True
        counts[:, chunk] = found
    touched = np.flatnonzero(counts.sum(axis=0))
    matches = Matches(touched, counts[:, touched].sum(axis=0), live[touched])
    return Found(matches, matched, *counts[:, touched])


def _job(reader: Reader, source: MergeSource, clauses: Clauses, conditions: MergeConditions) -> ScanPlan:
    """Plan what to open: what can hold partners, and what can hold rows that go for want of one."""
    schema = reader.snapshot.schema
    nodes = [source.node(schema)]
    if clauses.when_not_matched_by_source == "delete":
        not_matched = conditions.not_matched
        nodes.append(Unknown() if not_matched.constant else parse_predicate(not_matched.expr, schema))
    return ScanPlan(select(reader.blocks, any_of(nodes), ALL_WEIGHTS), ALL_WEIGHTS, None)


def _chunks(files: I64Array, live: I64Array) -> Iterator[I64Array]:
    """Cut files into chunks of so many rows that joining them is worth the while, and that fit in memory."""
    rows = np.where(live[files] == UNKNOWN, _ROWS_AT_ONCE, live[files])
    cuts = np.flatnonzero(np.diff(np.maximum(np.cumsum(rows) - 1, 0) // _ROWS_AT_ONCE)) + 1
    yield from (part for part in np.split(files, cuts) if len(part))


@dataclass(frozen=True, slots=True, eq=False)
class MergeSource:
    """Rows to merge.

    Attributes
    ----------
    frame : polars.DataFrame
        Columns that the table has too are of its types.
    keys : tuple of str
        Columns to match by.
    name : str
        What the row as a whole is called in expressions.
    """

    frame: pl.DataFrame
    keys: tuple[str, ...]
    name: str

    def partners(self, *, whole: bool) -> pl.DataFrame:
        """Return keys and row numbers to join with; the row as a whole as well, if it is looked at."""
        row = [pl.struct(pl.all()).alias(self.name)] if whole else []
        return self.frame.select(*self.keys, *row).with_row_index(SOURCE_ROW)

    def node(self, schema: pl.Schema) -> Node:
        """Return what is true for every row of a table of this schema that has a partner."""
        return all_of(
            [is_in(Operand(name, schema[name]), self.frame[name], nulls_equal=False) for name in self.keys]
        )


def source_of(frame: pl.DataFrame, clauses: Clauses, snapshot: Snapshot) -> MergeSource:
    """Bring rows to the types of a table.

    Parameters
    ----------
    frame : polars.DataFrame
        As `qbeast_core.table.data.frames.to_frame` gives it.
    clauses : Clauses
        What becomes of them.
    snapshot : Snapshot
        The table.

    Raises
    ------
    InvalidInputError
        A key is missing.
    SchemaMismatchError
        Columns that are needed are missing, or of another type; all of them are listed.
    """
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
    return MergeSource(frame.with_columns(fitted.get_columns()), clauses.keys, clauses.source_name)
