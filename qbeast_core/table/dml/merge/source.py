"""Where the rows of a merge come from, and which rows of a version they match: here, of a frame in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import polars as pl

from qbeast_core.query.atoms import is_in
from qbeast_core.query.nodes import Node, Operand, Unknown, all_of, any_of
from qbeast_core.query.predicate import parse_predicate
from qbeast_core.query.select import select
from qbeast_core.query.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.dml.match import UNKNOWN, Matches, live_rows
from qbeast_core.table.dml.merge.match_rows import MatchRows
from qbeast_core.table.dml.merge.rules import MergedRows, MergeRules
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.engine.tasks.row_change import ChangeByFile, RowChange
from qbeast_core.table.engine.tasks.stored_rows import StoredRows
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.split_scan import file_parts

# Rows of the table that are matched at once, at most: joining them is worth the while.
MOST_ROWS_MATCHED: Final = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class FoundMatches:
    """What a merge finds in a version."""

    # Files with rows that change or go.
    matches: Matches
    # Rows of each file of `matches` that change, that match and go, and that go because they do not match.
    counts: I64Array
    # Whether a row of the source matches, whether a row changes for it or not.
    any_matched: bool
    # What becomes of the rows of these files.
    change: RowChange | ChangeByFile
    # Rows that come, of the table's columns and types.
    added: pl.DataFrame | StoredRows | None
    source_rows: int


class MergeSource(Protocol):
    """Rows to merge, wherever they are."""

    @property
    def empty(self) -> pl.DataFrame:
        """No rows, with the columns and types of those to come."""
        ...

    def find(
        self, rules: MergeRules, reader: Reader, engine: Engine, *, among: BoolArray | None = None
    ) -> FoundMatches:
        """Match the rows with those of a version, or of some of its files.

        Of files that can hold no row to look at, by statistics or cubes, nothing is read; of the others the keys and
        what the conditions look at.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FrameMergeSource:
    """Rows in memory."""

    frame: pl.DataFrame
    # Rows of the table that there is room for beside them.
    rows_at_once: int = MOST_ROWS_MATCHED

    @property
    def empty(self) -> pl.DataFrame:
        """See `MergeSource`."""
        return self.frame.clear()

    def find(
        self, rules: MergeRules, reader: Reader, engine: Engine, *, among: BoolArray | None = None
    ) -> FoundMatches:
        """Match the rows where files are read, all of them with each file; see `MergeSource`."""
        frame, schema = rules.fit(self.frame), rules.schema
        keys = [
            is_in(Operand(name, schema[name]), frame[name], nulls_equal=False) for name in rules.clauses.keys
        ]
        live, plan = live_rows(reader), scan_plan(rules, reader, keys)
        files = np.flatnonzero(plan.selection.opened & (True if among is None else among))
        chunks = list(_chunks(files, live, self.rows_at_once))
        opened = [[file_parts(reader, plan, number) for number in chunk.tolist()] for chunk in chunks]
        call = MatchRows(
            reader.files,
            reader.row_filter(plan, rules.match_columns()),
            rules.numbered(frame, whole=rules.looks_at_source()),
            rules.clauses,
            rules.conditions,
        )
        matched = np.zeros(frame.height, np.bool_)
        counts = np.zeros((3, len(live)), np.int64)
        for chunk, (having, found) in zip(chunks, engine.map(call, opened, at_once=1), strict=True):
            matched[having] = True
            counts[:, chunk] = found
        return _found(rules, frame, matched, counts, live)


def scan_plan(rules: MergeRules, reader: Reader, keys: Sequence[Node]) -> ScanPlan:
    """Plan what to open: what can hold matches, and what can hold rows that go for want of one."""
    not_matched = rules.conditions.not_matched
    nodes = [all_of(keys)]
    if rules.clauses.when_not_matched_by_source == "delete":
        nodes.append(Unknown() if not_matched.constant else parse_predicate(not_matched.expr, rules.schema))
    return ScanPlan(select(reader.blocks, any_of(nodes), ALL_WEIGHTS), ALL_WEIGHTS, None)


def _found(
    rules: MergeRules, frame: pl.DataFrame, matched: BoolArray, counts: I64Array, live: I64Array
) -> FoundMatches:
    touched = np.flatnonzero(counts.sum(axis=0))
    counts = counts[:, touched]
    having = pl.Series(matched, dtype=pl.Boolean)
    source = rules.numbered(frame, whole=True)
    if rules.clauses.when_not_matched_by_source == "ignore":
        source = source.filter(having)  # else all of them tell which rows do not match
    return FoundMatches(
        matches=Matches(touched, counts.sum(axis=0), live[touched]),
        counts=counts,
        any_matched=bool(matched.any()),
        change=MergedRows(rules, source),
        added=rules.new_rows(frame.filter(~having)),
        source_rows=frame.height,
    )


def _chunks(files: I64Array, live: I64Array, most_rows: int) -> Iterator[I64Array]:
    """Cut files into chunks of so many rows, or of a single file."""
    rows = np.where(live[files] == UNKNOWN, most_rows, live[files])
    cuts = np.flatnonzero(np.diff(np.maximum(np.cumsum(rows) - 1, 0) // most_rows)) + 1
    yield from (part for part in np.split(files, cuts) if len(part))
