"""Find the sample with a given number of rows: of a table from its log, of a filter from weights of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError, check_whole_number
from qbeast_core.plan.weights import Sample, fraction_below
from qbeast_core.support.frames import own_column
from qbeast_core.table.data.expressions import Predicate, condition_of, evaluating
from qbeast_core.table.read.file_scans import scans_of
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.read.scan import max_rows, pushed_down
from qbeast_core.table.read.scan_task import read_scans

# Returns the lowest weights of matching rows below a fraction, ascending, with columns `weight` and `rows`. Returns all
# weights, or as many as hold the requested rows, and one more.
LowestWeights: TypeAlias = Callable[[float], pl.DataFrame]

_WEIGHT: Final = own_column("weight")  # the weights of rows, beside their columns
_MARGIN: Final = 4.0  # standard deviations that the first read adds to the requested rows
_MIN_GROWTH, _MAX_GROWTH = 2.0, 16.0
_NO_WEIGHTS: Final = pl.Schema({"weight": pl.Int32, "rows": pl.Int64})


def sample_of_rows(
    planner: Planner, rows: int | None, sample: Sample | None, where: Predicate | None = None
) -> Sample | None:
    """Return the sample with a number of rows.

    Without a filter, the number is approximate and based on the log. With a filter, the sample has at least this number
    of rows: fewer if fewer match, more if the last rows share their index key. The weights of matching rows are read.
    """
    if rows is None:
        return sample
    refuse_rows(rows, sample)
    if where is None:
        return sample_of_table(planner, rows)
    condition = condition_of(where, planner.snapshot.schema).expr
    pushed, columns = pushed_down(planner.snapshot.schema, condition, planner.hashed)
    plan_of = planner.of_filter(pushed)

    def lowest(fraction: float) -> pl.DataFrame:
        plan = plan_of(fraction)
        keep = replace(planner.row_filter(plan, columns), weight_column=_WEIGHT)
        frames = read_scans(scans_of(planner, plan), keep, planner.files)
        return _lowest((frame.filter(condition)[_WEIGHT] for frame in frames), rows)

    with evaluating(where):
        return fraction_of_matches(rows, max_rows(planner, plan_of(None)), lowest)


def sample_of_table(planner: Planner, rows: int) -> float:
    """Return the fraction of a table with about this number of rows, based on the log."""
    total = planner.snapshot.counted_rows - int(planner.hidden_rows.counts.sum())
    return min(rows / total, 1.0) if total > 0 else 1.0


def fraction_of_matches(rows: int, maximum: int | None, lowest: LowestWeights) -> float:
    """Return the minimum fraction with a number of matching rows; 1.0 if fewer match.

    `maximum` is the maximum number of matching rows, if known. The fraction ends at the next weight of a matching row,
    so that 1 over the fraction is the sampling weight of each row.

    >>> weights = pl.DataFrame({"weight": range(-2**31, 2**31, 2**28), "rows": [1] * 16})
    >>> round(fraction_of_matches(4, 100, lambda fraction: weights.head(int(fraction * 16))), 6)
    0.25
    """
    if rows == 0 or (maximum is not None and maximum <= rows):
        return min(float(rows), 1.0)
    target = rows + 1 + _MARGIN * rows**0.5
    fraction = 1.0 if maximum is None else min(target / maximum, 1.0)
    while True:
        weights = lowest(fraction)
        needed = _needed(weights, rows)
        if weights.height > needed:
            return fraction_below(int(weights["weight"][needed]))
        if fraction == 1.0:
            return 1.0
        growth = target / max(int(weights["rows"].sum()), 1)
        fraction = min(fraction * min(max(growth, _MIN_GROWTH), _MAX_GROWTH), 1.0)


def refuse_rows(rows: object, sample: Sample | None) -> None:
    """Raise unless `rows` is a whole number and `sample` is None."""
    if sample is not None:
        msg = "`rows` and `sample` cannot be combined. Pass one of them."
        raise InvalidInputError(msg, argument="rows")
    check_whole_number("rows", rows, 0)


def _lowest(parts: Iterable[pl.Series], rows: int) -> pl.DataFrame:
    """Count the rows of each weight. Keep only the lowest weights that are needed."""
    lowest = pl.DataFrame(schema=_NO_WEIGHTS)
    for weights in parts:
        counts = (
            pl.DataFrame({"weight": weights}).group_by("weight").agg(pl.len().cast(pl.Int64).alias("rows"))
        )
        both = pl.concat([lowest, counts]).group_by("weight").agg(pl.col("rows").sum()).sort("weight")
        lowest = both.head(_needed(both, rows) + 1)
    return lowest


def _needed(weights: pl.DataFrame, rows: int) -> int:
    """Return the number of weights that hold the rows, or more than there are if all are not enough."""
    return int((weights["rows"].cum_sum() < rows).sum()) + 1
