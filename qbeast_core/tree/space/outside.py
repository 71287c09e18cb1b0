"""Which rows have no place of their own in a revision's space."""

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

# Widens ranges of values, of a column of a type, by what their writer may have made of them.
Slack: TypeAlias = Callable[[F64Array, F64Array, pl.DataType], tuple[F64Array, F64Array]]


def rows_outside(frame: pl.DataFrame, revision: Revision, *, slack: Slack | None = None) -> BoolArray:
    """Tell which rows would ask for a new revision: beyond a linear range, or another value than the only one.

    Such rows could be indexed all the same, at the ends of the space, where filters would not find them
    apart. Nulls, NaN and infinities ask for nothing; quantiles and hashes take any value.

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
        other: BoolArray = (column.cast(pl.String) != limits[0]).fill_null(value=False).to_numpy()
        return _finite(column) & other
    if not limits:
        return _finite(column)
    low, high = (float(limit) for limit in limits)
    values = to_index_column(column)
    if not isinstance(values, NumberColumn):
        return _finite(column)  # of another type than the space was made for
    numbers = number_values(values)
    lower, upper = (numbers, numbers) if slack is None else slack(numbers, numbers, column.dtype)
    beyond: BoolArray = (upper < low) | (lower > high)
    return beyond & _finite(column)


def _finite(column: pl.Series) -> BoolArray:
    """Tell which rows are neither null nor NaN nor infinite."""
    finite = column.is_not_null()
    if column.dtype.is_float():
        finite = finite & column.is_finite().fill_null(value=False)
    mask: BoolArray = finite.to_numpy()
    return mask
