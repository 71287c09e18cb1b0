"""Count the rows that a read returns: from the log if possible, else from the columns of the filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from qbeast_core.query.filters.nodes import Nothing
from qbeast_core.query.filters.rest import parse_rest
from qbeast_core.query.plan.select import RowCount, count_rows, match
from qbeast_core.query.plan.weight_range import Sample
from qbeast_core.table.read.file_scans import scans_of
from qbeast_core.table.read.reader import Reader, ScanPlan, log_read
from qbeast_core.table.read.scan_task import read_scans


def heights(reader: Reader, predicate: pl.Expr | None, sample: Sample | None) -> Iterator[int]:
    """Yield the number of rows of a read in parts. The first part is known without a read of data files."""
    plan = reader.plan(predicate, sample)
    count = _log_count(reader, plan) if plan.weights.is_full else None
    if count is not None:
        plan = replace(plan, selection=count.undecided)
        yield count.known
    log_read(reader, plan, sample)
    filtered = [] if predicate is None else predicate.meta.root_names()
    column = next(iter([*filtered, *reader.hashed, *reader.snapshot.schema]))
    for frame in read_scans(scans_of(reader, plan), reader.row_filter(plan, [column]), reader.files):
        yield frame.height


def known_rows(reader: Reader) -> int | None:
    """Return the number of rows of a version from the log. None: a file is not counted.

    >>> import qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
    >>> known_rows(qbeast.open_table("ids").reader)
    1000
    """
    counts = reader.snapshot.files["num_records"]
    if counts.null_count():
        return None
    return int(counts.sum()) - sum(len(hidden) for hidden in reader.deleted_rows.values())


def max_rows(reader: Reader, plan: ScanPlan) -> int | None:
    """Return the maximum number of rows of a read, from the log. None: the log does not count the rows."""
    count = _log_count(reader, plan)
    return None if count is None else count.known + count.rows_read


def _log_count(reader: Reader, plan: ScanPlan) -> RowCount | None:
    table, keeps = plan.selection.table, plan.selection.blocks
    # Blocks that hold no row of the opposite of the filter match completely: they are counted without a read.
    opposite = Nothing() if plan.predicate is None else parse_rest(plan.predicate, reader.snapshot.schema)
    files = np.ones(table.files.height, np.bool_)
    return count_rows(table, keeps, match(table, opposite).blocks, files=files, deleted=reader.deleted_rows)
