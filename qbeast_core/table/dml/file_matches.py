"""Find the rows of each file that match a condition. The index selects files, then their rows are tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl
from pyroaring import BitMap64

from qbeast_core.log.protocol import may_hide_rows
from qbeast_core.log.rebase import dialect_of
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.dml.find_rows import AT_ONCE, FindRows
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.read.planner import Planner, ScanPlan, scans_of
from qbeast_core.table.snapshot.hidden_rows import UNKNOWN
from qbeast_core.table.snapshot.snapshot import Snapshot

# A file is rewritten if deletion vectors would hide more than this share of its rows.
_MAX_HIDDEN_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class FileMatches:
    """Files with rows that match."""

    # Indexes in the snapshot, ascending.
    files: I64Array
    # Matching rows of each file, at least one.
    rows: I64Array
    # Number of rows that a read returns of each file, or `UNKNOWN`.
    live: I64Array
    # Opens at least the matching rows. None: no file was opened.
    scan: ScanPlan | None = None
    # Index of a file -> its matching rows. Files that were not read are missing.
    found: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64], repr=False)

    @property
    def whole(self) -> BoolArray:
        """Whether every row of a file matches."""
        return np.equal(self.rows, self.live)

    def markable(self, snapshot: Snapshot) -> BoolArray:
        """Return in which files to hide the matching rows instead of a rewrite.

        These are the files that keep most of their rows, in a table with deletion vectors.
        """
        if not hides_rows(snapshot):
            return np.zeros(len(self.files), np.bool_)
        listed = snapshot.files.select("path", pl.col("num_records").fill_null(0).cast(pl.Int64))[self.files]
        # Polars shows the hidden rows of files with encoded paths.
        plain = ~listed["path"].str.contains("%", literal=True).to_numpy()
        counted = listed["num_records"].to_numpy()
        few = counted - self.live + self.rows <= _MAX_HIDDEN_SHARE * counted
        stays: BoolArray = plain & (self.rows < self.live) & few
        return stays

    def found_in(self, chosen: BoolArray) -> dict[int, BitMap64]:
        """Return the matching rows of some of the files."""
        return {file: self.found[file] for file in self.files[chosen].tolist()}


_NONE: Final = np.zeros(0, np.int64)
NO_MATCHES: Final = FileMatches(_NONE, _NONE, _NONE)


def find_matches(
    snapshot: Snapshot, condition: Condition, engine: Engine, *, among: BoolArray | None = None
) -> FileMatches:
    """Return the matching rows of each file.

    Statistics and cubes exclude files and pages that cannot hold a match. Of the others, only the columns of the
    condition are read.
    """
    planner, live = Planner(snapshot), live_rows(snapshot)
    candidates = np.ones(len(live), np.bool_) if among is None else among
    if condition.constant is not None:
        # No row is tested. Files whose rows the log does not count are read to count them.
        files = np.flatnonzero(candidates & (live != 0)) if condition.constant else np.zeros(0, np.int64)
        unknown = files[live[files] == UNKNOWN]
        plan = planner.plan(None, None)
        call = FindRows(planner.files, planner.row_filter(plan, list(snapshot.schema)[:1]), None)
        for file, rows in _find(planner, plan, unknown, call, engine).items():
            live[file] = len(rows)
        return _matches(files, live[files], live, plan)
    plan = planner.plan(condition.expr, None)
    files = np.flatnonzero(plan.selection.opened & candidates)
    call = FindRows(planner.files, planner.row_filter(plan, condition.columns[:1]), condition.text)
    found = _find(planner, plan, files, call, engine)
    counts = np.array([len(rows) for rows in found.values()], np.int64)
    return replace(_matches(files, counts, live, plan), found=found)


def _matches(files: I64Array, counts: I64Array, live: I64Array, plan: ScanPlan) -> FileMatches:
    matching = counts > 0
    return FileMatches(files[matching], counts[matching], live[files[matching]], plan)


def _find(
    planner: Planner, plan: ScanPlan, files: I64Array, call: FindRows, engine: Engine
) -> dict[int, BitMap64]:
    numbers = files.tolist()
    opened = scans_of(planner, plan, numbers)
    return dict(zip(numbers, engine.map(call, opened, at_once=AT_ONCE), strict=True))


def live_rows(snapshot: Snapshot) -> I64Array:
    """Return the number of rows that a read returns of each file, or `UNKNOWN`; shape (files,)."""
    counted = Planner(snapshot).blocks.num_records  # `UNKNOWN` where the blocks contradict the log
    rows: I64Array = np.where(counted == UNKNOWN, UNKNOWN, counted - snapshot.hidden_rows.counts)
    return rows


def hides_rows(snapshot: Snapshot) -> bool:
    """Return whether changes of a table may hide rows by deletion vectors."""
    # A JVM of qbeast-spark reads files without their vectors.
    return may_hide_rows(snapshot.protocol, snapshot.metadata) and dialect_of(snapshot) != "qbeast-spark"
