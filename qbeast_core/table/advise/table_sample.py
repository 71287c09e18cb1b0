"""Read a uniform sample of a table, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from qbeast_core.query.plan.drawn import apart, draw
from qbeast_core.query.plan.weights import ALL_WEIGHTS
from qbeast_core.table.estimate.heavy_rows import heavy_rows
from qbeast_core.table.index.key_counts import counts_of
from qbeast_core.table.read.explain import explain
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan_task import read_parts
from qbeast_core.table.read.split_scan import all_parts

# Of the rows of a sample in memory.
_MAX_BYTES: Final = 128 << 20

# Maximum number of rows that are read for each one that is kept, if samples of the table are clustered.
_MAX_TIMES: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class TableSample:
    """A uniform sample of a table."""

    rows: pl.DataFrame
    # Number of rows of the table.
    table_rows: int
    # Columns by whose weights the rows were chosen; none if the sample has all rows.
    drawn_by: tuple[str, ...]


def table_sample(reader: Reader, *, rows: int, max_bytes: int = _MAX_BYTES) -> TableSample:
    """Read about a number of rows of a table, fewer if they take too many bytes.

    Rows of heavy keys are drawn one by one, as in estimates. If samples of the table are clustered, more rows are read
    than kept. Files without index are read as a whole, in parts, because the weights of their rows are not known.
    """
    total = explain(reader, None, None, None).rows_total
    total -= sum(len(deleted) for deleted in reader.deleted_rows.values())
    wanted = min(rows / max(total, 1), 1.0)
    effect = counts_of(reader.snapshot).lower_bound
    fraction = min(wanted * min(math.ceil(effect), _MAX_TIMES), 1.0)
    frames = _read(reader, reader.plan(None, None)) if fraction == 1.0 else _sampled(reader, fraction, total)
    kept = _within(frames, max_bytes, schema=reader.snapshot.schema, share=wanted / fraction)
    # Shuffled: rows with equal keys are written in the order of the input, which should not be that of this table.
    shuffled = kept.sample(fraction=1.0, shuffle=True, seed=0)
    return TableSample(shuffled, max(total, kept.height), reader.hashed if fraction < 1.0 else ())


def ends_of(files: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return the minimum and maximum of each column, from the statistics of files that all have them.

    >>> ends_of(pl.DataFrame({"min": [{"a": 1}, {"a": 0}], "max": [{"a": 1}, {"a": 9}]}), pl.Schema({"a": pl.Int64}))
    shape: (2, 1)
    ┌─────┐
    │ a   │
    │ --- │
    │ i64 │
    ╞═════╡
    │ 0   │
    │ 9   │
    └─────┘
    """
    if not {"min", "max"} <= set(files.columns):
        return pl.DataFrame()
    low, high = (files[side].struct.unnest() for side in ("min", "max"))
    known = [
        name
        for name, dtype in schema.items()
        if all(name in side.columns and side[name].dtype == dtype for side in (low, high))
        and not low[name].has_nulls()
        and not high[name].has_nulls()
    ]
    return pl.concat([low.select(pl.col(known).min()), high.select(pl.col(known).max())])


def _sampled(reader: Reader, fraction: float, total: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a sample, with rows of heavy keys drawn one by one."""
    plan_of = reader.planner(None)
    every, plan = plan_of(None).selection, plan_of(fraction)
    files = heavy_rows(reader, every, rows=total).files
    if not files:
        yield from _read(reader, plan)
        return
    yield from _read(reader, replace(plan, selection=draw(plan.selection, every, files, plan.weights)))
    skipped = ScanPlan(apart(every, files), ALL_WEIGHTS, None)
    for frame in _read(reader, skipped):
        yield frame.sample(fraction=fraction, seed=0)


def _read(reader: Reader, plan: ScanPlan) -> Iterator[pl.DataFrame]:
    row_filter = reader.row_filter(plan, list(reader.snapshot.schema))
    return read_parts(all_parts(reader, plan), row_filter, reader.files)


def _within(
    frames: Iterable[pl.DataFrame], max_bytes: int, *, schema: pl.Schema, share: float
) -> pl.DataFrame:
    """Join a share of the rows of frames; halve them at random each time that they take too many bytes."""
    kept = schema.to_frame()
    for number, frame in enumerate(frames):
        kept = pl.concat([kept, frame if share == 1.0 else frame.sample(fraction=share, seed=number)])
        while kept.estimated_size() > max_bytes and kept.height > 1:
            kept, share = kept.sample(fraction=0.5, seed=number), share / 2
    return kept.rechunk()
