"""Scan a snapshot as a Polars LazyFrame: projection, filter, limit and sample are pushed down to pages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.errors import EmptySampleWarning, InvalidInputError
from qbeast_core.plan.bounds import trusted_counts
from qbeast_core.plan.nodes import Nothing, named_columns
from qbeast_core.plan.predicate import parse_rest
from qbeast_core.plan.select import RowCount, count_rows, match
from qbeast_core.plan.weights import ALL_WEIGHTS, Sample, fractions_of, sample_to_weights
from qbeast_core.support.frames import own_column
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.table.read.file_scans import scans_of
from qbeast_core.table.read.planner import Planner, ScanPlan, log_read, warn_of_full_read
from qbeast_core.table.read.scan_task import read_scans

_Source: TypeAlias = Callable[
    [list[str] | None, pl.Expr | None, int | None, int | None], Iterator[pl.DataFrame]
]

# Column with the sampling weight of a row: 1 over the probability to be in the sample.
SAMPLING_WEIGHT: Final = "sampling_weight"

# Columns before the columns of the table, see `_counting`. Queries do not see them.
_HIDDEN: Final = (own_column("rows"), own_column("never"))

# Expected rows: with 20 independent rows, a sample is empty once in half a billion times.
_MIN_EXPECTED: Final = 20


def scan(planner: Planner, sample: Sample | None = None, *, expand: bool = False) -> pl.LazyFrame:
    """Return the snapshot as a LazyFrame."""
    if sample is not None:
        # Raise for an invalid sample now, not at `collect`.
        warn_of_sample(planner, sample, planner.plan(None, sample))

    lazy = _counting(planner, sample)
    if not expand:
        return lazy
    return lazy.with_columns(pl.lit(sampling_weight(planner, sample), pl.Float64).alias(SAMPLING_WEIGHT))


def sampling_weight(planner: Planner, sample: Sample | None) -> float:
    """Return the number of rows that each sampled row represents."""
    if SAMPLING_WEIGHT in planner.snapshot.schema:
        msg = f"expand adds a column {SAMPLING_WEIGHT!r}, and the table has one"
        raise InvalidInputError(msg, argument="expand")
    probability = 1.0 if sample is None else sample_to_weights(sample).probability
    return 1.0 / (probability or 1.0)


def _counting(planner: Planner, sample: Sample | None) -> pl.LazyFrame:
    """Return all rows as a LazyFrame that detects queries which need only the number of rows.

    If a query needs no column, Polars requests the first one. Here the first column has a name that no query uses, so
    it is requested only in this case, perhaps with columns of the filter. The second hidden column prevents a request
    of all columns, for which Polars passes no list.
    """
    shown = pl.Schema({**dict.fromkeys(_HIDDEN, pl.Null()), **planner.snapshot.schema})
    return lazy_frame(partial(_rows_or_heights, planner, sample), shown).drop(_HIDDEN)


def _rows_or_heights(
    planner: Planner,
    sample: Sample | None,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    _size: int | None,
) -> Iterator[pl.DataFrame]:
    """Read rows with hidden columns for Polars, or count them if only their number is needed."""
    columns = [*_HIDDEN, *planner.snapshot.schema] if with_columns is None else with_columns
    if _HIDDEN[0] in columns and set(columns) <= {_HIDDEN[0], *named_columns(predicate)}:
        yield from _first_rows(_nulls(planner, columns, heights(planner, predicate, sample)), n_rows)
        return
    shown = [name for name in columns if name not in _HIDDEN]
    missing = [pl.lit(None).alias(name) for name in columns if name in _HIDDEN]
    for frame in _first_rows(_rows(planner, sample, shown, predicate, n_rows), n_rows):
        yield frame.with_columns(missing).select(columns) if missing else frame


def _rows(
    planner: Planner, sample: Sample | None, columns: list[str], predicate: pl.Expr | None, limit: int | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a filter and a sample, in frames of bounded size. The limit is only a hint."""
    plan = planner.plan(predicate, sample)
    log_read(planner, plan, sample)
    row_filter = planner.row_filter(plan, columns)
    yield from read_scans(scans_of(planner, plan), row_filter, planner.files, limit=limit)


def _nulls(planner: Planner, columns: list[str], counts: Iterator[int]) -> Iterator[pl.DataFrame]:
    """Yield frames of nulls with these numbers of rows. Only their heights are used; they need little memory."""
    types = {name: dtype for name, dtype in planner.snapshot.schema.items() if name in columns}
    nulls = [pl.lit(None, dtype).alias(name) for name, dtype in types.items()]
    for count in counts:
        rows = pl.select(pl.repeat(None, count, dtype=pl.Null).alias(_HIDDEN[0]))
        yield rows.with_columns(nulls).select(columns)


def _first_rows(frames: Iterator[pl.DataFrame], limit: int | None) -> Iterator[pl.DataFrame]:
    """Yield the first rows of frames; all of them without a limit."""
    if limit is None:
        yield from frames
        return
    for frame in frames:
        yield frame.head(limit)
        limit -= min(frame.height, limit)
        if limit == 0:
            return


class _Scan:
    """Adapter between Polars and a source, as in `register_io_source`, whose closure cannot be pickled."""

    def __init__(self, source: _Source) -> None:
        self.io_source = source

    def __call__(
        self, with_columns: list[str] | None, predicate: bytes | None, n_rows: int | None, size: int | None
    ) -> tuple[Iterator[pl.DataFrame], bool]:
        expr, is_applied = None, True
        if predicate:
            try:
                expr = pl.Expr.deserialize(predicate)
            except (pl.exceptions.PolarsError, ImportError, AttributeError, TypeError, ValueError):
                is_applied = False  # a Python function: Polars filters the rows itself
        return self.io_source(with_columns, expr, n_rows, size), is_applied


def lazy_frame(source: _Source, schema: pl.Schema) -> pl.LazyFrame:
    """Return a LazyFrame of the rows that a function yields."""
    scan_function = getattr(pl.LazyFrame, "_scan_python_function", None)
    if scan_function is None:  # it is private in Polars; without it, the LazyFrame cannot be pickled
        return register_io_source(source, schema=schema, is_pure=True)
    lazy: pl.LazyFrame = scan_function(schema=schema, scan_fn=_Scan(source), is_pure=True)
    return lazy


def pushed_down(
    schema: pl.Schema, predicate: pl.Expr | None, columns: Sequence[str] | None
) -> tuple[pl.Expr | None, list[str]]:
    """Return the filter and the columns that Polars' optimizer passes to `_rows_or_heights`.

    Polars itself applies conditions that can fail (a strict cast), and reads the columns for them.

    >>> schema = pl.Schema({"x": pl.Int64, "y": pl.String, "z": pl.String})
    >>> pushed, columns = pushed_down(schema, (pl.col("x") > 1) & (pl.col("y").cast(pl.Int8) > 2), ["x"])
    >>> str(pushed), columns
    ('[(col("x")) > (1)]', ['x', 'y'])
    """
    requests: list[tuple[pl.Expr | None, list[str]]] = []

    def source(
        with_columns: list[str] | None, pushed: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        names = list(schema) if with_columns is None else with_columns
        requests.append((pushed, names))
        yield pl.DataFrame(schema={name: schema[name] for name in names})

    lazy = register_io_source(source, schema=schema, is_pure=True)
    filtered = lazy if predicate is None else lazy.filter(predicate)
    (filtered if columns is None else filtered.select(columns)).collect()
    # Without a request, Polars knows that no row matches.
    return requests[0] if requests else (pl.lit(value=False), list(columns or schema))


def warn_of_sample(planner: Planner, sample: Sample | None, plan: ScanPlan) -> None:
    """Warn if a sample reads all files, or is empty by the index although many rows were expected.

    No file is read: a sample that begins at 0 is empty if no block begins below its end. Files without index may hold
    rows of the sample, so they prevent the warning. `plan` is the plan of the read, which may have a filter.
    """
    if sample is None or planner.weights_of(sample).is_full:  # raises if a sample needs other arguments
        return
    warn_of_full_read(planner)
    first, last = fractions_of(sample)
    rows = planner.snapshot.live_rows
    expected = (last - first) * rows
    if expected < _MIN_EXPECTED or plan.selection.opened.any():
        return
    if plan.predicate is not None and planner.plan(None, sample).selection.opened.any():
        return
    many = "choose a sampling key of many values: overwrite with sample_by=[...]."
    if not planner.snapshot.config.sample_by:
        many = "index a column of many values as well: Table.reindex."
    message = (
        f"the sample {sample} of {planner.snapshot.uri!r} holds no row; about {expected:,.0f} of {rows:,} rows were "
        f"expected: rows with equal values of {list(planner.hashed)} enter a sample together (cluster sampling), "
        f"and there are few such values. Take a larger sample, or {many}"
    )
    warnings.warn(message, EmptySampleWarning, stacklevel=caller_stacklevel())


def heights(planner: Planner, predicate: pl.Expr | None, sample: Sample | None) -> Iterator[int]:
    """Yield the number of rows of a read in parts. The first part is known without a read of data files."""
    plan = planner.plan(predicate, sample)
    count = _log_count(planner, plan) if plan.weights.is_full else None
    if count is not None:
        plan = replace(plan, selection=count.undecided)
        yield count.known
    log_read(planner, plan, sample)
    column = next(iter([*named_columns(predicate), *planner.hashed, *planner.snapshot.schema]))
    for frame in read_scans(scans_of(planner, plan), planner.row_filter(plan, [column]), planner.files):
        yield frame.height


def known_rows(planner: Planner) -> int | None:
    """Return the number of rows of a version from the log. None: a file is not counted, or cannot be counted right.

    >>> import qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
    >>> known_rows(qbeast.open_table("ids").planner)
    1000
    """
    counts, hidden = trusted_counts(planner.snapshot.files), planner.hidden_rows.counts
    return None if (counts < hidden).any() else int((counts - hidden).sum())


def max_rows(planner: Planner, plan: ScanPlan) -> int | None:
    """Return the maximum number of rows of a read, from the log. None: the log does not count the rows."""
    count = _log_count(planner, plan)
    return None if count is None else count.known + count.rows_read


def _log_count(planner: Planner, plan: ScanPlan) -> RowCount | None:
    keeps = plan.selection
    # Pages that hold no row of the opposite of the filter match completely: they are counted without a read.
    opposite = Nothing() if plan.predicate is None else parse_rest(plan.predicate, planner.snapshot.schema)
    leaves = match(keeps.table, opposite).within(ALL_WEIGHTS)
    return count_rows(keeps, leaves, files=np.ones_like(keeps.opened), hidden=planner.hidden_rows)
