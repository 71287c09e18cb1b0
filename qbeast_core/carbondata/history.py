"""The loads of a table as they came, before compactions, as far as their files are still there."""

from __future__ import annotations

from collections.abc import Sequence

from qbeast_core.carbondata.open_table import load_segment
from qbeast_core.carbondata.snapshot import Segment, TableSnapshot
from qbeast_core.errors import DamagedFileError, StorageError, UnsupportedTableError


def replayed_loads(table: TableSnapshot, live: Sequence[Segment]) -> list[Segment]:
    """Return the segments to replay, oldest first; together they hold the rows of the live ones.

    In the place of a compacted segment stand the loads it was made of, if all of them can still be read and no row of
    any was deleted or updated, before or after; else it stands itself.
    """
    found: list[Segment] = []
    for segment in live:
        found += _inputs(table, segment) or [segment]
    return sorted(found, key=lambda one: one.load.order)


def _inputs(table: TableSnapshot, segment: Segment, above: frozenset[str] = frozenset()) -> list[Segment]:
    """Return the loads that a segment was compacted from, or none."""
    above |= {segment.load.name}
    loads = [load for load in table.loads if load.merged_into == segment.load.name and not load.is_visible]
    if any(load.name in above for load in loads):  # no compaction is made of itself
        return []
    changed = {one.segment for one in table.updates} | {one.name for one in table.loads if one.update_end}
    if not loads or changed & {segment.load.name, *(load.name for load in loads)}:
        return []
    try:
        inputs = [load_segment(table, load) for load in loads]
        for one in inputs:
            for file in one.files:
                file.store.size(file.path)  # compacted loads are cleaned up after a while
    except (UnsupportedTableError, DamagedFileError, StorageError, FileNotFoundError):
        return []
    expanded = [inner for one in inputs for inner in (_inputs(table, one, above) or [one])]
    counts = [one.rows for one in expanded]
    known = [count for count in counts if count is not None]
    return expanded if len(known) == len(counts) and sum(known) == segment.rows else []
