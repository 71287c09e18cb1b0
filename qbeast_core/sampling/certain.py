"""Which groups of an estimate are certain to stay after HAVING, ORDER BY and LIMIT, by their intervals.

All intervals hold at once with the confidence (Bonferroni), so all conclusions from comparisons of them do, too. Groups
without a sampled row are compared as one more group: its sums have a bound, and its other answers may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.sampling.confidence import Interval, is_reliable
from qbeast_core.sampling.recognise import Dual, Quantile, Smooth
from qbeast_core.space.values import BoolArray, F64Array, I64Array
from qbeast_core.sql.cut import Cut, Having, SortTerm

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
    def of(interval: Interval, answer: Smooth | Quantile, missing: F64Array) -> Bounds:
        """Return the bounds of an interval; `missing` is the maximum of each total in the keys that the sample lacks.

        Counts and sums are bounded with few keys, too: such a group may lack as much as a group without a sampled row,
        and the error is counted as if the sample lacked several keys like the heaviest one. A mean or quantile of few
        keys has no bound: their values may be equal by chance.
        """
        width, line = interval.high - interval.low, _Line.of(answer)
        can_trust, lacks = is_reliable(interval), np.zeros(len(width))
        with np.errstate(invalid="ignore"):
            is_total = np.isfinite(width) & (width > 0) & (line is not None) & (not interval.deviates)
        if line is not None:
            lacks[is_total & ~can_trust] = line.reach(missing)
        is_null = interval.exact & np.isnan(interval.value)
        return Bounds(interval.low - lacks, interval.high + lacks, is_null, can_trust | is_total)

    @staticmethod
    def unseen(answer: Smooth | Quantile, missing: F64Array) -> Bounds:
        """Return the bounds of a group without a sampled row; its sums are within `missing`."""
        line, no = _Line.of(answer), np.zeros(1, np.bool_)
        if line is None:
            return Bounds(np.zeros(1), np.zeros(1), no, no)
        start, reach = np.array([line.start]), line.reach(missing)
        return Bounds(start - reach, start + reach, no, ~no)

    def __add__(self, other: Bounds) -> Bounds:
        """Return the bounds of the groups of both."""
        return Bounds(
            np.concatenate((self.low, other.low)),
            np.concatenate((self.high, other.high)),
            np.concatenate((self.is_null, other.is_null)),
            np.concatenate((self.is_known, other.is_known)),
        )

    @staticmethod
    def exactly(interval: Interval) -> Bounds:
        """Return the estimates as if they were exact; NaN of a value is larger than all numbers, as in DuckDB."""
        value = np.where(np.isnan(interval.value) & ~interval.finite, np.inf, interval.value)
        return Bounds(value, value, np.isnan(value), np.ones(len(value), np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """An answer that is a number plus a sum of totals with factors."""

    start: float
    slopes: F64Array

    @staticmethod
    def of(answer: Smooth | Quantile) -> _Line | None:
        """Return the parts of an answer; None if it is another function of totals."""
        if not isinstance(answer, Smooth):
            return None
        numbers = np.arange(1, max(answer.totals, default=0) + 2, dtype=np.float64)
        probes = np.stack([numbers**power + power for power in _PROBES])
        with np.errstate(all="ignore"):
            dual = answer.formula(Dual.inputs(probes))
        if not (dual.slopes[0] == dual.slopes[1]).all():
            return None
        return _Line(float(dual.value[0] - dual.slopes[0] @ probes[0]), dual.slopes[0])

    def reach(self, magnitudes: F64Array) -> float:
        """Return the maximum distance from the start for totals of these magnitudes."""
        used = np.flatnonzero(self.slopes)
        return float(np.abs(self.slopes[used]) @ magnitudes[used])


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


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The columns of groups; those of a last group without a sampled row may be anything."""

    frame: pl.DataFrame
    # Number of groups, with the last one if there is one.
    size: int

    def values(self, expr: pl.Expr) -> tuple[pl.Series, BoolArray]:
        """Return the values of an expression, and whether they are known."""
        values, height = self.frame.select(expr.alias("")).to_series(), self.frame.height
        values = values if len(values) == height else values.new_from_index(0, height)
        return values.extend_constant(None, self.size - height), np.arange(self.size) < height


def _outcomes(test: Having, bounds: Mapping[str, Bounds], groups: _Groups) -> Outcomes:
    """Return the possible outcomes of a test."""
    match test.function:
        case "null":
            bound = bounds[test.answer]
            return Outcomes(
                bound.is_null | ~bound.is_known, ~bound.is_null, np.zeros(len(bound.low), np.bool_)
            )
        case "group" if test.condition is not None:
            met, is_known = groups.values(test.condition)
            true, null = met.fill_null(value=False).to_numpy(), met.is_null().to_numpy()
            return Outcomes(true | ~is_known, (~true & ~null) | ~is_known, null)
        case "not" | "and" | "or":
            first, *others = (_outcomes(part, bounds, groups) for part in test.parts)
            for other in others:
                first = first & other if test.function == "and" else ~(~first & ~other)
            return ~first if test.function == "not" else first
        case _:
            return _compared(test, bounds[test.answer])


def _compared(test: Having, bound: Bounds) -> Outcomes:
    low = np.where(bound.is_known, bound.low, -np.inf)
    high = np.where(bound.is_known, bound.high, np.inf)
    number = test.number
    match test.function:
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
        case _:
            true, false = (low != number) | (high != number), (low <= number) & (high >= number)
    return Outcomes(true & ~bound.is_null, false & ~bound.is_null, bound.is_null | ~bound.is_known)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The groups that a cut keeps."""

    # Numbers of groups in order, shape (kept,).
    rows: I64Array
    # Whether each of them is certain to be kept.
    certain: BoolArray
    # Whether their order among themselves is certain; None without ORDER BY.
    is_ordered: bool | None
    # Number of groups that HAVING may keep, although their estimates do not pass it.
    doubtful: int


def keep(
    cut: Cut,
    estimates: Mapping[str, Bounds],
    bounds: Mapping[str, Bounds],
    groups: pl.DataFrame,
    unseen: Mapping[str, Bounds] | None = None,
) -> Kept:
    """Return the groups that a cut keeps by their estimates, and what is certain about them by their bounds.

    `unseen` are the bounds of any group without a sampled row, of which there may be many. None: all groups are known.

    >>> def bounds(low: list[float], high: list[float]) -> dict[str, Bounds]:
    ...     known = np.ones(len(low), np.bool_)
    ...     return {"n": Bounds(np.array(low), np.array(high), ~known, known)}
    >>> first = Cut(None, (SortTerm("n", descending=True, nulls_last=True),), 1)
    >>> groups = pl.DataFrame({"shop": ["a", "b"]})
    >>> kept = keep(first, bounds([3.0, 5.0], [3.0, 5.0]), bounds([2.0, 4.5], [4.0, 5.5]), groups)
    >>> kept.rows, kept.certain, kept.is_ordered
    (array([1]), array([ True]), True)
    >>> other = {"n": Bounds(np.array([0.0]), np.array([4.6]), np.zeros(1, bool), np.ones(1, bool))}
    >>> keep(first, bounds([3.0, 5.0], [3.0, 5.0]), bounds([2.0, 4.5], [4.0, 5.5]), groups, other).certain
    array([False])
    """
    known, every = _Groups(groups, groups.height), _Groups(groups, groups.height + (unseen is not None))
    bounds = bounds if unseen is None else {name: bound + unseen[name] for name, bound in bounds.items()}
    passes, sure, rivals = (np.ones(size, np.bool_) for size in (known.size, every.size, every.size))
    if cut.having is not None:
        passes = _outcomes(cut.having, estimates, known).is_sure
        possible = _outcomes(cut.having, bounds, every)
        sure, rivals = possible.is_sure, possible.true
    doubtful = int((rivals[: known.size] & ~passes).sum())
    rows = np.flatnonzero(passes)
    if not cut.order:
        rows = rows if cut.limit is None else rows[: cut.limit]
        return Kept(rows, sure[rows], None, doubtful)
    place, _ = _places(cut.order, estimates, known)
    first, last = _places(cut.order, bounds, every)
    rows = rows[np.argsort(place[rows], kind="stable")]
    if cut.limit is not None:
        # How many others may come before each group. Of groups without a sampled row, any number may.
        others = np.searchsorted(np.sort(first[rivals]), last, side="left") - (rivals & (first < last))
        sure = sure & (others < cut.limit)
        if unseen is not None and rivals[-1]:
            sure = sure & (last <= first[-1])
        rows = rows[: cut.limit]
    is_ordered = bool((last[rows[:-1]] <= first[rows[1:]]).all())
    return Kept(rows, sure[rows], is_ordered, doubtful)


def _places(
    order: Sequence[SortTerm], bounds: Mapping[str, Bounds], groups: _Groups
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


def _ends(item: SortTerm, bounds: Mapping[str, Bounds], groups: _Groups) -> tuple[pl.Series, pl.Series]:
    """Return the classes and the values of a term: the first ones of all groups, and then the last ones."""
    null = _NULLS_LAST if item.nulls_last else _NULLS_FIRST
    if isinstance(item.term, pl.Expr):
        values, is_known = groups.values(item.term)
        places = _classes(values.is_null().to_numpy(), is_known, null)
        return pl.Series(places), values.append(values.clone())
    bound = bounds[item.term]
    ends = (bound.high, bound.low) if item.descending else (bound.low, bound.high)
    places = _classes(bound.is_null, bound.is_known, null)
    return pl.Series(places), pl.Series(np.where(places == _VALUE, np.concatenate(ends), 0.0))


def _classes(is_null: BoolArray, is_known: BoolArray, null: int) -> I64Array:
    """Return the first classes of all groups, and then the last ones."""
    classes = np.where(is_null, null, _VALUE)
    return np.concatenate([np.where(is_known, classes, place) for place in (_FIRST, _LAST)])
