"""When an interval is reliable, when an answer is near enough, and how much more to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.sampling.intervals import UNSEEN, Interval
from qbeast_core.space.arrays import BoolArray, F64Array

# Minimum number of sampled keys of a reliable interval: with fewer, the variance itself is too uncertain.
MIN_KEYS: Final = 100

# Maximum share of the variance from one key: above it, keys that matter may be missing from the sample.
MAX_SHARE: Final = 0.3

# Rounds stop at the first interval that is narrow enough, so they prefer samples whose error seems small.
# Intervals are wider by this factor to keep the promise all the same.
WIDENED: Final = 1.1

# Above this fraction everything is read: the answer is then exact, for at most twice the bytes.
_ALL: Final = 0.5

# Above this fraction, one more round up to `_ALL` adds little.
_NEARLY_ALL: Final = 0.4

# The required fraction comes from an estimated variance, so a little more is read.
_MARGIN: Final = 1.1

# Steps of the bisection between the fraction read and 1.0: enough for a thousandth.
_HALVINGS: Final = 16

_MIN_GROWTH, _MAX_GROWTH = 1.25, 200.0


@dataclass(frozen=True, slots=True)
class Target:
    """How far an answer may be off."""

    # As a share of the answer, above 0.
    relative: float | None = None
    # In its own unit, above 0. Where both are given, either is enough.
    absolute: float | None = None

    def width(self, values: F64Array) -> F64Array:
        """Return the half width that is near enough to each value; infinite where there is no target."""
        if self.relative is None and self.absolute is None:
            return np.full(len(values), np.inf)
        relative = np.abs(values) * (self.relative or 0.0)
        return np.fmax(relative, self.absolute or 0.0)


def is_reliable(found: Interval) -> BoolArray:
    """Return for each group whether its interval is exact, or rests on enough keys of which none dominates.

    No interval of a sample that deviates from the log is reliable: it lacks keys that matter.
    """
    bounded = np.isfinite(found.low) & np.isfinite(found.high)
    enough = (found.keys >= MIN_KEYS) & (found.largest_share <= MAX_SHARE)
    return found.exact | (bounded & enough & (not found.deviates))


def is_met(found: Interval, target: Target) -> BoolArray:
    """Return for each group whether its answer is reliable and near enough."""
    with np.errstate(invalid="ignore"):
        return is_reliable(found) & (found.exact | (found.half_width <= target.width(found.value)))


def next_fraction(
    fraction: float, found: Interval, target: Target, wanted: BoolArray, *, max_growth: float = _MAX_GROWTH
) -> float:
    """Return how much to read for an answer to be near enough in some groups; 1.0: everything.

    >>> one = Interval(np.array([100.0]), np.array([90.0]), np.array([110.0]), np.array([500]), np.zeros(1),
    ...     np.zeros(1, bool), np.ones(1, bool), np.zeros(1))
    >>> round(next_fraction(0.01, one, Target(0.05), np.ones(1, bool)), 3)  # half as wide: four times as much
    0.043
    """
    short = wanted & found.finite & ~is_met(found, target)
    if not short.any():
        return fraction
    if found.deviates:  # nothing tells where the missing keys are: read everything
        return min(max(1.0, fraction), max_growth * fraction)
    by_width = _MARGIN * _fraction_of_width(fraction, found, target, short)
    with np.errstate(divide="ignore"):
        by_keys = fraction * _MARGIN * MIN_KEYS / np.maximum(found.keys[short], 1)
    # Nobody knows how heavy the tail is: read as much again, and `_ALL` once before everything.
    again = _ALL if fraction <= _NEARLY_ALL < 2 * fraction else 2 * fraction
    by_share = np.where(found.largest_share[short] > MAX_SHARE, again, 0.0)
    by_keys = np.where(found.keys[short] < MIN_KEYS, by_keys, 0.0)
    needed = float(np.max([by_width, by_keys, by_share]))
    grown = min(max(needed, _MIN_GROWTH * fraction), max_growth * fraction)
    return grown if grown <= _ALL else 1.0


def _fraction_of_width(fraction: float, found: Interval, target: Target, short: BoolArray) -> F64Array:
    """Return the fractions at which intervals are narrow enough: errors, skewness and unseen keys fall together."""
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN, of an unknown width, asks for nothing
        wanted = (target.width(found.value) / found.half_width)[short]
    skewness, unseen = found.skewness[short], UNSEEN * found.largest_share[short]
    least, most = np.full(len(wanted), fraction), np.ones(len(wanted))
    for _ in range(_HALVINGS):
        middle = np.sqrt(least * most)
        share = np.sqrt((1 / middle - 1) / (1 / fraction - 1))
        share *= (1 + skewness * np.sqrt(fraction / middle)) / (1 + skewness)
        share *= np.sqrt((1 + unseen * fraction / middle) / (1 + unseen))
        is_wide = share > wanted
        least, most = np.where(is_wide, middle, least), np.where(is_wide, most, middle)
    return most
