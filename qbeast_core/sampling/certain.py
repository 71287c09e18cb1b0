"""Which groups of an estimate are certain to stay after HAVING, ORDER BY and LIMIT, by their intervals.

All intervals hold at once with the confidence (Bonferroni), so all conclusions from comparisons of them do, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
import polars as pl

from qbeast_core.query.sql.cut import Compared, Connected, Cut, Missing, OfGroup, Opposite, SortTerm, Test
from qbeast_core.sampling.confidence import Interval
from qbeast_core.sampling.dual import Dual
from qbeast_core.sampling.recognise import Quantile, Smooth
from qbeast_core.sampling.stopping import is_reliable
from qbeast_core.space.arrays import BoolArray, F64Array, I64Array

# Places of values without a number: before or after all values, and before or after all nulls.
_FIRST, _NULLS_FIRST, _VALUE, _NULLS_LAST, _LAST = -2, -1, 0, 1, 2

# Two vectors of totals without a common factor: the slopes of a function that is not linear differ between them.
_PROBES: Final = (1.0, 2.0)


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What is certain about an answer for each group; arrays of shape (groups,)."""

    low: F64Array
    high: F64Array
    # Whether the answer is null.
    is_null: BoolArray
    # False: the answer may be anything.
    is_known: BoolArray

    @staticmethod
    def of(interval: Interval, answer: Smooth | Quantile) -> Bounds:
        """Return the bounds of an interval.

        Counts and sums are bounded with few keys, too: the error is counted as if the sample lacked several keys like
        the heaviest one. A mean or quantile of few keys has no bound: their values may be equal by chance.
        """
        width = interval.high - interval.low
        with np.errstate(invalid="ignore"):
            is_total = np.isfinite(width) & (width > 0) & _is_linear(answer) & (not interval.deviates)
        is_null = interval.exact & np.isnan(interval.value)
        return Bounds(interval.low, interval.high, is_null, is_reliable(interval) | is_total)

    @staticmethod
    def exactly(interval: Interval) -> Bounds:
        """Return the estimates as if they were exact; NaN of a value is larger than all numbers, as in DuckDB."""
        value = np.where(np.isnan(interval.value) & ~interval.finite, np.inf, interval.value)
        return Bounds(value, value, np.isnan(value), np.ones(len(value), np.bool_))


def _is_linear(answer: Smooth | Quantile) -> bool:
    """Return whether an answer is a sum of totals, perhaps with factors."""
    if not isinstance(answer, Smooth):
        return False
    numbers = np.arange(1, max(answer.totals, default=0) + 2, dtype=np.float64)
    with np.errstate(all="ignore"):
        slopes = answer.formula(Dual.inputs(np.stack([numbers**power + power for power in _PROBES]))).slopes
    return bool((slopes[0] == slopes[1]).all())


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Whether a test may be true, false or null for each group; arrays of shape (groups,)."""

    true: BoolArray
    false: BoolArray
    null: BoolArray

    @property
    def is_sure(self) -> BoolArray:
        """Whether the test can only be true."""
        return self.true & ~self.false & ~self.null

    def __and__(self, other: Outcomes) -> Outcomes:
        null = (self.null & (other.null | other.true)) | (other.null & self.true)
        return Outcomes(self.true & other.true, self.false | other.false, null)

    def __invert__(self) -> Outcomes:
        return Outcomes(self.false, self.true, self.null)


def _outcomes(test: Test, bounds: Mapping[str, Bounds], groups: pl.DataFrame) -> Outcomes:
    """Return the possible outcomes of a test."""
    match test:
        case Compared():
            return _compared(test, bounds[test.answer])
        case Missing():
            bound = bounds[test.answer]
            return Outcomes(
                bound.is_null | ~bound.is_known, ~bound.is_null, np.zeros(len(bound.low), np.bool_)
            )
        case OfGroup():
            met = groups.select(test.condition.alias("met")).to_series()
            met = met if len(met) == groups.height else met.new_from_index(0, groups.height)
            true, null = met.fill_null(value=False).to_numpy(), met.is_null().to_numpy()
            return Outcomes(true, ~true & ~null, null)
        case Opposite():
            return ~_outcomes(test.part, bounds, groups)
        case Connected():
            first, *others = (_outcomes(part, bounds, groups) for part in test.parts)
            for other in others:
                first = first & other if test.is_and else ~(~first & ~other)
            return first
        case _:
            assert_never(test)


def _compared(test: Compared, bound: Bounds) -> Outcomes:
    low = np.where(bound.is_known, bound.low, -np.inf)
    high = np.where(bound.is_known, bound.high, np.inf)
    number = test.number
    match test.sign:
        case "<":
            true, false = low < number, high >= number
        case "<=":
            true, false = low <= number, high > number
        case ">":
            true, false = high > number, low <= number
        case ">=":
            true, false = high >= number, low < number
        case "=":
            true, false = (low <= number) & (high >= number), (low != number) | (high != number)
        case "<>":
            true, false = (low != number) | (high != number), (low <= number) & (high >= number)
    return Outcomes(true & ~bound.is_null, false & ~bound.is_null, bound.is_null | ~bound.is_known)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The groups that a cut keeps."""

    # Numbers of groups in order, shape (kept,).
    rows: I64Array
    # Whether each of them is certain to be kept.
    certain: BoolArray
    # Whether their order is certain; None without ORDER BY.
    is_ordered: bool | None
    # Number of groups that HAVING may keep, although their estimates do not pass it.
    doubtful: int


def keep(
    cut: Cut, estimates: Mapping[str, Bounds], bounds: Mapping[str, Bounds], groups: pl.DataFrame
) -> Kept:
    """Return the groups that a cut keeps by their estimates, and what is certain about them by their bounds.

    >>> def bounds(low: list[float], high: list[float]) -> dict[str, Bounds]:
    ...     known = np.ones(len(low), np.bool_)
    ...     return {"n": Bounds(np.array(low), np.array(high), ~known, known)}
    >>> first = Cut(None, (SortTerm("n", descending=True, nulls_last=True),), 1)
    >>> groups = pl.DataFrame({"shop": ["a", "b"]})
    >>> kept = keep(first, bounds([3.0, 5.0], [3.0, 5.0]), bounds([2.0, 4.5], [4.0, 5.5]), groups)
    >>> kept.rows, kept.certain, kept.is_ordered
    (array([1]), array([ True]), True)
    """
    everything = np.ones(groups.height, np.bool_)
    passes, sure, rivals = everything, everything, everything
    if cut.having is not None:
        passes = _outcomes(cut.having, estimates, groups).is_sure
        possible = _outcomes(cut.having, bounds, groups)
        sure, rivals = possible.is_sure, possible.true
    doubtful = int((rivals & ~passes).sum())
    rows = np.flatnonzero(passes)
    if not cut.order:
        rows = rows if cut.limit is None else rows[: cut.limit]
        return Kept(rows, sure[rows], None, doubtful)
    place, _ = _places(cut.order, estimates, groups)
    first, last = _places(cut.order, bounds, groups)
    rows = rows[np.argsort(place[rows], kind="stable")]
    if cut.limit is not None:
        # How many others may come before each group.
        others = np.searchsorted(np.sort(first[rivals]), last, side="left") - (rivals & (first < last))
        sure = sure & (others < cut.limit)
        rows = rows[: cut.limit]
    is_ordered = bool((last[rows[:-1]] <= first[rows[1:]]).all())
    return Kept(rows, sure[rows], is_ordered, doubtful)


def _places(
    order: Sequence[SortTerm], bounds: Mapping[str, Bounds], groups: pl.DataFrame
) -> tuple[I64Array, I64Array]:
    """Return the first and the last place that each group may have; equal places are equal in all terms.

    A group comes before or is equal to another if its last values do so for the first values of the other, term by
    term: no term of a group is after its last value.
    """
    columns = dict[str, pl.Series]()
    descending = list[bool]()
    for number, item in enumerate(order):
        ends = _ends(item, bounds, groups)
        for name, series in zip((f"class{number}", f"value{number}"), ends, strict=True):
            columns[name] = series.alias(name)
        descending += [False, item.descending]
    frame = pl.DataFrame(columns).with_row_index("row").sort([*columns], descending=descending)
    places = frame.select("row", place=pl.struct(*columns).rle_id()).sort("row")["place"]
    first, last = np.split(places.to_numpy().astype(np.int64), 2)
    return first, last


def _ends(item: SortTerm, bounds: Mapping[str, Bounds], groups: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Return the classes and the values of a term: the first ones of all groups, and then the last ones."""
    null = _NULLS_LAST if item.nulls_last else _NULLS_FIRST
    if isinstance(item.term, pl.Expr):
        values = groups.select(item.term.alias("")).to_series()
        values = values if len(values) == groups.height else values.new_from_index(0, groups.height)
        classes = pl.Series(np.where(values.is_null().to_numpy(), null, _VALUE))
        return classes.append(classes.clone()), values.append(values.clone())
    bound = bounds[item.term]
    ends = (bound.high, bound.low) if item.descending else (bound.low, bound.high)
    known = [
        np.where(bound.is_known, np.where(bound.is_null, null, _VALUE), place) for place in (_FIRST, _LAST)
    ]
    places = np.concatenate(known)
    return pl.Series(places), pl.Series(np.where(places == _VALUE, np.concatenate(ends), 0.0))
