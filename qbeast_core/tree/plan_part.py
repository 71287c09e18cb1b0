"""A plan cut by files, for inputs that are not held in memory at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qbeast_core.space.arrays import I64Array
from qbeast_core.tree.pack import PackedFiles
from qbeast_core.tree.plan import IndexPlan


def plan_parts(plan: IndexPlan, *, most_rows: int) -> Iterator[tuple[I64Array, IndexPlan]]:
    """Cut a plan into plans of successive files with at most `most_rows` rows each, but one file at least."""
    starts = plan.packed.file_starts
    first = 0
    while first < plan.file_count:
        last = int(np.searchsorted(starts, starts[first] + most_rows, side="right")) - 1
        last = max(last, first + 1)
        mine = plan.rows_by_file[starts[first] : starts[last]].astype(np.int64)
        rows = np.sort(mine)
        yield rows, _part(plan, first, last, rows, np.searchsorted(rows, mine))
        first = last


def _part(plan: IndexPlan, first: int, last: int, rows: I64Array, places: I64Array) -> IndexPlan:
    packed = plan.packed
    start = packed.file_starts[first]
    begin, end = packed.file_first_block[first], packed.file_first_block[last]
    files = PackedFiles(
        file_starts=packed.file_starts[first : last + 1] - start,
        block_starts=packed.block_starts[begin : end + 1] - start,
        block_cube=packed.block_cube[begin:end],
        file_first_block=packed.file_first_block[first : last + 1] - begin,
    )
    return replace(
        plan, weights=plan.weights[rows], packed=files, row_cube=plan.row_cube[rows], rows_by_file=places
    )
