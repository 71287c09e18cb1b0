"""Find rows outside of the space of a revision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import polars as pl

from qbeast_core.space.arrays import BoolArray, F64Array
from qbeast_core.space.columns import NumberColumn
from qbeast_core.space.numbers import number_values
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import Transformation
from qbeast_core.tree.space.columns import to_index_column

# Widens ranges of values of a column type by the inaccuracies of their writer.
Slack: TypeAlias = Callable[[F64Array, F64Array, pl.DataType], tuple[F64Array, F64Array]]


def rows_outside(frame: pl.DataFrame, revision: Revision, *, slack: Slack | None = None) -> BoolArray:
    """Return the rows that need a new revision: outside of a linear range, or different from the single value.

    Such rows can still be indexed, at the ends of the space, where filters cannot separate them. Nulls, NaN and
    infinities never need a revision; quantiles and hashes take any value.

    >>> from qbeast_core.tree.space.evolve import IndexWish, first_revision
    >>> from qbeast_core.tree.space.summary import summarise
    >>> from qbeast_core.spec.column_spec import ColumnSpec
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
