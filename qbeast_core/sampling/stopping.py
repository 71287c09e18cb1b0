"""Decide whether an interval is reliable, whether an answer is precise enough, and how much more to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.sampling.confidence import UNSEEN, Interval
from qbeast_core.space.values import BoolArray, F64Array

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
