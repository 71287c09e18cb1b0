"""Choose the revision that rows are indexed in: the newest of the table, or a new one if they need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.log.rebase import dialect_of
from qbeast_core.space.values import BoolArray, F64Array, NumberColumn, number_values
from qbeast_core.spec.revision import QuantilesTransformation, Revision
from qbeast_core.table.data.foreign_schema import refuse_lost_columns, refuse_taken_name
from qbeast_core.table.index.column_choice import check_columns, specs_of_table
from qbeast_core.table.index.live_index import Index, bounded_columns
from qbeast_core.tree.fit import KNOT_CHARACTERS, Growth, IndexWish, ValueRange, first_revision, next_revision
from qbeast_core.tree.grid import to_index_column
from qbeast_core.tree.summary import IndexSummary

# Maximum number of values of a column that has few.
_MAX_FEW: Final = 4
_FIRST_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ChosenRevision:
    """The revision that rows are indexed in."""

    revision: Revision
    # Whether the revision is not in the table yet.
    is_new: bool
    # Number of rows to index.
    rows: int
    # Number of values of the columns that have few, of the first revision of a table; of large tables in a sample.
    few_values: Mapping[str, int] = field(default_factory=dict[str, int])


def choose_revision(
    wish: IndexWish,
    summary_of: Callable[[Sequence[str]], IndexSummary],
    state: Index | None,
    *,
    uri: str,
    now_ms: int,
    gone: BoolArray | None = None,
) -> ChosenRevision:
    """Return the revision for rows: the newest of the table, or a new one if they need it."""
    summary = summary_of(wish.names)
    if state is None or state.newest is None:
        first = first_revision(wish, summary, table_id=uri, timestamp_ms=now_ms)
        return ChosenRevision(
            first, is_new=True, rows=summary.rows, few_values=_few_values(summary, wish.names)
        )
    current, files, blocks = state.newest, state.snapshot.files, state.binding(state.newest)
    if gone is not None:
        files = files.filter(~pl.Series(gone, dtype=pl.Boolean))
        blocks = blocks.filter(~pl.Series(gone[blocks["file"].to_numpy()], dtype=pl.Boolean))
    # Cubes in addition to the roots: many partitions do not make cubes larger.
    cubes = blocks.select("tree", "cube").n_unique() - blocks["tree"].n_unique()
    growth = growth_of(files, current, cubes=cubes)
    revision = next_revision(current, wish, summary, growth=growth, timestamp_ms=now_ms)
    return ChosenRevision(revision, is_new=revision is not current, rows=summary.rows)


def _few_values(summary: IndexSummary, names: Sequence[str]) -> dict[str, int]:
    """Return the number of values of columns that have few; null is one."""
    sampled = map(summary.values, names)
    # The first values rule out most columns.
    likely = [values for values in sampled if values.head(_FIRST_ROWS).n_unique() <= _MAX_FEW]
    counts = {values.name: values.n_unique() for values in likely}
    return {name: count for name, count in counts.items() if count <= _MAX_FEW}


def wish_of_table(state: Index, *, redraw: bool = False) -> IndexWish:
    """Return the index options of a table for a rewrite of its rows."""
    snapshot = state.snapshot
    latest, dialect = snapshot.config.latest, dialect_of(snapshot)
    keeps = state.newest is not None and not redraw
    specs = specs_of_table(state, redraw=redraw)
    refuse_taken_name(snapshot.uri, snapshot.schema_json)
    if latest is not None:
        refuse_lost_columns(snapshot.uri, latest, snapshot.schema, snapshot.columns)
    check_columns(specs, snapshot.schema, dialect)
    size = None if latest is None or keeps else latest.desired_cube_size
    return IndexWish(
        specs=specs,
        cube_size=size,
        dialect=dialect,
        decimals=snapshot.columns.rehashed,
        sample_by=snapshot.config.sample_by,
    )


def growth_of(files: pl.DataFrame, revision: Revision, *, cubes: int) -> Growth:
    """Return the number of rows of the table, of rows outside the quantiles of each column, and of cubes.

    Rows outside are estimated from the statistics of files: a file counts with the share of its range that is outside.
    """
    outside: dict[str, float] = {}
    ranges: dict[str, ValueRange] = {}
    bounded = bounded_columns(files)
    for name, space in zip(revision.columns, revision.transformations, strict=False):
        if name not in bounded or not isinstance(space, QuantilesTransformation):
            continue
        bounds, texts = _bounds_of(files, name), space.holds_texts
        if bounds.is_empty() or texts != (bounds["low"].dtype == pl.String):
            continue  # no statistics, or another writer changed the type
        share, ends = _of_texts(bounds, space) if texts else _of_numbers(bounds, space)
        outside[name] = float((bounds["rows"].to_numpy() * share).sum())
        ranges[name] = ends
    rows = int(files["num_records"].sum())
    return Growth(rows=rows, outside_rows=outside, ranges=ranges, cubes=cubes)


def _bounds_of(files: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return number of rows, minimum and maximum of each file with statistics."""
    bounds = files.lazy().select(
        pl.col("num_records").fill_null(0).alias("rows"),
        pl.col("min").struct.field(name).alias("low"),
        pl.col("max").struct.field(name).alias("high"),
    )
    return bounds.drop_nulls().collect()


def _of_texts(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, ValueRange]:
    """Return the share of each file outside, 0 or 1 because a range of texts has no length; and all bounds."""
    first, last = str(space.quantiles[0]), str(space.quantiles[-1])
    low, high = files["low"], files["high"]
    beyond = (low.str.head(KNOT_CHARACTERS) > last) | (high < first)
    lows = low.sort()  # upper bounds may be truncated, so they are not values of the column
    return beyond.to_numpy().astype(np.float64), (str(lows[0]), str(lows[-1]))


def _of_numbers(files: pl.DataFrame, space: QuantilesTransformation) -> tuple[F64Array, ValueRange]:
    """Return the share of each file's range outside, 0 or 1 for a single value; and all bounds."""
    lowest, highest = _numbers(files["low"]), _numbers(files["high"])
    first, last = float(space.quantiles[0]), float(space.quantiles[-1])
    low, high = lowest / 2, highest / 2  # halved: the range of extreme doubles does not overflow
    span = high - low
    above = np.maximum(high - np.maximum(low, last / 2), 0.0)
    below = np.maximum(np.minimum(high, first / 2) - low, 0.0)
    share = ((lowest > last) | (highest < first)).astype(np.float64)
    np.divide(above + below, span, out=share, where=span > 0)
    return np.minimum(share, 1.0), (float(lowest.min()), float(highest.max()))


def _numbers(values: pl.Series) -> F64Array:
    column = to_index_column(values)
    if not isinstance(column, NumberColumn):
        msg = f"the statistics of {values.name!r} are not numbers"
        raise TypeError(msg)
    return number_values(column)
