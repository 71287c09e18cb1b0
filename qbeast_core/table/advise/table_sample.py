"""Read a uniform sample of a table, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from qbeast_core.query.plan.drawn import apart, draw
from qbeast_core.query.plan.weights import ALL_WEIGHTS
from qbeast_core.table.estimate.heavy_rows import heavy_rows
from qbeast_core.table.read.explain import explain
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan_task import read_parts
from qbeast_core.table.read.split_scan import all_parts

# Of the rows of a sample in memory.
_MAX_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True, eq=False)
class TableSample:
    """A uniform sample of a table."""

    rows: pl.DataFrame
    # Number of rows of the table.
    table_rows: int
    # Whether the rows were chosen by weights.
    by_weight: bool


def table_sample(reader: Reader, *, rows: int, max_bytes: int = _MAX_BYTES) -> TableSample:
    """Read about a number of rows of a table, fewer if they take too many bytes.

    Rows of heavy keys are drawn one by one, as in estimates. Files without index are read as a whole, in parts, because
    the weights of their rows are not known.
    """
    total = explain(reader, None, None, None).rows_total
    total -= sum(len(deleted) for deleted in reader.deleted_rows.values())
    fraction = min(rows / max(total, 1), 1.0)
    frames = _read(reader, reader.plan(None, None)) if fraction == 1.0 else _sampled(reader, fraction, total)
    kept = _within(frames, max_bytes, schema=reader.snapshot.schema)
    return TableSample(kept, max(total, kept.height), by_weight=fraction < 1.0)


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


def _within(frames: Iterable[pl.DataFrame], max_bytes: int, *, schema: pl.Schema) -> pl.DataFrame:
    """Join frames; halve the rows at random each time that they take too many bytes."""
    kept, share = schema.to_frame(), 1.0
    for number, frame in enumerate(frames):
        kept = pl.concat([kept, frame if share == 1.0 else frame.sample(fraction=share, seed=number)])
        while kept.estimated_size() > max_bytes and kept.height > 1:
            kept, share = kept.sample(fraction=0.5, seed=number), share / 2
    return kept.rechunk()
