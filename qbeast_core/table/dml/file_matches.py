"""Count the rows of each file that match a condition. The index selects files, then their rows are tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.dml.count_rows import AT_ONCE, CountRows
from qbeast_core.table.engine.interfaces import Engine
from qbeast_core.table.read.file_scans import scan_of
from qbeast_core.table.read.planner import Planner, ScanPlan
from qbeast_core.table.snapshot.snapshot import Snapshot

# Number of rows of a file whose rows the log does not count.
UNKNOWN: Final = -1


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

    @property
    def whole(self) -> BoolArray:
        """Whether every row of a file matches."""
        return np.equal(self.rows, self.live)


_NONE: Final = np.zeros(0, np.int64)
NO_MATCHES: Final = FileMatches(_NONE, _NONE, _NONE)


def count_matches(
    snapshot: Snapshot, condition: Condition, engine: Engine, *, among: BoolArray | None = None
) -> FileMatches:
    """Count matching rows by file.

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
        call = CountRows(planner.files, planner.row_filter(plan, list(snapshot.schema)[:1]), None)
        live[unknown] = _count(planner, plan, unknown, call, engine)
        return _matches(files, live[files], live, plan)
    plan = planner.plan(condition.expr, None)
    files = np.flatnonzero(plan.selection.opened & candidates)
    call = CountRows(planner.files, planner.row_filter(plan, condition.columns[:1]), condition.text)
    counts = _count(planner, plan, files, call, engine)
    return _matches(files, counts, live, plan)


def _matches(files: I64Array, counts: I64Array, live: I64Array, plan: ScanPlan) -> FileMatches:
    matching = counts > 0
    return FileMatches(files[matching], counts[matching], live[files[matching]], plan)


def _count(planner: Planner, plan: ScanPlan, files: I64Array, call: CountRows, engine: Engine) -> I64Array:
    opened = [scan_of(planner, plan, file) for file in files.tolist()]
    return np.array(engine.map(call, opened, at_once=AT_ONCE), np.int64)


def live_rows(snapshot: Snapshot) -> I64Array:
    """Return the number of rows that a read returns of each file, or `UNKNOWN`; shape (files,)."""
    rows = Planner(snapshot).blocks.num_records.copy()  # `UNKNOWN` where the blocks contradict the log
    for file, hidden in snapshot.deleted_rows.items():
        if rows[file] != UNKNOWN:
            rows[file] -= len(hidden)
    return rows
