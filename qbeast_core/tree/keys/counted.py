"""Build a summary from counts and a sample of another engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from qbeast_core.tree.space.partitions import distinct_values
from qbeast_core.tree.space.summary import (
    EVERY_KEY,
    KEY_COLUMN,
    ColumnSummary,
    IndexSummary,
    SampleLimits,
    cut_sample,
)

# Bits of the random numbers of rows: a float64 holds them exactly.
KEY_BITS: Final = 53

_SHIFT: Final = 64 - KEY_BITS


def counted_summary(
    sample: pl.DataFrame,
    drawn: pl.Series,
    columns: Sequence[ColumnSummary],
    *,
    rows: int,
    least_limit: int,
    weight_sum: int,
    limits: SampleLimits,
    partitions: pl.DataFrame | None = None,
) -> IndexSummary:
    """Return the summary of rows with random numbers; rows below a limit are in the sample.

    >>> from qbeast_core.tree.space.summary import summarise_ends
    >>> frame = pl.DataFrame({"a": [1, 5, 3]})
    >>> counts = summarise_ends(pl.Series("a", [1, 7]), nulls=2)
    >>> drawn = pl.Series([10, 90, 20])
    >>> summary = counted_summary(
    ...     frame, drawn, [counts], rows=90, least_limit=50, weight_sum=0, limits=SampleLimits(99, 1 << 20)
    ... )
    >>> summary.values("a").to_list(), summary.columns[0].highest
    ([1, 3], 7)
    """
    keys = (drawn.cast(pl.UInt64) * (1 << _SHIFT)).alias(KEY_COLUMN)
    key_limit = (least_limit << _SHIFT) - 1 if least_limit < 1 << KEY_BITS else EVERY_KEY
    summary = IndexSummary(
        rows=rows,
        columns=tuple(columns),
        sample=sample.with_columns(keys).filter(pl.col(KEY_COLUMN) <= key_limit),
        key_limit=key_limit,
        weight_sum=weight_sum,
        partitions=distinct_values(pl.DataFrame() if partitions is None else partitions),
    )
    return cut_sample(summary, limits)
