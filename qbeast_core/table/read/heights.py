"""Count the rows that a read returns: from the log where possible, else from the columns of the filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from qbeast_core.query.filters.nodes import Nothing
from qbeast_core.query.filters.rest import parse_rest
from qbeast_core.query.plan.counting import RowCount, count_rows
from qbeast_core.query.plan.fractions import Sample
from qbeast_core.query.plan.select import match
from qbeast_core.table.read.reader import Reader, ScanPlan, tell_of_read
from qbeast_core.table.read.scan_task import read_parts
from qbeast_core.table.read.split_scan import all_parts


def heights(reader: Reader, predicate: pl.Expr | None, sample: Sample | None) -> Iterator[int]:
    """Count the rows of a read in parts: first those that are known without a look at a data file."""
    plan = reader.plan(predicate, sample)
    found = _known(reader, plan) if plan.weights.is_full else None
    if found is not None:
        plan = replace(plan, selection=found.undecided)
        yield found.known
    tell_of_read(reader, plan, sample)
    looked_at = [] if predicate is None else predicate.meta.root_names()
    column = next(iter([*looked_at, *reader.indexed, *reader.snapshot.schema]))
    for frame in read_parts(all_parts(reader, plan), reader.row_filter(plan, [column]), reader.files):
        yield frame.height


def known_rows(reader: Reader) -> int | None:
    """Return how many rows a version has by its log alone; None where a file or a copy of rows leaves that open.

    >>> import qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
    >>> known_rows(qbeast.open_table("ids").reader)
    1000
    """
    counts = reader.snapshot.files["num_records"]
    if counts.null_count() or reader.blocks.replicated.any():
        return None
    return int(counts.sum()) - sum(len(hidden) for hidden in reader.deleted_rows.values())


def most_rows(reader: Reader, predicate: pl.Expr | None) -> int | None:
    """Return the maximum number of matching rows, by the log alone; None if the log does not count rows."""
    found = _known(reader, reader.plan(predicate, None))
    return None if found is None else found.known + found.rows_read


def _known(reader: Reader, plan: ScanPlan) -> RowCount | None:
    table, keeps = plan.selection.table, plan.selection.blocks
    leaves_out = Nothing() if plan.predicate is None else parse_rest(plan.predicate, reader.snapshot.schema)
    files = np.ones(table.files.height, np.bool_)
    return count_rows(table, keeps, match(table, leaves_out).blocks, files=files, deleted=reader.deleted_rows)
