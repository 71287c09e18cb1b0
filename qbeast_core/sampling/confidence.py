"""Intervals from a sample of keys: answers, errors, and whether they are reliable and precise enough.

The sample is a Poisson sample: each key is in it with the same probability f, with all of its rows. The residual of a
key is the change of the answer if the key counted once more: derivatives times its totals. The variance of the answer
is (1 - f) / f**2 times the sum of the squared residuals. The rows of one key come together, so squares are summed by
key: by row the variance would be too small wherever keys repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import polars as pl

from qbeast_core.sampling.key_sample import Calibration, Keys, KeySample, Part
from qbeast_core.sampling.recognise import Dual, Quantile, Smooth
from qbeast_core.sampling.sums import GROUP, WEIGHT, GroupRuns
from qbeast_core.space.values import BoolArray, F64Array, I64Array
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.grid import map_chunks

# Maximum relative variance of a sum of squares that is estimated from a part of the keys: a standard error of 5 %.
_MAX_PART_VARIANCE: Final = 1 / 400

# The heaviest key counts 4.7 times, once by itself and 3.7 times more. A sample that holds one such key may come from
# a table with several: where 4.7 are expected in a sample, 5 % of all samples hold one or none (Poisson). Without it,
# intervals of heavy-tailed values were too narrow in simulations, see docs/sampling.md.
UNSEEN: Final = 3.7

# Relative differences up to this size are rounding errors.
ROUNDING: Final = 1e-12

# An error of the keys of other groups below this fraction of the answer does not matter.
_MIN_ERROR: Final = 0.001


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """An answer for each group with its interval; each array has shape (groups,)."""

    value: F64Array
    low: F64Array
    high: F64Array
    keys: I64Array
    # Fraction of the variance from one key, in [0, 1].
    largest_share: F64Array
    # Whether the value has no error.
    exact: BoolArray
    # False if rows hold NaN or infinities, for which there is no bound.
    finite: BoolArray
    # Relative increase of standard errors, at least 0; it falls with the root of the number of sampled keys.
    skewness: F64Array
    # Whether the sample differs from the counts of the log by more than chance explains.
    deviates: bool = False

    @property
    def half_width(self) -> F64Array:
        """Maximum distance of the true value from the estimate; NaN without a bound."""
        return np.where(self.exact, 0.0, np.maximum(self.high - self.value, self.value - self.low))

    def of_groups(self, rows: I64Array) -> Interval:
        """Return the intervals of some groups, by their numbers."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "deviates"}
        return replace(self, **{name: array[rows] for name, array in arrays.items()})


def factor_of(confidence: float, *, answers: int = 1) -> float:
    """Return the half width of an interval in standard errors; for several answers at once, by Bonferroni.

    The normal distribution is precise enough: reliable intervals have at least 100 keys, for which Student's t differs
    by 1 %, and the skewness and the heaviest key widen an interval by more.

    >>> round(factor_of(0.95), 2), round(factor_of(0.95, answers=10), 2)
    (1.96, 2.81)
    """
    return NormalDist().inv_cdf(1 - (1 - confidence) / (2 * answers))


def interval_of(sample: KeySample, answer: Smooth | Quantile, factor: float) -> Interval:
    """Return an answer with its interval."""
    if isinstance(answer, Smooth):
        return smooth_interval(sample, answer, factor)
    return _quantile_interval(sample, answer, factor)


def smooth_interval(sample: KeySample, answer: Smooth, factor: float) -> Interval:
    """Return a function of totals with its interval.

    If totals are calibrated to a known number of rows, the residual of a key is reduced by its rows times the mean: a
    key with average rows does not change the answer.

    >>> import polars as pl
    >>> from qbeast_core.sampling.recognise import recognise
    >>> from qbeast_core.sampling.key_sample import Keys
    >>> aggregates = recognise({"n": pl.len()}, lambda expr: pl.Int64())
    >>> keys = KeySample(probability=0.1, groups=pl.DataFrame({"g": [0]}), whole=np.zeros((1, 1)),
    ...     sampled=np.array([[900.0]]), calibration=None, values={},
    ...     all_keys=lambda: Keys(np.zeros(900, np.int64), np.ones((900, 1)), np.zeros(900), 1))
    >>> interval = smooth_interval(keys, aggregates.answers[0], 2.0)
    >>> interval.value, interval.half_width.round(), interval.keys
    (array([9000.]), array([589.]), array([900]))
    """
    groups = len(sample.whole)
    finite: BoolArray = np.logical_and.reduce(np.isfinite(sample.totals[:, list(answer.totals)]), axis=1)
    is_counted = sample.ungrouped and sample.calibration is not None and set(answer.totals) <= {0}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        dual = answer.formula(Dual.inputs(sample.totals))
        if sample.probability == 1.0 or is_counted:
            return _exact(dual.value, finite)
        moments, keys = _key_moments(sample, dual, answer.totals)
        # The log has a bound farther from zero than all sampled rows: count such a row as if it were in the sample.
        # Small samples lack the few rows that hold much of a sum, and the other rows give no hint of them.
        for number in np.flatnonzero(sample.unseen).tolist():
            moments = moments.with_one_more(dual.slopes[:, number] * sample.unseen[number] * sample.scale)
        error = factor * moments.error(sample.probability)
        is_noise = error <= ROUNDING * np.abs(dual.value)  # of equal values: the variance is unknown
        error = np.where(is_noise, 0.0, error)
    return Interval(
        value=dual.value,
        low=np.where(finite, dual.value - error, np.nan),
        high=np.where(finite, dual.value + error, np.nan),
        keys=_decisive(sample, moments, keys, dual.value),
        largest_share=np.where(is_noise, 1.0, moments.largest_share),
        exact=np.zeros(groups, np.bool_),
        finite=finite,
        skewness=moments.skewness,
        # The number of sampled keys is binomial: a sample that lacks heavy keys does not lack distinct ones.
        deviates=sample.deviates and not set(answer.totals) <= set(sample.distinct),
    )


def _exact(value: F64Array, finite: BoolArray) -> Interval:
    """Return exact answers."""
    bound, zeros = np.where(finite, value, np.nan), np.zeros(len(value))
    return Interval(value, bound, bound, zeros.astype(np.int64), zeros, finite, finite, zeros)


def _key_moments(sample: KeySample, dual: Dual, totals: Sequence[int]) -> tuple[_Moments, I64Array]:
    """Return the moments of the residuals, and the number of keys with a contribution, shape (groups,)."""
    slopes = {total: dual.slopes[:, total] * sample.scales[total] for total in totals}
    mean, calibration = np.zeros(len(sample.whole)), sample.calibration
    if calibration is not None and calibration.sampled:
        for total in set(totals) - set(sample.distinct):
            mean += slopes[total] * sample.sampled[:, total] / calibration.sampled
    else:
        calibration = None
    part = sample.part
    if part is not None:
        moments = _moments_of(part.keys, part.share, slopes, mean, calibration)
        # A part of the keys is enough unless the others include heavy keys. The fourth powers of all residuals limit
        # the error of the sum of squares; both bounds below, times the squares, are at least the sum of fourth powers.
        row_squares = _farthest(part, slopes, mean) ** 2
        heaviest = float(part.max_rows) ** 2 * row_squares
        by_row = row_squares * (1 + row_squares * part.fourth_powers / moments.squares)
        is_partial = part.share < 1.0
        if (np.fmin(heaviest, by_row) <= _MAX_PART_VARIANCE * moments.squares * part.share)[is_partial].all():
            largest = np.where(is_partial, heaviest, moments.largest)
            key_count = _contributing(part.keys, totals) / part.share
            return replace(moments, largest=largest), key_count.astype(np.int64)
    keys = sample.keys
    moments = _moments_of(keys, np.ones(keys.groups), slopes, mean, calibration)
    return moments, _contributing(keys, totals).astype(np.int64)


def _decisive(sample: KeySample, moments: _Moments, keys: I64Array, value: F64Array) -> I64Array:
    """Return the number of keys that decide the error of each group: its own, or those of other groups if fewer.

    The count of a group that has nearly all rows is the known number minus the others.
    """
    calibration = sample.calibration
    if calibration is None:
        return keys
    part = sample.part
    inside = sample.keys.entries if part is None else part.keys.entries / part.share
    by_others = 2 * moments.outside > moments.squares
    with np.errstate(invalid="ignore"):
        error = np.sqrt((1 - sample.probability) * moments.outside)
        matters = error > _MIN_ERROR * np.abs(value)
    others = np.maximum(calibration.keys - inside, 0).astype(np.int64)
    return np.where(by_others & matters, np.minimum(keys, others), keys)


def _contributing(keys: Keys, totals: Sequence[int]) -> F64Array | I64Array:
    """Return the number of keys of each group with a contribution to any of the totals."""
    if 0 in totals:  # total 0 counts rows, and each key has rows
        return keys.entries

    def chunk(start: int, stop: int) -> F64Array:
        adds = np.zeros(stop - start, np.bool_)
        for number in totals:
            adds |= keys.sums[start:stop, number] != 0
        return GroupRuns.of(keys.group[start:stop]).sums(adds, keys.groups)

    counts = map_chunks(chunk, len(keys.group), chunk_rows=max(sizing().chunk_rows, keys.groups))
    return np.sum(counts, axis=0) if counts else np.zeros(keys.groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """Sums over the residuals of all sampled keys, for each group."""

    squares: F64Array
    cubes: F64Array
    largest: F64Array
    # The part of the squares from keys of other groups.
    outside: F64Array

    @staticmethod
    def of(group: I64Array, residuals: Callable[[slice, GroupRuns], F64Array], groups: int) -> _Moments:
        """Sum residuals, which are computed in chunks that fit the caches."""

        def chunk(start: int, stop: int) -> tuple[F64Array, F64Array, F64Array]:
            here, runs = slice(start, stop), GroupRuns.of(group[start:stop])
            with np.errstate(
                invalid="ignore", over="ignore"
            ):  # set again, because this may be another thread
                residual = residuals(here, runs)
                squared = residual * residual
                squares, largest = runs.sums(squared, groups), runs.largest(squared, groups)
                squared *= residual
                return squares, runs.sums(squared, groups), largest

        parts = map_chunks(chunk, len(group), chunk_rows=max(sizing().chunk_rows, groups))
        if not parts:
            return _Moments(*np.zeros((4, groups)))
        squares, cubes, largest = (np.array(arrays) for arrays in zip(*parts, strict=True))
        return _Moments(squares.sum(axis=0), cubes.sum(axis=0), largest.max(axis=0), np.zeros(groups))

    def with_one_more(self, residual: F64Array) -> _Moments:
        """Return the moments with one more key of this residual in each group."""
        squared = residual * residual
        return _Moments(
            self.squares + squared,
            self.cubes + squared * residual,
            np.maximum(self.largest, squared),
            self.outside,
        )

    def error(self, probability: float) -> F64Array:
        """Return standard errors."""
        # Few samples of skewed values include a heavy value. Samples without it have a small estimate and a small
        # error, so plain intervals would miss too often. They are widened by the skewness of the estimate.
        squares = self.squares + UNSEEN * self.largest
        return np.sqrt((1 - probability) * squares) * (1 + self.skewness)

    @property
    def skewness(self) -> F64Array:
        """Absolute skewness of the estimate."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            skewness = np.abs(self.cubes) / self.squares**1.5
        return np.nan_to_num(skewness, nan=0.0)

    @property
    def largest_share(self) -> F64Array:
        """Fraction of the variance from one key; 1.0 without variance, which is then unknown."""
        return np.divide(self.largest, self.squares, out=np.ones_like(self.squares), where=self.squares > 0)


def _moments_of(
    keys: Keys,
    share: F64Array,
    slopes: Mapping[int, F64Array],
    mean: F64Array,
    calibration: Calibration | None,
) -> _Moments:
    """Return the moments of all sampled keys; `keys` are a fraction `share` of each group.

    The residual of a key is its totals times the `slopes`, less its rows times the `mean` if totals are calibrated.
    """

    def residuals(here: slice, runs: GroupRuns) -> F64Array:
        residual = np.zeros(runs.size)
        for total, slope in slopes.items():
            residual += runs.spread(slope) * keys.sums[here, total]
        if calibration is not None:
            residual -= runs.spread(mean) * keys.rows[here]
        return residual

    moments = _Moments.of(keys.group, residuals, keys.groups)
    moments = replace(moments, squares=moments.squares / share, cubes=moments.cubes / share)
    if calibration is None:
        return moments
    # The calibration compares all rows: keys without rows in the group also have a residual, their rows times the
    # mean.
    squares, cubes = (
        np.maximum(0.0, total_power - power / share)
        for total_power, power in zip((calibration.squares, calibration.cubes), keys.powers, strict=True)
    )
    return _Moments(
        moments.squares + mean**2 * squares,
        moments.cubes - mean**3 * cubes,
        np.maximum(moments.largest, mean**2 * np.minimum(calibration.largest, squares)),
        mean**2 * squares,
    )


def _farthest(part: Part, slopes: Mapping[int, F64Array], mean: F64Array) -> F64Array:
    """Return the maximum distance from zero of the residual of any sampled row, in the group or not."""
    low = high = -mean
    for total, slope in slopes.items():
        ends = slope * part.min_values[:, total], slope * part.max_values[:, total]
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    farthest: F64Array = np.maximum(np.maximum(np.abs(low), np.abs(high)), np.abs(mean))
    return farthest


def _quantile_interval(sample: KeySample, answer: Quantile, factor: float) -> Interval:
    """Return a quantile with its interval.

    The fraction of rows below the estimate is a smooth answer with a standard error; the quantiles at both ends of its
    interval bound the quantile (Woodruff). This does not need the density at the quantile.
    """
    groups, rows = len(sample.whole), sample.values[answer.name]
    if sample.probability == 1.0:
        return _exact_quantile(rows, answer, groups)
    ordered = rows.sort(GROUP, "value")
    group = ordered[GROUP].to_numpy().astype(np.int64)
    value = ordered["value"].to_numpy()
    row_weight = np.where(ordered[WEIGHT].is_null().to_numpy(), 1.0, sample.scale)
    ranks = _Ranks(group, value, row_weight, groups)
    estimate = ranks.at(np.full(groups, answer.level))
    is_below = (value <= estimate[group]) - answer.level
    sampled = ordered.select(GROUP, WEIGHT).with_columns(pl.Series("residual", is_below)).drop_nulls(WEIGHT)
    residuals = sampled.group_by(GROUP, WEIGHT).agg(pl.col("residual").sum()).sort(GROUP)
    key_group = residuals[GROUP].to_numpy().astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = sample.scale * residuals["residual"].to_numpy() / ranks.total[key_group]
    moments = _Moments.of(key_group, lambda here, _: residual[here], groups)
    share = factor * moments.error(sample.probability)
    finite = GroupRuns.of(group).sums(~np.isfinite(value), groups) == 0
    low, high = answer.level - share, answer.level + share
    return Interval(
        value=estimate,
        low=np.where(finite & (low > 0), ranks.at(low), np.nan),
        high=np.where(finite & (high < 1), ranks.at(high), np.nan),
        keys=np.bincount(key_group, minlength=groups).astype(np.int64),
        largest_share=moments.largest_share,
        exact=np.zeros(groups, np.bool_),
        finite=finite,
        skewness=moments.skewness,
        deviates=sample.deviates,
    )


class _Ranks:
    """The distribution of weighted values in each group."""

    def __init__(self, group: I64Array, value: F64Array, weight: F64Array, groups: int) -> None:
        self.value, self.sums = value, np.cumsum(weight)
        self.total = GroupRuns.of(group).sums(weight, groups)
        self.ends = np.searchsorted(group, np.arange(groups), side="right")
        self.starts = np.searchsorted(group, np.arange(groups), side="left")

    def at(self, share: F64Array) -> F64Array:
        """Return the smallest value of each group such that at least this fraction of its weight is not above it."""
        before = np.concatenate([np.zeros(1), self.sums])[self.starts]
        index = np.searchsorted(self.sums, before + np.clip(share, 0.0, 1.0) * self.total * (1 - 1e-12))
        position = np.clip(index, self.starts, np.maximum(self.ends - 1, self.starts))
        values = np.full(len(share), np.nan)
        has_rows = self.ends > self.starts
        values[has_rows] = self.value[position[has_rows]]
        return values


def _exact_quantile(rows: pl.DataFrame, answer: Quantile, groups: int) -> Interval:
    """Compute an exact quantile of all rows by Polars."""
    quantiles = rows.group_by(GROUP).agg(pl.col("value").quantile(answer.level, answer.interpolation))
    value = np.full(groups, np.nan)
    value[quantiles[GROUP].to_numpy().astype(np.int64)] = quantiles["value"].to_numpy()
    return _exact(value, np.ones(groups, np.bool_))


# Minimum number of sampled keys of a reliable interval: with fewer, the variance itself is too uncertain.
MIN_KEYS: Final = 100

# Maximum fraction of the variance from one key: above it, the sample may lack important keys.
MAX_SHARE: Final = 0.3

# Rounds stop at the first interval that is narrow enough, so they prefer samples whose error seems small.
# This factor widens intervals to keep their confidence.
WIDENED: Final = 1.1

# Above this fraction, all rows are read: the answer is then exact, for at most twice the bytes.
_MAX_FRACTION: Final = 0.5

# Above this fraction, one more round up to `_MAX_FRACTION` adds little.
_MAX_HALF_STEP: Final = 0.4

# The required fraction comes from an estimated variance, so a little more is read.
_MARGIN: Final = 1.1

# Steps of the bisection between the fraction read and 1.0: enough for a thousandth.
_STEPS: Final = 16

_MIN_GROWTH, _MAX_GROWTH = 1.25, 200.0


@dataclass(frozen=True, slots=True)
class Target:
    """Maximum error of an answer."""

    # Fraction of the answer, above 0.
    relative: float | None = None
    # In the unit of the answer, above 0. If both are set, either is enough.
    absolute: float | None = None

    def of_exact(self) -> Target:
        """Return the target whose relative error is a fraction of the exact answer, which may be below the estimate.

        Estimates of groups that they chose as the largest are too large more often than too small.
        """
        relative = None if self.relative is None else self.relative / (1 + self.relative)
        return Target(relative, self.absolute)

    def width(self, values: F64Array) -> F64Array:
        """Return the maximum half width for each value; infinite without a target."""
        if self.relative is None and self.absolute is None:
            return np.full(len(values), np.inf)
        relative = np.abs(values) * (self.relative or 0.0)
        return np.fmax(relative, self.absolute or 0.0)


def is_reliable(interval: Interval) -> BoolArray:
    """Return whether the interval of each group is exact, or has enough keys and no dominant key.

    Intervals of a sample that deviates from the log are not reliable: the sample lacks important keys.
    """
    bounded = np.isfinite(interval.low) & np.isfinite(interval.high)
    enough = (interval.keys >= MIN_KEYS) & (interval.largest_share <= MAX_SHARE)
    return interval.exact | (bounded & enough & (not interval.deviates))


def is_met(interval: Interval, target: Target) -> BoolArray:
    """Return whether the answer of each group is reliable and precise enough."""
    with np.errstate(invalid="ignore"):
        return is_reliable(interval) & (
            interval.exact | (interval.half_width <= target.width(interval.value))
        )


def next_fraction(
    fraction: float, interval: Interval, target: Target, groups: BoolArray, *, max_growth: float = _MAX_GROWTH
) -> float:
    """Return the fraction to read for precise answers in `groups`; 1.0 for all rows.

    >>> interval = Interval(np.array([100.0]), np.array([90.0]), np.array([110.0]), np.array([500]), np.zeros(1),
    ...     np.zeros(1, bool), np.ones(1, bool), np.zeros(1))
    >>> round(next_fraction(0.01, interval, Target(0.05), np.ones(1, bool)), 3)  # half as wide: four times as much
    0.043
    """
    short = groups & interval.finite & ~is_met(interval, target)
    if not short.any():
        return fraction
    if interval.deviates:  # the missing keys can be anywhere: read all rows
        return min(max(1.0, fraction), max_growth * fraction)
    by_width = _MARGIN * _fraction_of_width(fraction, interval, target, short)
    with np.errstate(divide="ignore"):
        by_keys = fraction * _MARGIN * MIN_KEYS / np.maximum(interval.keys[short], 1)
    # The weight of the tail is unknown: double the sample, and try `_MAX_FRACTION` once before reading all rows.
    more = _MAX_FRACTION if fraction <= _MAX_HALF_STEP < 2 * fraction else 2 * fraction
    by_share = np.where(interval.largest_share[short] > MAX_SHARE, more, 0.0)
    by_keys = np.where(interval.keys[short] < MIN_KEYS, by_keys, 0.0)
    needed = float(np.max([by_width, by_keys, by_share]))
    grown = min(max(needed, _MIN_GROWTH * fraction), max_growth * fraction)
    return grown if grown <= _MAX_FRACTION else 1.0


def _fraction_of_width(fraction: float, interval: Interval, target: Target, short: BoolArray) -> F64Array:
    """Return the fractions at which intervals are narrow enough; errors, skewness and unseen keys decrease together."""
    with np.errstate(divide="ignore", invalid="ignore"):  # an unknown width is NaN and needs no more rows
        groups = (target.width(interval.value) / interval.half_width)[short]
    skewness, unseen = interval.skewness[short], UNSEEN * interval.largest_share[short]
    low, high = np.full(len(groups), fraction), np.ones(len(groups))
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        share = np.sqrt((1 / middle - 1) / (1 / fraction - 1))
        share *= (1 + skewness * np.sqrt(fraction / middle)) / (1 + skewness)
        share *= np.sqrt((1 + unseen * fraction / middle) / (1 + unseen))
        is_wide = share > groups
        low, high = np.where(is_wide, middle, low), np.where(is_wide, high, middle)
    return high
