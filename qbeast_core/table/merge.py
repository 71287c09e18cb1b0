"""Merge rows into a table: rows that match change, new ones come, and only files that hold partners are rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import SchemaMismatchError
from qbeast_core.log.protocol import Brings, WriteMode
from qbeast_core.space.arrays import BoolArray
from qbeast_core.table.dml_result import ChangedBy
from qbeast_core.table.dml_terms import Condition
from qbeast_core.table.dml_values import Assignments, assignments_of, required_columns
from qbeast_core.table.dml_work import Work
from qbeast_core.table.merge_clauses import Clauses, MergeConditions
from qbeast_core.table.merge_match import ROW, Found, judge, match_files
from qbeast_core.table.merge_source import Source, source_of
from qbeast_core.table.reader import Reader
from qbeast_core.table.snapshot import Snapshot

__all__ = ["Merge"]

_SPELLING: Final = {
    "numCopiedRows": "numTargetRowsCopied",
    "numAddedFiles": "numTargetFilesAdded",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numRemovedBytes": "numTargetBytesRemoved",
}


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """Rows to merge, as `qbeast_core.table.frames.to_frame` gives them, and how."""

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

    def work(self, reader: Reader) -> Work:
        """Find partners in a version."""
        snapshot, clauses = reader.snapshot, self.clauses
        source, conditions = self._understood(snapshot)
        assignments = _updates(source, clauses, snapshot) if clauses.when_matched == "update" else None
        insert = _inserts(source, clauses, snapshot)
        found = match_files(reader, source, clauses, conditions)
        wanted = conditions.new if clauses.when_not_matched == "insert" else None
        added = _added(source, found, wanted, insert, snapshot)
        same = assignments is None or not set(assignments.columns) & set(reader.indexed)
        deleted, lonely = int(found.deleted.sum()), int(found.lonely.sum())
        return Work(
            matches=found.matches,
            drops=np.equal(found.deleted + found.lonely, found.matches.live),
            change=_Merged(source, found, clauses, conditions, assignments),
            keeps_keys=same,
            added=added if added.height else None,
            deleted=deleted + lonely,
            updated=int(found.updated.sum()),
            parameters=self._parameters(),
            counts=_counts(source, added, int(found.updated.sum()), deleted, lonely),
            spelling=_SPELLING,
        )

    def concerns(self, reader: Reader, files: BoolArray) -> bool:
        """Tell whether one of the files holds a partner, or a row that goes for want of one."""
        source, conditions = self._understood(reader.snapshot)
        found = match_files(reader, source, self.clauses, conditions, among=files)
        return bool(found.matched.any() or len(found.matches.files))

    def _understood(self, snapshot: Snapshot) -> tuple[Source, MergeConditions]:
        self.clauses.check(snapshot)
        source = source_of(self.frame, self.clauses, snapshot)
        return source, self.clauses.conditions(snapshot, source.frame.schema)

    def _parameters(self) -> dict[str, str]:
        name = self.clauses.source_name
        pairs = " AND ".join(f"target.{key} = {name}.{key}" for key in self.clauses.keys)
        described = {key: orjson.dumps(text).decode() for key, text in self.clauses.described().items()}
        return {"predicate": orjson.dumps([pairs]).decode(), **described}


class _Merged:
    """Rows of the table as they will be; the same for the same rows each time."""

    def __init__(
        self,
        source: Source,
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
        frames = (verdict.updated, verdict.deleted, verdict.lonely)
        gone = pl.concat([frame.select(ROW) for frame in frames])
        kept = numbered.join(gone, on=ROW, how="anti", maintain_order="left").select(rows.columns)
        if self._assignments is None:
            return kept
        return pl.concat([kept, self._assignments.apply(verdict.updated).select(rows.columns)])


def _updates(source: Source, clauses: Clauses, snapshot: Snapshot) -> Assignments:
    """Return what rows that match are set to: by default each column to that of the source."""
    given = clauses.update
    if given is None:  # the source has every column, in the table's type: nothing is left to be understood
        values = tuple(pl.col(source.name).struct.field(name) for name in snapshot.schema)
        return Assignments(values, required_columns(snapshot), "update")
    seen = pl.Schema({**snapshot.schema, source.name: pl.Struct(source.frame.schema)})
    return assignments_of(given, snapshot, seen, argument="update")


def _inserts(source: Source, clauses: Clauses, snapshot: Snapshot) -> Assignments | None:
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
    source: Source, found: Found, wanted: Condition | None, insert: Assignments | None, snapshot: Snapshot
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


def _counts(source: Source, added: pl.DataFrame, updated: int, deleted: int, lonely: int) -> dict[str, int]:
    return {
        "numSourceRows": source.frame.height,
        "numTargetRowsInserted": added.height,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": updated,
        "numTargetRowsDeleted": deleted + lonely,
        "numTargetRowsMatchedDeleted": deleted,
        "numTargetRowsNotMatchedBySourceDeleted": lonely,
    }
