"""Does this data need a new revision, and which (format 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.column_spec import ColumnKind, ColumnSpec
from qbeast_core.spec.data_type import INTEGER_DATA_TYPES
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import (
    CDFStringQuantilesTransformation,
    LinearTransformation,
    OneValueTransformation,
    QuantilesTransformation,
    Transformation,
    typed_number,
)
from qbeast_core.spec.transformer import Transformer
from qbeast_core.tree.fit import (
    KNOT_CHARACTERS,
    ColumnBounds,
    Fitted,
    fit_column,
    fit_range,
    float_or_int,
    linear_space,
    merged_quantiles,
    value_limits,
)
from qbeast_core.tree.summary import ColumnSummary, IndexSummary, sampled_numbers

__all__ = [
    "MOST_CUBES",
    "Growth",
    "IndexWish",
    "Range",
    "default_cube_size",
    "first_revision",
    "next_revision",
]


MOST_CUBES: Final = 65_000
"""A tree with more cubes gets a larger cube size at the next append."""

_SMALLEST_CUBE: Final = 4096

_USUAL_CUBE: Final = 16_384

_CUBES_OF_SMALL_TABLE: Final = 16

_CUBES_OF_LARGE_TABLE: Final = 32_768

Range: TypeAlias = tuple[float | str, float | str]
"""Lowest and highest value, in the format's unit."""

_OUTSIDE_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True)
class IndexWish:
    """What a write asks of the index: columns, cube size (None: keep or choose), bounds, dialect."""

    specs: tuple[ColumnSpec, ...]
    cube_size: int | None
    dialect: BlocksDialect
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict[str, ColumnBounds])

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [spec.name for spec in self.specs]

    def bounds_of(self, name: str) -> ColumnBounds:
        """Return what the caller says about a column."""
        return self.bounds.get(name, ColumnBounds())


@dataclass(frozen=True, slots=True)
class Growth:
    """How the newest revision fares.

    Rows count whatever revision they are in: a new revision starts with few, and of these alone the next
    batch of a growing column would always be a large share.

    Attributes
    ----------
    rows : int
        Of the table.
    outside_rows : mapping of str to float
        Those outside the newest quantiles, per column that has some.
    ranges : mapping of str to Range
        What the table is known to hold, per such column.
    cubes : int
        Of the newest revision.
    """

    rows: int = 0
    outside_rows: Mapping[str, float] = field(default_factory=dict[str, float])
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
    cubes: int = 0


def default_cube_size(rows: int) -> int:
    """Return the cube size for a table that begins with this many rows.

    Small cubes make filters sharp; they grow so that a table keeps some tens of thousands at most.

    Examples
    --------
    >>> default_cube_size(28_000), default_cube_size(6_000_000), default_cube_size(10**9)
    (4096, 16384, 30517)
    """
    small = min(max(rows // _CUBES_OF_SMALL_TABLE, _SMALLEST_CUBE), _USUAL_CUBE)
    return max(small, rows // _CUBES_OF_LARGE_TABLE)


def first_revision(wish: IndexWish, summary: IndexSummary, *, table_id: str, timestamp_ms: int) -> Revision:
    """Return revision 1 of a table that begins with the summarised rows.

    Parameters
    ----------
    wish : IndexWish
        Columns and options.
    summary : IndexSummary
        Of all rows.
    table_id : str
        Path or URI of the table.
    timestamp_ms : int
        Milliseconds since 1970 UTC.
    """
    fitted = [
        _fit(wish, spec, column, summary) for spec, column in zip(wish.specs, summary.columns, strict=True)
    ]
    size = wish.cube_size or default_cube_size(summary.rows)
    return _revision(1, fitted, cube_size=size, table_id=table_id, timestamp_ms=timestamp_ms)


def next_revision(
    current: Revision, wish: IndexWish, summary: IndexSummary, *, growth: Growth, timestamp_ms: int
) -> Revision:
    """Return the revision to index an append with: `current` itself, or the one that supersedes it.

    A linear range that the data leaves is widened by its own length on that side, so that steady growth
    costs a new revision per doubling. Quantiles clamp; they are drawn anew when two fifths of the table's
    rows, the new ones included, lie outside.

    Parameters
    ----------
    current : Revision
        The table's newest revision.
    wish : IndexWish
        The specs must name the table's columns, in order.
    summary : IndexSummary
        Of the rows to append.
    growth : Growth
        State of `current`.
    timestamp_ms : int
        Of a new revision, milliseconds since 1970 UTC.

    Returns
    -------
    Revision
        `current` itself (the same object) when nothing has to change; else with the next id.
    """
    pairs = list(zip(current.column_transformers, current.transformations, strict=False))
    fitted: list[Fitted] = []
    for i, (spec, column) in enumerate(zip(wish.specs, summary.columns, strict=True)):
        known = pairs[i] if i < len(pairs) else None
        if known is None or not _is_kept(spec.kind, known[0].kind):
            fitted.append(_fit(wish, spec, column, summary))
        else:
            fitted.append((known[0], _evolved(known, column, summary, wish, growth)))
    size = wish.cube_size or _kept_cube_size(current, growth)
    if size == current.desired_cube_size and fitted == pairs:
        return current
    return _revision(
        current.revision_id + 1, fitted, cube_size=size, table_id=current.table_id, timestamp_ms=timestamp_ms
    )


def _is_kept(wished: ColumnKind, stored: str) -> bool:
    """Tell whether a column stays as it is; a histogram that is wished for is stored as quantiles."""
    return wished in {"auto", stored} or (wished, stored) == ("histogram", "quantiles")


def _kept_cube_size(current: Revision, growth: Growth) -> int:
    return current.desired_cube_size * (4 if growth.cubes > MOST_CUBES else 1)


def _fit(wish: IndexWish, spec: ColumnSpec, column: ColumnSummary, summary: IndexSummary) -> Fitted:
    bounds = wish.bounds_of(spec.name)
    return fit_column(spec.kind, column, summary.values(column.name), bounds=bounds, dialect=wish.dialect)


def _revision(
    number: int, fitted: Sequence[Fitted], *, cube_size: int, table_id: str, timestamp_ms: int
) -> Revision:
    return Revision(
        revision_id=number,
        timestamp_ms=timestamp_ms,
        table_id=table_id,
        desired_cube_size=cube_size,
        column_transformers=tuple(transformer for transformer, _ in fitted),
        transformations=tuple(transformation for _, transformation in fitted),
    )


def _evolved(
    known: Fitted, column: ColumnSummary, summary: IndexSummary, wish: IndexWish, growth: Growth
) -> Transformation:
    transformer, now = known
    bounds = wish.bounds_of(column.name)
    sample = summary.values(column.name)
    if isinstance(now, LinearTransformation):
        return _widened(now, column, bounds)
    if isinstance(now, OneValueTransformation):
        return _beyond_one_value(transformer, now, column, sample, wish)
    if isinstance(now, QuantilesTransformation):
        return _requantiled(now, column, summary, wish, growth)
    return now  # hash and histogram are never superseded by data


def _widened(now: LinearTransformation, column: ColumnSummary, bounds: ColumnBounds) -> Transformation:
    lowest, highest = fit_range(column, bounds)
    first, last = now.limits
    low = first if lowest is None else min(float_or_int(lowest), first)
    high = last if highest is None else max(float_or_int(highest), last)
    if low == first and high == last:
        return now
    least, most = value_limits(now.ordered_data_type)
    whole = now.ordered_data_type in INTEGER_DATA_TYPES
    span = int(high) - int(low) if whole else float(high) - float(low)
    span = span if math.isfinite(span) else 0.0
    low = max(low - span, least) if low < first else low
    high = min(high + span, most) if high > last else high
    return linear_space(now.ordered_data_type, low, high)


def _beyond_one_value(
    transformer: Transformer,
    now: OneValueTransformation,
    column: ColumnSummary,
    sample: pl.Series,
    wish: IndexWish,
) -> Transformation:
    value = now.limits[0] if now.limits else None
    if value is not None and not isinstance(value, str):
        value = typed_number(value, column.data_type)
    bounds = wish.bounds_of(column.name)
    low, high = fit_range(column, ColumnBounds(value, value))
    known = replace(column, lowest=low, highest=high)
    lowest, highest = fit_range(known, bounds)
    if lowest is None or (lowest == highest == value and bounds.quantiles is None):
        return now
    kind: ColumnKind = "quantiles" if transformer.kind == "quantiles" else "linear"
    return fit_column(kind, known, sample, bounds=bounds, dialect=wish.dialect)[1]


def _requantiled(
    now: QuantilesTransformation,
    column: ColumnSummary,
    summary: IndexSummary,
    wish: IndexWish,
    growth: Growth,
) -> Transformation:
    bounds, sample = wish.bounds_of(column.name), summary.values(column.name)
    if bounds.quantiles is not None:
        given = fit_column("quantiles", column, sample, bounds=bounds, dialect=wish.dialect)[1]
        return now if given == now else given
    if column.lowest is None or column.highest is None:
        return now
    texts = isinstance(now, CDFStringQuantilesTransformation)
    values = sample.drop_nulls() if texts else sampled_numbers(sample)
    first, last = now.quantiles[0], now.quantiles[-1]
    one_text = len(now.quantiles) == 2 and isinstance(first, str) and last == first + "\0"
    cut = values.str.head(KNOT_CHARACTERS) if texts else values  # what only the quantiles lost is not outside
    share = ((cut < first) | (cut > last)).mean()
    outside = share if isinstance(share, float) else 0.0
    rows = summary.rows - column.nulls
    if one_text and outside == 0.0 and column.lowest == first:
        return now
    if not one_text and not _too_many_outside(outside * rows, rows, column.name, growth):
        return now
    ends = pl.Series([column.lowest, column.highest, *growth.ranges.get(column.name, ())], dtype=values.dtype)
    old = now.quantiles if not one_text else now.quantiles[:1] if growth.rows else ()
    beyond = min(growth.outside_rows.get(column.name, 0.0), float(growth.rows))
    # The new rows stand for those of the table that lie outside, too.
    knots = merged_quantiles(old, growth.rows - beyond, values.append(ends), beyond + rows)
    if len(knots) < 2:
        return now
    return now.model_copy(update={"quantiles": tuple(knots)})


def _too_many_outside(new_outside: float, new_rows: float, name: str, growth: Growth) -> bool:
    outside = growth.outside_rows.get(name, 0.0) + new_outside
    return new_outside > 0 and outside > _OUTSIDE_SHARE * (growth.rows + new_rows)
