"""Warn of partitions that are too small for an index."""

from __future__ import annotations

import warnings
from typing import Final

import polars as pl

from qbeast_core.errors import SmallPartitionsWarning
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.table.snapshot.snapshot import Snapshot

_MIN_PARTITIONS: Final = 2


def warn_if_small(before: Snapshot | None, after: Snapshot) -> None:
    """Warn if a write makes a table whose median partition has fewer rows than one cube.

    Later writes do not warn again. A table that fits in one cube has no use for a tree anyway.
    """
    median = _small_median(after)
    if median is None or (before is not None and _small_median(before) is not None):
        return
    latest, columns = after.config.latest, list(after.columns.partitions)
    size = 0 if latest is None else latest.desired_cube_size
    msg = (
        f"half of the partitions of {columns} have {median:,.0f} rows or fewer, less than one cube ({size:,} rows): "
        "the index cannot skip rows inside of them, and each has files of its own. The rows are written and complete. "
        "Partition by fewer values, for example by month instead of day, or index these columns instead."
    )
    warnings.warn(msg, SmallPartitionsWarning, stacklevel=caller_stacklevel())


def _small_median(snapshot: Snapshot) -> float | None:
    """Return the rows of the median partition if they are fewer than a cube has. None: they are enough."""
    latest = snapshot.config.latest
    if not snapshot.columns.partitions or latest is None:
        return None
    rows = (
        snapshot.files.group_by("partition")
        .agg(pl.col("num_records").fill_null(0).cast(pl.Int64).sum())
        .get_column("num_records")
    )
    size, median = latest.desired_cube_size, rows.median()
    if len(rows) < _MIN_PARTITIONS or int(rows.sum()) <= size or not isinstance(median, float):
        return None
    return median if median < size else None
