"""Which files hold rows that a condition means, and how many: files are chosen by the index, then read exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.data.expressions import Condition
from qbeast_core.table.dml.count_rows import AT_ONCE, CountRows
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.split_scan import file_parts

# Instead of a number of rows that the log does not tell.
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Files with rows that are meant."""

    # Their numbers in the snapshot, ascending.
    files: I64Array
    # Rows that are meant in each, at least one.
    rows: I64Array
    # Rows that a read returns of each; `UNKNOWN` where the log does not tell.
    live: I64Array

    @property
    def whole(self) -> BoolArray:
        """Whether every row of a file is meant."""
        return np.equal(self.rows, self.live)


def count_matches(
    reader: Reader, condition: Condition, engine: Engine, *, among: BoolArray | None = None
) -> Matches:
    """Count the rows that a condition means, file by file.

    Of a file that cannot hold one, by its statistics or its cubes, nothing is read; of the others the pages
    that can, and the columns that the condition looks at.
    """
    live = live_rows(reader)
    wanted = np.ones(len(live), np.bool_) if among is None else among
    if condition.constant is not None:
        files = np.flatnonzero(wanted & (live != 0)) if condition.constant else np.zeros(0, np.int64)
        unknown = files[live[files] == UNKNOWN]
        first = list(reader.snapshot.schema)[:1]
        live[unknown] = _count(reader, reader.plan(None, None), unknown, first, engine=engine)
        return _matches(files, live[files], live)
    plan = reader.plan(condition.expr, None)
    files = np.flatnonzero(plan.selection.opened & wanted)
    counts = _count(reader, plan, files, condition.columns[:1], engine=engine, text=condition.text)
    return _matches(files, counts, live)


def _matches(files: I64Array, counts: I64Array, live: I64Array) -> Matches:
    found = counts > 0
    return Matches(files[found], counts[found], live[files[found]])


def _count(
    reader: Reader,
    plan: ScanPlan,
    files: I64Array,
    columns: Sequence[str],
    *,
    engine: Engine,
    text: str | None = None,
) -> I64Array:
    call = CountRows(reader.files, reader.row_filter(plan, columns), text)
    opened = [file_parts(reader, plan, number) for number in files.tolist()]
    return np.array(engine.map(call, opened, at_once=AT_ONCE), np.int64)


def live_rows(reader: Reader) -> I64Array:
    """Return how many rows a read returns of each file, shape (files,); `UNKNOWN` where the log does not tell."""
    rows = reader.blocks.num_records.copy()  # those that nothing contradicts
    for number, hidden in reader.deleted_rows.items():
        if rows[number] != UNKNOWN:
            rows[number] -= len(hidden)
    return rows
