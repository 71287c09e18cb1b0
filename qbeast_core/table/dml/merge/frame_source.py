"""Sources of a merge: the protocol, and frames in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import polars as pl

from qbeast_core.plan.nodes import Node, Operand, Unknown, all_of, any_of, is_in
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.plan.select import select
from qbeast_core.plan.weights import ALL_WEIGHTS
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.table.dml.file_matches import live_rows
from qbeast_core.table.dml.merge.match_rows import MergedPlaces
from qbeast_core.table.dml.merge.merge_rules import DoubledKeys, MergedRows, MergeRules, NewKeys
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.row_change import AddedRows, FrameRows, RowChange
from qbeast_core.table.read.planner import Planner, ScanPlan, scans_of
from qbeast_core.table.snapshot.hidden_rows import UNKNOWN
from qbeast_core.table.snapshot.snapshot import Snapshot

# Maximum number of rows of the table that are matched at once.
MAX_ROWS_MATCHED: Final = 1 << 22
# Each join hashes the source: rows to match at once that amortise it, at least, and per row of the source.
_ROWS_MATCHED: Final = 1 << 19
_MATCHED_PER_ROW: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class MergeMatches:
    """The matches of a merge with a version."""

    # Index of each file with rows to update or delete, ascending -> these rows.
    found: Mapping[int, MergedPlaces]
    # Opens at least these rows.
    scan: ScanPlan
    # Whether a row of the source has a match, even if no row changes.
    any_matched: bool
    # Change of the rows of `files`.
    change: RowChange
    added: AddedRows
    # Rows of `added` with equal keys.
    doubled: DoubledKeys
    source_rows: int

    @property
    def files(self) -> I64Array:
        """Indexes of the files in the snapshot, ascending."""
        return np.array(list(self.found), np.int64)

    @property
    def counts(self) -> I64Array:
        """Rows of each file to update, to delete with a match, and to delete without one; shape (3, files)."""
        counts = [[len(rows) for rows in places] for places in self.found.values()]
        return np.array(counts, np.int64).reshape(-1, 3).T


class MergeSource(Protocol):
    """Rows to merge."""

    @property
    def empty(self) -> pl.DataFrame:
        """Frame without rows, with the columns and types of the source."""
        ...

    def match(
        self, rules: MergeRules, snapshot: Snapshot, engine: Engine, *, among: BoolArray | None = None
    ) -> MergeMatches:
        """Match the rows with the rows of a version, or of some of its files.

        Statistics and cubes exclude files that cannot hold a match. Of the others, only the keys and the columns of
        the conditions are read.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FrameMergeSource:
    """Rows in memory."""

    frame: pl.DataFrame
    # Maximum number of rows of the table that fit in memory with the frame.
    rows_at_once: int = MAX_ROWS_MATCHED

    @property
    def empty(self) -> pl.DataFrame:
        """See `MergeSource`."""
        return self.frame.clear()

    def match(
        self, rules: MergeRules, snapshot: Snapshot, engine: Engine, *, among: BoolArray | None = None
    ) -> MergeMatches:
        """Match all rows with each file, in the tasks that read the files; see `MergeSource`."""
        frame, schema = rules.fit(self.frame), rules.schema
        keys = [
            is_in(Operand(name, schema[name]), frame[name], nulls_equal=False) for name in rules.clauses.keys
        ]
        planner, live = Planner(snapshot), live_rows(snapshot)
        plan = scan_plan(rules, planner, keys)
        files = np.flatnonzero(plan.selection.opened & (True if among is None else among))
        rows_at_once = min(self.rows_at_once, max(_MATCHED_PER_ROW * frame.height, _ROWS_MATCHED))
        chunks = list(_chunks(files, live, rows_at_once))
        scans = dict(zip(files.tolist(), scans_of(planner, plan, files.tolist()), strict=True))
        opened = [[scans[file] for file in chunk.tolist()] for chunk in chunks]
        call = rules.matching(planner.files, planner.row_filter(plan, rules.match_columns()), frame)
        matched = np.zeros(frame.height, np.bool_)
        found: dict[int, MergedPlaces] = {}
        for chunk, (source_rows, places) in zip(chunks, engine.map(call, opened, at_once=1), strict=True):
            matched[source_rows] = True
            found |= {file: rows for file, rows in zip(chunk.tolist(), places, strict=True) if any(rows)}
        return _matches(rules, frame, matched, found, plan)


def scan_plan(rules: MergeRules, planner: Planner, keys: Sequence[Node]) -> ScanPlan:
    """Plan which files to open: files with possible matches, or with rows to delete because they have none."""
    not_matched = rules.conditions.not_matched
    nodes = [all_of(keys)]
    if rules.clauses.when_not_matched_by_source == "delete":
        nodes.append(Unknown() if not_matched.constant else parse_predicate(not_matched.expr, rules.schema))
    return ScanPlan(select(planner.blocks, any_of(nodes), ALL_WEIGHTS), ALL_WEIGHTS, None)


def _matches(
    rules: MergeRules,
    frame: pl.DataFrame,
    matched: BoolArray,
    found: Mapping[int, MergedPlaces],
    plan: ScanPlan,
) -> MergeMatches:
    mask = pl.Series(matched, dtype=pl.Boolean)
    source = rules.numbered(frame, whole=True)
    if rules.clauses.when_not_matched_by_source == "ignore":
        source = source.filter(mask)  # a delete of rows without a match needs all source rows
    inserted = rules.inserted(frame.filter(~mask))
    keys = NewKeys(rules)
    keys.add(inserted)
    return MergeMatches(
        found=found,
        scan=plan,
        any_matched=bool(matched.any()),
        change=MergedRows(rules, source),
        added=FrameRows(rules.new_rows(inserted)),
        doubled=keys.doubled,
        source_rows=frame.height,
    )


def _chunks(files: I64Array, live: I64Array, max_rows: int) -> Iterator[I64Array]:
    """Cut files into chunks of at most `max_rows` rows, or of a single file."""
    rows = np.where(live[files] == UNKNOWN, max_rows, live[files])
    cuts = np.flatnonzero(np.diff(np.maximum(np.cumsum(rows) - 1, 0) // max_rows)) + 1
    yield from (part for part in np.split(files, cuts) if len(part))
