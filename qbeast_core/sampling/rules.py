"""When an interval is believed, when an answer is near enough, and how much more to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.sampling.intervals import UNSEEN, Interval
from qbeast_core.space.arrays import BoolArray, F64Array

# Sampled keys of a group from which on its interval is believed.
MIN_KEYS: Final = 100

# Of a variance may come from one key: of more, the sample may lack the keys that matter.
MAX_SHARE: Final = 0.3

# How much wider intervals are where the sample grew until they were narrow enough.
WIDENED: Final = 1.1

# A fraction from which on everything is read: the answer is exact then, for at most twice the bytes.
_ALL: Final = 0.5

# A fraction from which on reading as far as `_ALL` tells little.
_NEARLY_ALL: Final = 0.4

# What a fraction is read beyond the one that the variance asks for, since that is estimated too.
_MARGIN: Final = 1.1

# By which that fraction is found to a thousandth, between the one that was read and everything.
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
    """Tell of each group whether its interval is believed: exact, or of enough keys of which none rules the rest.

    Of a sample that deviates from what is known of all rows none is believed: it lacks keys that matter.
    """
    bounded = np.isfinite(found.low) & np.isfinite(found.high)
    enough = (found.keys >= MIN_KEYS) & (found.largest_share <= MAX_SHARE)
    return found.exact | (bounded & enough & (not found.deviates))


def is_met(found: Interval, target: Target) -> BoolArray:
    """Tell of each group whether its answer is believed and near enough."""
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
    if found.deviates:  # where the keys lie that it lacks is not known
        return min(max(1.0, fraction), max_growth * fraction)
    by_width = _MARGIN * _fraction_of_width(fraction, found, target, short)
    with np.errstate(divide="ignore"):
        by_keys = fraction * _MARGIN * MIN_KEYS / np.maximum(found.keys[short], 1)
    # How heavy a tail is, nobody knows: as much again is read, and looked at; at last before everything is.
    again = _ALL if fraction <= _NEARLY_ALL < 2 * fraction else 2 * fraction
    by_share = np.where(found.largest_share[short] > MAX_SHARE, again, 0.0)
    by_keys = np.where(found.keys[short] < MIN_KEYS, by_keys, 0.0)
    needed = float(np.max([by_width, by_keys, by_share]))
    grown = min(max(needed, _MIN_GROWTH * fraction), max_growth * fraction)
    return grown if grown <= _ALL else 1.0


def _fraction_of_width(fraction: float, found: Interval, target: Target, short: BoolArray) -> F64Array:
    """Return the fractions at which widths are enough: they fall as more is read, and what widens them falls too."""
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
