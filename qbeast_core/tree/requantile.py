"""When quantiles no longer fit a growing table, and what the new ones are (format 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    Transformation,
)
from qbeast_core.tree.fit import float_or_int
from qbeast_core.tree.quantiles import KNOT_CHARACTERS, merge_numeric_quantiles, merge_text_quantiles
from qbeast_core.tree.summary import ColumnSummary, sampled_numbers

__all__ = ["Growth", "QuantilesTransformation", "Range", "requantiled"]

QuantilesTransformation: TypeAlias = CDFNumericQuantilesTransformation | CDFStringQuantilesTransformation

Range: TypeAlias = tuple[float | str, float | str]
"""Lowest and highest value, in the format's unit."""

_OUTSIDE_SHARE: Final = 0.4


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


def requantiled(
    now: QuantilesTransformation, column: ColumnSummary, sample: pl.Series, *, rows: int, growth: Growth
) -> Transformation:
    """Return `now`, or quantiles of old and new rows where two fifths of all lie outside.

    Parameters
    ----------
    now : QuantilesTransformation
        The quantiles in force.
    column : ColumnSummary
        Range of the rows to append.
    sample : polars.Series
        A uniform sample of them, nulls included.
    rows : int
        How many they are, nulls left out.
    growth : Growth
        State of the table. The new rows stand for those of the table that lie outside, too.

    Examples
    --------
    >>> from qbeast_core.tree.summary import summarise
    >>> now = CDFNumericQuantilesTransformation(quantiles=(0.0, 9.0), data_type="LongDataType")
    >>> batch = summarise(pl.DataFrame({"x": [12, 15, 20]}), ["x"])
    >>> new = requantiled(now, batch.columns[0], batch.values("x"), rows=3, growth=Growth(rows=2))
    >>> new.quantiles
    (0.0, 9.0, 12.0, 15.0, 20.0)
    """
    if column.lowest is None or column.highest is None:
        return now
    if isinstance(now, CDFStringQuantilesTransformation):
        return _of_texts(now, column, sample.drop_nulls(), rows, growth)
    values = sampled_numbers(sample).to_numpy()
    outside = _share((values < now.quantiles[0]) | (values > now.quantiles[-1]))
    if not _too_many_outside(outside * rows, rows, column.name, growth):
        return now
    ends = [column.lowest, column.highest, *growth.ranges.get(column.name, ())]
    new = np.sort(np.concatenate([np.array([float_or_int(end) for end in ends], np.float64), values]))
    inside, beyond = _split_rows(column.name, growth)
    knots = merge_numeric_quantiles(np.array(now.quantiles), inside, new, beyond + rows)
    return CDFNumericQuantilesTransformation(quantiles=tuple(knots), data_type=now.data_type)


def _of_texts(
    now: CDFStringQuantilesTransformation, column: ColumnSummary, texts: pl.Series, rows: int, growth: Growth
) -> Transformation:
    first, last = now.quantiles[0], now.quantiles[-1]
    one_value = len(now.quantiles) == 2 and last == first + "\0"
    cut = texts.str.head(KNOT_CHARACTERS)  # as the quantiles are: what only they lost is not outside
    outside = _share(((cut < first) | (cut > last)).to_numpy())
    if one_value:
        if outside == 0.0 and column.lowest == first:
            return now
    elif not _too_many_outside(outside * rows, rows, column.name, growth):
        return now
    ends = pl.Series("", [column.lowest, column.highest, *growth.ranges.get(column.name, ())], pl.String)
    old = [first] if one_value and growth.rows else [] if one_value else list(now.quantiles)
    inside, beyond = _split_rows(column.name, growth)
    knots = merge_text_quantiles(old, inside, pl.concat([texts.alias(""), ends]), beyond + rows)
    return CDFStringQuantilesTransformation(quantiles=tuple(knots)) if len(knots) > 1 else now


def _split_rows(name: str, growth: Growth) -> tuple[float, float]:
    """Rows that the quantiles stand for, and rows beyond them."""
    beyond = min(growth.outside_rows.get(name, 0.0), float(growth.rows))
    return growth.rows - beyond, beyond


def _too_many_outside(new_outside: float, new_rows: float, name: str, growth: Growth) -> bool:
    outside = growth.outside_rows.get(name, 0.0) + new_outside
    return new_outside > 0 and outside > _OUTSIDE_SHARE * (growth.rows + new_rows)


def _share(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    return float(mask.mean()) if len(mask) else 0.0
