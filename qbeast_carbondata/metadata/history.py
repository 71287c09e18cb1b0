"""The loads of a table before compactions, as far as their files still exist."""

from __future__ import annotations

from collections.abc import Sequence

from qbeast_carbondata.metadata.open_table import Segment, TableSnapshot, load_segment
from qbeast_core.errors import DamagedFileError, StorageError, UnsupportedTableError


def replayed_loads(table: TableSnapshot, live: Sequence[Segment]) -> list[Segment]:
    """Return the segments to replay, oldest first; together they have the rows of the live ones.

    A compacted segment is replaced by its loads if all of them can still be read and no row of any was deleted or
    updated, before or after.
    """
    segments = [load for segment in live for load in _inputs(table, segment) or [segment]]
    return sorted(segments, key=lambda segment: segment.load.order)


def _inputs(table: TableSnapshot, segment: Segment, above: frozenset[str] = frozenset()) -> list[Segment]:
    """Return the loads that a segment was compacted from, or an empty list."""
    above |= {segment.load.name}
    loads = [load for load in table.loads if load.merged_into == segment.load.name and not load.is_visible]
    if any(load.name in above for load in loads):  # a cycle
        return []
    changed = {update.segment for update in table.updates}
    changed |= {load.name for load in table.loads if load.update_end}
    if not loads or changed & {segment.load.name, *(load.name for load in loads)}:
        return []
    try:
        inputs = [load_segment(table, load) for load in loads]
        for file in (file for load in inputs for file in load.files):
            file.store.size(file.path)  # compacted loads are cleaned up after a while
    except (UnsupportedTableError, DamagedFileError, StorageError, FileNotFoundError):
        return []
    expanded = [inner for load in inputs for inner in (_inputs(table, load, above) or [load])]
    counts = [load.rows for load in expanded]
    is_complete = None not in counts and sum(count or 0 for count in counts) == segment.rows
    return expanded if is_complete else []
