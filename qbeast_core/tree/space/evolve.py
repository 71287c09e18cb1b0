"""Decide whether rows are outside of the space of a revision, and build a new revision (format 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.space.values import BoolArray, F64Array, NumberColumn, number_values
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import DECIMAL_TYPE, ColumnKind, ColumnSpec, Revision, Transformation
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.space.fit_space import (
    ColumnBounds,
    ColumnData,
    Fitted,
    Growth,
    fit_column,
    quantile_count,
    refit_column,
)
from qbeast_core.tree.space.index_values import to_index_column
from qbeast_core.tree.space.summary import IndexSummary

_MIN_CUBE_SIZE: Final = 4096

_DEFAULT_CUBE_SIZE: Final = 16_384

_CUBES_OF_SMALL_TABLE: Final = 16

# With so few cubes, a sample of a million rows has 128 rows of each.
_CUBES_OF_LARGE_TABLE: Final = 8_192


@dataclass(frozen=True, slots=True)
class IndexWish:
    """Options of a write for the index: columns, cube size (None: keep or choose), bounds, dialect.

    `decimals` are types of decimal columns that revisions note.
    """

    specs: tuple[ColumnSpec, ...]
    cube_size: int | None
    dialect: BlocksDialect
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict[str, ColumnBounds])
    decimals: Mapping[str, str] = field(default_factory=dict[str, str])
    # Sampling key; empty: the indexed columns.
    sample_by: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [spec.name for spec in self.specs]

    def data_of(self, summary: IndexSummary, knots: int) -> list[ColumnData]:
        """Return the data of each column, in order."""
        return [
            ColumnData(
                rows=summary.rows,
                column=column,
                sample=summary.values(column.name),
                bounds=self.bounds.get(spec.name, ColumnBounds()),
                dialect=self.dialect,
                knots=knots,
            )
            for spec, column in zip(self.specs, summary.columns, strict=True)
        ]


def default_cube_size(rows: int) -> int:
    """Return the cube size for a table with `rows` rows in its first write.

    Small cubes make filters precise; cubes are larger in large tables, to limit their number: a sample draws the tree.

    >>> default_cube_size(28_000), default_cube_size(6_000_000), default_cube_size(10**9)
    (4096, 16384, 122070)
    """
    small = min(max(rows // _CUBES_OF_SMALL_TABLE, _MIN_CUBE_SIZE), _DEFAULT_CUBE_SIZE)
    return max(small, rows // _CUBES_OF_LARGE_TABLE)


def first_revision(wish: IndexWish, summary: IndexSummary, *, table_id: str, timestamp_ms: int) -> Revision:
    """Return revision 1 of a table whose first rows are summarised."""
    size = wish.cube_size or default_cube_size(summary.rows)
    knots = quantile_count(summary.rows, cube_size=size)
    columns = zip(wish.specs, wish.data_of(summary, knots), strict=True)
    fitted = [fit_column(spec.kind, data) for spec, data in columns]
    return _revision(1, wish, fitted, cube_size=size, table_id=table_id, timestamp_ms=timestamp_ms)


def next_revision(
    current: Revision, wish: IndexWish, summary: IndexSummary, *, growth: Growth, timestamp_ms: int
) -> Revision:
    """Return the revision for an append: `current`, or a new revision that supersedes it."""
    size = wish.cube_size or current.desired_cube_size * (4 if growth.cubes > sizing().max_cubes else 1)
    knots = quantile_count(growth.rows + summary.rows, cube_size=size)
    pairs = list(zip(current.column_transformers, current.transformations, strict=False))
    fitted: list[Fitted] = []
    for i, (spec, data) in enumerate(zip(wish.specs, wish.data_of(summary, knots), strict=True)):
        pair = pairs[i] if i < len(pairs) else None
        if pair is None or not keeps_kind(spec.kind, pair[0].kind):
            fitted.append(fit_column(spec.kind, data))
        else:
            fitted.append((pair[0], refit_column(pair, data, growth)))
    if size == current.desired_cube_size and fitted == pairs:
        return current
    number, table_id = current.revision_id + 1, current.table_id
    return _revision(number, wish, fitted, cube_size=size, table_id=table_id, timestamp_ms=timestamp_ms)


def keeps_kind(requested: ColumnKind, stored: str) -> bool:
    """Return whether a column keeps its kind; a requested histogram is stored as quantiles."""
    return requested in {"auto", stored} or (requested, stored) == ("histogram", "quantiles")


def _revision(
    number: int,
    wish: IndexWish,
    fitted: Sequence[Fitted],
    *,
    cube_size: int,
    table_id: str,
    timestamp_ms: int,
) -> Revision:
    return Revision(
        revision_id=number,
        timestamp_ms=timestamp_ms,
        table_id=table_id,
        desired_cube_size=cube_size,
        column_transformers=tuple(
            transformer.model_copy(update={DECIMAL_TYPE: wish.decimals[transformer.column_name]})
            if transformer.column_name in wish.decimals
            else transformer
            for transformer, _ in fitted
        ),
        transformations=tuple(transformation for _, transformation in fitted),
    ).with_sample_by(wish.sample_by)


# Widens ranges of values of a column type by the inaccuracies of their writer.
Slack: TypeAlias = Callable[[F64Array, F64Array, pl.DataType], tuple[F64Array, F64Array]]


def rows_outside(frame: pl.DataFrame, revision: Revision, *, slack: Slack | None = None) -> BoolArray:
    """Return the rows that need a new revision: outside of a linear range, or different from the single value.

    Such rows can still be indexed, at the ends of the space, where filters cannot separate them. Nulls, NaN and
    infinities never need a revision; quantiles and hashes take any value.

    >>> from qbeast_core.tree.space.evolve import IndexWish, first_revision
    >>> from qbeast_core.tree.space.summary import summarise
    >>> from qbeast_core.spec.revision import ColumnSpec
    >>> rows = pl.DataFrame({"a": [1, 9]})
    >>> wish = IndexWish((ColumnSpec("a", "linear"),), None, "documented")
    >>> revision = first_revision(wish, summarise(rows, ["a"]), table_id="t", timestamp_ms=0)
    >>> rows_outside(pl.DataFrame({"a": [0, 1, None, 9, 10]}), revision).tolist()
    [True, False, False, False, True]
    """
    outside = np.zeros(frame.height, np.bool_)
    for name, space in zip(revision.columns, revision.transformations, strict=True):
        outside |= _outside(frame.get_column(name), space, slack)
    return outside


def _outside(column: pl.Series, space: Transformation, slack: Slack | None) -> BoolArray:
    limits = space.limits
    if limits is None:
        return np.zeros(len(column), np.bool_)
    if space.holds_texts and limits:
        differs: BoolArray = (column.cast(pl.String) != limits[0]).fill_null(value=False).to_numpy()
        return _finite(column) & differs
    if not limits:
        return _finite(column)
    low, high = (float(limit) for limit in limits)
    values = to_index_column(column)
    if not isinstance(values, NumberColumn):
        return _finite(column)  # the space is for another type
    numbers = number_values(values)
    lower, upper = (numbers, numbers) if slack is None else slack(numbers, numbers, column.dtype)
    outside: BoolArray = (upper < low) | (lower > high)
    return outside & _finite(column)


def _finite(column: pl.Series) -> BoolArray:
    """Return which rows are not null, NaN or infinite."""
    finite = column.is_not_null()
    if column.dtype.is_float():
        finite = finite & column.is_finite().fill_null(value=False)
    mask: BoolArray = finite.to_numpy()
    return mask
