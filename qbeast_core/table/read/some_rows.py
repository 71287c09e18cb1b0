"""How large a sample holds a number of rows: of a whole table by its log, of a filter's rows by their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError, invalid_argument
from qbeast_core.query.plan.fractions import Sample, fraction_below
from qbeast_core.space.arrays import I32Array
from qbeast_core.table.data.expressions import Predicate, condition_of, evaluating
from qbeast_core.table.read.heights import most_rows
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.read.scan import pushed_down
from qbeast_core.table.read.scan_task import read_parts
from qbeast_core.table.read.split_scan import all_parts
from qbeast_core.tree.space.columns import frame_weights

# Returns the lowest weights of matching rows below a fraction, ascending, as columns `weight` and `rows`. All
# of them, or as many as hold the rows that are wanted, and one more.
LowestWeights: TypeAlias = Callable[[float], pl.DataFrame]

_UNREAD: Final = "nothing was read"
_MARGIN: Final = 4.0  # standard deviations that a first look holds beyond the rows that are wanted
_MIN_GROWTH, _MAX_GROWTH = 2.0, 16.0
_NO_WEIGHTS: Final = pl.Schema({"weight": pl.Int32, "rows": pl.Int64})


def sample_of_rows(
    reader: Reader, rows: int | None, sample: Sample | None, where: Predicate | None = None
) -> Sample | None:
    """Return the sample that holds a number of rows of a read.

    Without a filter about that number, as the log counts the table. With one at least that number: all rows if fewer
    match, more where the last ones share their index key. The weights of matching rows are read for it.
    """
    if rows is None:
        return sample
    refuse_rows(rows, sample)
    if where is None:
        return sample_of_table(reader, rows)
    condition = condition_of(where, reader.snapshot.schema, outcome=_UNREAD).expr
    given, columns = pushed_down(reader.snapshot.schema, condition, reader.indexed)
    planned = reader.planner(given)

    def lowest(fraction: float) -> pl.DataFrame:
        plan = planned(fraction)
        parts = read_parts(all_parts(reader, plan), reader.row_filter(plan, columns), reader.files)
        return _lowest((frame_weights(one.filter(condition), reader.indexed) for one in parts), rows)

    with evaluating(where, outcome=_UNREAD):
        return fraction_of_matches(rows, most_rows(reader, given), lowest)


def sample_of_table(reader: Reader, rows: int) -> float:
    """Return the fraction of a table that holds about a number of rows, as far as the log counts them."""
    hidden = sum(len(deleted) for deleted in reader.deleted_rows.values())
    known = reader.snapshot.counted_rows - hidden
    return min(rows / known, 1.0) if known > 0 else 1.0


def fraction_of_matches(rows: int, most: int | None, lowest: LowestWeights) -> float:
    """Return the least fraction that holds a number of the rows that match a filter; 1.0 if fewer match.

    It ends at the next weight of a matching row, so that 1 over it is what each row stands for.

    >>> weights = pl.DataFrame({"weight": range(-2**31, 2**31, 2**28), "rows": [1] * 16})
    >>> round(fraction_of_matches(4, 100, lambda fraction: weights.head(int(fraction * 16))), 6)
    0.25
    """
    if rows == 0 or (most is not None and most <= rows):
        return min(float(rows), 1.0)
    wanted = rows + 1 + _MARGIN * rows**0.5
    fraction = 1.0 if most is None else min(wanted / most, 1.0)
    while True:
        found = lowest(fraction)
        needed = _needed(found, rows)
        if found.height > needed:
            return fraction_below(int(found["weight"][needed]))
        if fraction == 1.0:
            return 1.0
        growth = wanted / max(int(found["rows"].sum()), 1)
        fraction = min(fraction * min(max(growth, _MIN_GROWTH), _MAX_GROWTH), 1.0)


def refuse_rows(rows: object, sample: Sample | None) -> None:
    """Raise unless rows are a whole number and stand alone."""
    if sample is not None:
        msg = "give one of `rows`, `sample`: each says how much to read; nothing was read"
        raise InvalidInputError(msg, argument="rows")
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        invalid_argument("rows", "must be a whole number, 0 or more", _UNREAD, value=rows)


def _lowest(parts: Iterable[I32Array], rows: int) -> pl.DataFrame:
    """Count the rows of each weight, and forget weights above those that are needed."""
    found = pl.DataFrame(schema=_NO_WEIGHTS)
    for weights in parts:
        counted = (
            pl.DataFrame({"weight": weights}).group_by("weight").agg(pl.len().cast(pl.Int64).alias("rows"))
        )
        both = pl.concat([found, counted]).group_by("weight").agg(pl.col("rows").sum()).sort("weight")
        found = both.head(_needed(both, rows) + 1)
    return found


def _needed(found: pl.DataFrame, rows: int) -> int:
    """Return how many of the weights hold the rows; more than there are if all do not."""
    return int((found["rows"].cum_sum() < rows).sum()) + 1
