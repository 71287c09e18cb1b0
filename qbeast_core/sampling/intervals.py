"""Estimates and their intervals from a sample of keys.

The sample is a Poisson sample: each key is in it with the same probability f, with all of its rows. The residual of a
key is the change of the answer if the key counted once more: derivatives times its totals. The variance of the answer
is (1 - f) / f**2 times the sum of the squared residuals. The rows of one key come together, so squares are summed by
key: by row the variance would be too small wherever keys repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.sampling.aggregates import Quantile, Smooth
from qbeast_core.sampling.dual import Dual
from qbeast_core.sampling.runs import Runs
from qbeast_core.sampling.sample import Calibration, Keys, KeySample, Part
from qbeast_core.sampling.sums import GROUP, WEIGHT
from qbeast_core.space.arrays import BoolArray, F64Array, I64Array
from qbeast_core.tree.layout.parallel import CHUNK_ROWS, map_chunks

# Maximum relative variance of a sum of squares that is estimated from a part of the keys: one standard error is 5 %.
_LIGHT: Final = 1 / 400

# The heaviest key counts 4.7 times, once by itself and 3.7 times more. A sample that holds one such key may come from
# a table with several: where 4.7 are expected in a sample, 5 % of all samples hold one or none (Poisson). Without it,
# intervals of heavy-tailed values were too narrow in simulations, see docs/sampling.md.
UNSEEN: Final = 3.7


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """An answer for every group, and what its bounds rest on; each array has shape (groups,)."""

    value: F64Array
    low: F64Array
    high: F64Array
    keys: I64Array
    # Share of the variance that comes from one key, in [0, 1].
    largest_share: F64Array
    # Whether the value has no error.
    exact: BoolArray
    # False where rows hold NaN or infinities, which no bound holds for.
    finite: BoolArray
    # Standard errors are wider by this share, 0 or more; it falls with the root of the number of sampled keys.
    skewness: F64Array
    # Whether the sample differs from what is known of all rows by more than chance explains.
    deviates: bool = False

    @property
    def half_width(self) -> F64Array:
        """The farthest that the truth may lie from the value; NaN where there is no bound."""
        return np.where(self.exact, 0.0, np.maximum(self.high - self.value, self.value - self.low))


def factor_of(confidence: float, *, answers: int = 1) -> float:
    """Return how many standard errors an interval reaches to either side; of several answers at once by Bonferroni.

    The normal distribution needs no degrees of freedom: an interval is reliable from 100 keys on, where Student's t
    differs by 1 %, and the skewness and the heaviest key widen it by more.

    >>> round(factor_of(0.95), 2), round(factor_of(0.95, answers=10), 2)
    (1.96, 2.81)
    """
    return NormalDist().inv_cdf(1 - (1 - confidence) / (2 * answers))


def smooth_interval(sample: KeySample, answer: Smooth, factor: float) -> Interval:
    """Return a function of totals with its interval.

    Where totals are calibrated to a known number of rows, the residual of a key is less by its rows times the mean: a
    key whose rows are all average does not move the answer.

    >>> import polars as pl
    >>> from qbeast_core.sampling.aggregates import recognise
    >>> from qbeast_core.sampling.sample import Keys
    >>> asked = recognise({"n": pl.len()}, lambda expr: pl.Int64())
    >>> keys = KeySample(probability=0.1, groups=pl.DataFrame({"g": [0]}), whole=np.zeros((1, 1)),
    ...     sampled=np.array([[900.0]]), calibration=None, values=(),
    ...     every=lambda: Keys(np.zeros(900, np.int64), np.ones((900, 1)), np.zeros(900), 1))
    >>> found = smooth_interval(keys, asked.answers[0], 2.0)
    >>> found.value, found.half_width.round(), found.keys
    (array([9000.]), array([589.]), array([900]))
    """
    groups = len(sample.whole)
    finite: BoolArray = np.logical_and.reduce(np.isfinite(sample.totals[:, list(answer.totals)]), axis=1)
    is_counted = sample.ungrouped and sample.calibration is not None and set(answer.totals) <= {0}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        of = answer.formula(Dual.inputs(sample.totals))
        if sample.probability == 1.0 or is_counted:
            return _known(of.value, finite)
        moments, keys = _key_moments(sample, of, answer.totals)
        # The log knows of a row farther from zero than any sampled one: count it as if it were in the sample. A few
        # rows that hold much of a sum are in no small sample, and the other rows do not show them.
        for number in np.flatnonzero(sample.unseen).tolist():
            moments = moments.with_one_more(of.slopes[:, number] * sample.unseen[number] * sample.scale)
        error = factor * moments.error(sample.probability)
    return Interval(
        value=of.value,
        low=np.where(finite, of.value - error, np.nan),
        high=np.where(finite, of.value + error, np.nan),
        keys=keys,
        largest_share=moments.largest_share,
        exact=np.zeros(groups, np.bool_),
        finite=finite,
        skewness=moments.skewness,
        deviates=sample.deviates,
    )


def _known(value: F64Array, finite: BoolArray) -> Interval:
    """Return answers without error, of no sampled keys."""
    bound, zeros = np.where(finite, value, np.nan), np.zeros(len(value))
    return Interval(value, bound, bound, zeros.astype(np.int64), zeros, finite, finite, zeros)


def _key_moments(sample: KeySample, of: Dual, totals: Sequence[int]) -> tuple[_Moments, I64Array]:
    """Return the moments of the residuals, and the number of keys that add something, shape (groups,)."""
    residuals = _Residuals.of(sample, of, totals)
    part = sample.part
    if part is not None:
        moments = residuals.moments(part.keys, part.share)
        # A part of the keys suffices unless heavy keys hide among the others. The fourth powers of all residuals decide
        # how far off the sum of squares can be; both bounds below, times the squares, are at least their sum.
        of_row = residuals.farthest(part) ** 2
        heaviest = float(part.most_rows) ** 2 * of_row
        by_row = of_row * (1 + of_row * part.fourth_powers / moments.squares)
        drawn = part.share < 1.0
        if (np.fmin(heaviest, by_row) <= _LIGHT * moments.squares * part.share)[drawn].all():
            largest = np.where(drawn, heaviest, moments.largest)
            seen = _adding(part.keys, totals) / part.share
            return replace(moments, largest=largest), seen.astype(np.int64)
    keys = sample.keys
    moments = residuals.moments(keys, np.ones(keys.groups))
    return moments, _adding(keys, totals).astype(np.int64)


def _adding(keys: Keys, totals: Sequence[int]) -> F64Array | I64Array:
    """Return how many keys of each group add something to any of these totals."""
    if 0 in totals:  # rows are counted, of which each key has some
        return keys.entries

    def chunk(start: int, stop: int) -> F64Array:
        adds = np.zeros(stop - start, np.bool_)
        for number in totals:
            adds |= keys.sums[start:stop, number] != 0
        return Runs.of(keys.group[start:stop]).sums(adds, keys.groups)

    found = map_chunks(chunk, len(keys.group), chunk_rows=max(CHUNK_ROWS, keys.groups))
    return np.sum(found, axis=0) if found else np.zeros(keys.groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """Sums over the residuals of all sampled keys, for every group."""

    squares: F64Array
    cubes: F64Array
    largest: F64Array

    @staticmethod
    def of(group: I64Array, residuals: Callable[[slice, Runs], F64Array], groups: int) -> _Moments:
        """Sum up residuals, which are made chunk by chunk: so they stay in the caches."""

        def chunk(start: int, stop: int) -> tuple[F64Array, F64Array, F64Array]:
            here, runs = slice(start, stop), Runs.of(group[start:stop])
            with np.errstate(invalid="ignore", over="ignore"):  # once more: this may be another thread
                residual = residuals(here, runs)
                squared = residual * residual
                squares, largest = runs.sums(squared, groups), runs.largest(squared, groups)
                squared *= residual
                return squares, runs.sums(squared, groups), largest

        found = map_chunks(chunk, len(group), chunk_rows=max(CHUNK_ROWS, groups))
        if not found:
            return _Moments(np.zeros(groups), np.zeros(groups), np.zeros(groups))
        squares, cubes, largest = (np.array(one) for one in zip(*found, strict=True))
        return _Moments(squares.sum(axis=0), cubes.sum(axis=0), largest.max(axis=0))

    def with_one_more(self, residual: F64Array) -> _Moments:
        """Return the moments as though a key of this residual were in the sample of each group."""
        squared = residual * residual
        return _Moments(
            self.squares + squared, self.cubes + squared * residual, np.maximum(self.largest, squared)
        )

    def error(self, probability: float) -> F64Array:
        """Return standard errors."""
        # Few samples of skewed values hold a heavy one. Those without it have a small estimate and a small error, so
        # that a plain interval misses more often than it should: it widens by the skewness of the estimate.
        squares = self.squares + UNSEEN * self.largest
        return np.sqrt((1 - probability) * squares) * (1 + self.skewness)

    @property
    def skewness(self) -> F64Array:
        """That of the estimate, without its sign."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = np.abs(self.cubes) / self.squares**1.5
        return np.nan_to_num(found, nan=0.0)

    @property
    def largest_share(self) -> F64Array:
        """What comes from one key; 1.0 of nothing: nothing is known of such a variance."""
        return np.divide(self.largest, self.squares, out=np.ones_like(self.squares), where=self.squares > 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Residuals:
    """What an answer changes by if a key counts once more, by its totals and its rows, for every group."""

    slopes: dict[int, F64Array]
    # By each row, of those that totals are calibrated to.
    mean: F64Array
    # None: they are not.
    known: Calibration | None

    @staticmethod
    def of(sample: KeySample, of: Dual, totals: Sequence[int]) -> _Residuals:
        known, mean = sample.calibration, np.zeros(len(sample.whole))
        if known is not None and known.sampled > 0:
            mean = sample.scale * np.einsum("gt,gt->g", of.slopes, sample.sampled) / known.sampled
        else:
            known = None
        return _Residuals({one: of.slopes[:, one] * sample.scale for one in totals}, mean, known)

    def moments(self, keys: Keys, share: F64Array) -> _Moments:
        """Return the moments of all sampled keys, of which these are a share of each group."""

        def residuals(here: slice, runs: Runs) -> F64Array:
            residual = np.zeros(runs.size)
            for total, slope in self.slopes.items():
                residual += runs.spread(slope) * keys.sums[here, total]
            if self.known is not None:
                residual -= runs.spread(self.mean) * keys.rows[here]
            return residual

        own, known = _Moments.of(keys.group, residuals, keys.groups), self.known
        own = _Moments(own.squares / share, own.cubes / share, own.largest)
        if known is None:
            return own
        # The calibration compares all rows: keys without a row in the group have a residual too, their rows times the
        # mean.
        squares, cubes = (
            np.maximum(0.0, all_ - here / share)
            for all_, here in zip((known.squares, known.cubes), keys.powers, strict=True)
        )
        mean = self.mean
        return _Moments(
            own.squares + mean**2 * squares,
            own.cubes - mean**3 * cubes,
            np.maximum(own.largest, mean**2 * np.minimum(known.largest, squares)),
        )

    def farthest(self, part: Part) -> F64Array:
        """Return how far from zero the residual of a sampled row may be, seen or not, in the group or not."""
        low = high = -self.mean
        for total, slope in self.slopes.items():
            ends = slope * part.least[:, total], slope * part.most[:, total]
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        found: F64Array = np.maximum(np.maximum(np.abs(low), np.abs(high)), np.abs(self.mean))
        return found


def quantile_interval(sample: KeySample, number: int, answer: Quantile, factor: float) -> Interval:
    """Return a quantile with its interval.

    The share of rows below the estimate is a smooth answer with a standard error; the quantiles at both ends of its
    interval bound the quantile (Woodruff). This needs no density at the quantile.
    """
    groups, rows = len(sample.whole), sample.values[number]
    if sample.probability == 1.0:
        return _known_quantile(rows, answer, groups)
    ordered = rows.sort(GROUP, "value")
    group = ordered[GROUP].to_numpy().astype(np.int64)
    value = ordered["value"].to_numpy()
    stands_for = np.where(ordered[WEIGHT].is_null().to_numpy(), 1.0, sample.scale)
    ranks = _Ranks(group, value, stands_for, groups)
    middle = ranks.at(np.full(groups, answer.level))
    below = (value <= middle[group]) - answer.level
    sampled = ordered.select(GROUP, WEIGHT).with_columns(pl.Series("residual", below)).drop_nulls(WEIGHT)
    by_key = sampled.group_by(GROUP, WEIGHT).agg(pl.col("residual").sum()).sort(GROUP)
    of_key = by_key[GROUP].to_numpy().astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = sample.scale * by_key["residual"].to_numpy() / ranks.total[of_key]
    moments = _Moments.of(of_key, lambda here, _: residual[here], groups)
    share = factor * moments.error(sample.probability)
    finite = Runs.of(group).sums(~np.isfinite(value), groups) == 0
    low, high = answer.level - share, answer.level + share
    return Interval(
        value=middle,
        low=np.where(finite & (low > 0), ranks.at(low), np.nan),
        high=np.where(finite & (high < 1), ranks.at(high), np.nan),
        keys=np.bincount(of_key, minlength=groups).astype(np.int64),
        largest_share=moments.largest_share,
        exact=np.zeros(groups, np.bool_),
        finite=finite,
        skewness=moments.skewness,
        deviates=sample.deviates,
    )


class _Ranks:
    """The distribution of weighted values in every group."""

    def __init__(self, group: I64Array, value: F64Array, weight: F64Array, groups: int) -> None:
        self.value, self.sums = value, np.cumsum(weight)
        self.total = Runs.of(group).sums(weight, groups)
        self.ends = np.searchsorted(group, np.arange(groups), side="right")
        self.starts = np.searchsorted(group, np.arange(groups), side="left")

    def at(self, share: F64Array) -> F64Array:
        """Return of each group the least value that at least this share of its weight does not exceed."""
        before = np.concatenate([np.zeros(1), self.sums])[self.starts]
        place = np.searchsorted(self.sums, before + np.clip(share, 0.0, 1.0) * self.total * (1 - 1e-12))
        inside = np.clip(place, self.starts, np.maximum(self.ends - 1, self.starts))
        found = np.full(len(share), np.nan)
        some = self.ends > self.starts
        found[some] = self.value[inside[some]]
        return found


def _known_quantile(rows: pl.DataFrame, answer: Quantile, groups: int) -> Interval:
    """Return what Polars says of all rows."""
    of = rows.group_by(GROUP).agg(pl.col("value").quantile(answer.level, answer.interpolation))
    value = np.full(groups, np.nan)
    value[of[GROUP].to_numpy().astype(np.int64)] = of["value"].to_numpy()
    return _known(value, np.ones(groups, np.bool_))
