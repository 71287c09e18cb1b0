"""Answers of any function of rows, with intervals by a jackknife that leaves out groups of keys.

The variance of a function of the sample is estimated from its values without each of G groups of keys: (G - 1) / G
times the sum of their squared deviations from their mean. This holds for smooth functions of averages, such as ratios,
correlations and regression coefficients. It fails for functions that grow with the number of rows, and for functions
that a few rows decide. The code of a function does not show either, so its values on parts of the sample are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.sampling.confidence import MAX_SHARE, MIN_KEYS, ROUNDING, UNSEEN, Interval
from qbeast_core.sampling.sums import GROUP, WEIGHT
from qbeast_core.space.values import F64Array, I32Array, I64Array
from qbeast_core.tree.keys import mixed

# Number of parts of the sample, some groups each, on which a function must return about the same value.
PARTS: Final = 8

# Minimum number of groups of keys: of fewer, one often has much of the variance by chance.
MIN_REPLICATES: Final = 4 * PARTS

# Maximum shift from the parts to the whole sample, in standard errors. In simulations, the median shift of ratios,
# correlations and slopes is 0.05 to 0.35. The shift of a sum is most of its value.
_MAX_SHIFT: Final = 1.0

# Minimum fraction of different values among the replicates: with fewer, most groups of keys do not matter.
_MIN_DIFFERENT: Final = 0.5

# Changes the bits of weights: then the group of a key does not depend on its place in the order of weights, nor on
# other uses of `mixed`.
_SALT: Final = np.uint32(0x5BD1E995)

_NO_NUMBER: Final = "the function returned NaN or an infinity for all rows or for a part of them"


@dataclass(frozen=True, slots=True, eq=False)
class Replicates:
    """The numbers that a function returned for a sample and for parts of it."""

    # For all rows, shape (answers,).
    values: F64Array
    # For all rows without one group of keys, shape (groups, answers).
    without: F64Array
    # For the rows of each part, shape (PARTS, answers).
    parts: F64Array


@dataclass(frozen=True, slots=True, eq=False)
class Jackknifed:
    """An answer of a function. The arrays of the interval have one item."""

    interval: Interval
    # Why the answer is not reliable. None: it is.
    reason: str | None


def replicates_of(
    function: Callable[[pl.DataFrame], F64Array], rows: pl.DataFrame, groups: int
) -> Replicates:
    """Call a function for all rows, for all rows without each group of keys, and for parts.

    `rows` has the columns of the function and `WEIGHT`. The rows of a group are contiguous, so that no row is copied.

    >>> rows = pl.DataFrame({"x": range(1_000), WEIGHT: pl.Series(range(1_000), dtype=pl.Int32)})
    >>> replicates = replicates_of(lambda frame: np.array([frame["x"].sum()]), rows, 64)
    >>> replicates.without.shape, replicates.values == replicates.parts.sum(axis=0)
    ((64, 1), array([ True]))
    """
    group = groups_of(rows[WEIGHT].to_numpy(), groups)
    ordered = rows.drop(WEIGHT).with_columns(pl.Series(GROUP, group)).sort(GROUP)
    edges = np.searchsorted(ordered[GROUP].to_numpy(), np.arange(groups + 1)).tolist()
    ordered = ordered.drop(GROUP)
    parts = np.searchsorted(np.arange(groups) * PARTS // groups, np.arange(PARTS + 1)).tolist()
    return Replicates(
        values=function(ordered),
        without=np.array(
            [function(pl.concat([ordered[:start], ordered[end:]])) for start, end in pairwise(edges)]
        ),
        parts=np.array(
            [function(ordered[edges[first] : edges[following]]) for first, following in pairwise(parts)]
        ),
    )


def groups_of(weights: I32Array, groups: int) -> I64Array:
    """Return the number of the group of each key, which does not depend on the order of weights.

    >>> groups_of(np.array([1, 2, 2, 3], dtype=np.int32), 64).tolist()
    [39, 17, 17, 42]
    """
    bits = mixed(weights.view(np.uint32) ^ _SALT)
    return (bits % np.uint32(groups)).astype(np.int64)


def student_factor(confidence: float, degrees: int, *, answers: int = 1) -> float:
    """Return the half width of an interval in standard errors by Student's t; for several answers, by Bonferroni.

    The expansion of Cornish and Fisher is precise to a thousandth from 15 degrees of freedom on.

    >>> round(student_factor(0.95, 63), 3), round(student_factor(0.99, 15), 3)
    (1.998, 2.946)
    """
    z = NormalDist().inv_cdf(1 - (1 - confidence) / (2 * answers))
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def exact(value: float) -> Jackknifed:
    """Return an answer from all rows."""
    is_finite = np.isfinite(value)
    interval = replace(_interval(value, 0.0), exact=np.array([is_finite]), finite=np.array([is_finite]))
    return Jackknifed(interval, None if is_finite else _NO_NUMBER)


def without_bound(value: float, keys: int) -> Jackknifed:
    """Return an answer from a sample with too few keys for a jackknife."""
    reason = f"{keys} keys were sampled, and at least {MIN_KEYS} are needed"
    return Jackknifed(replace(_interval(value, np.nan), keys=np.array([keys])), reason)


def jackknife(
    replicates: Replicates, answer: int, *, factor: float, probability: float, keys: int, deviates: bool
) -> Jackknifed:
    """Return an answer, given by its number, with its interval.

    `factor` is the half width in standard errors, `probability` that of a key to be in the sample, and `keys` the
    number of sampled keys. `deviates`: the sample differs from the log by more than chance explains.

    >>> x = np.random.default_rng(1).normal(10, 1, (64, 100))
    >>> means = Replicates(
    ...     values=np.array([x.mean()]),
    ...     without=(x.sum() - x.sum(axis=1, keepdims=True)) / 6_300,
    ...     parts=x.reshape(8, 800).mean(axis=1, keepdims=True),
    ... )
    >>> mean = jackknife(means, 0, factor=2.0, probability=0.01, keys=6_400, deviates=False)
    >>> mean.reason, 0.02 < mean.interval.half_width.item() < 0.05  # about 2 / sqrt(6_400)
    (None, True)
    """
    value, without, parts = (
        numbers[..., answer] for numbers in (replicates.values, replicates.without, replicates.parts)
    )
    if not all(np.isfinite(numbers).all() for numbers in (value, without, parts)):
        interval = replace(_interval(float(value), np.nan), finite=np.zeros(1, np.bool_))
        return Jackknifed(interval, _NO_NUMBER)
    changes = _Changes.of(without - value, float(value))
    # As for other answers, intervals are wider if few keys decide, see `confidence`.
    error = float(np.sqrt((1 - probability) * changes.variance * (1 + UNSEEN * changes.largest)))
    shift = float(parts.mean() - value)
    reason = None
    if abs(shift) > _MAX_SHIFT * error:
        reason = (
            f"it depends on the number of rows, as a sum or a maximum does: {value:.4g} for the sample, and on average "
            f"{parts.mean():.4g} for {PARTS} parts of it"
        )
    elif changes.different < _MIN_DIFFERENT:
        reason = "most groups of keys do not change it, or all of them by the same amount"
    elif deviates:
        reason = "the sample lacks keys with many rows, or has too many"
    # The change from a part of the sample to the sample may repeat from the sample to the table.
    half_width = factor * error * (1 + changes.skewness) + abs(shift)
    interval = replace(
        _interval(float(value), half_width),
        keys=np.array([keys]),
        largest_share=np.array([changes.largest]),
        skewness=np.array([changes.skewness]),
        deviates=reason is not None,  # a larger sample does not help: all rows are needed
    )
    if reason is None and changes.largest > MAX_SHARE:
        reason = f"one group of keys has more than {MAX_SHARE:.0%} of the variance"
    return Jackknifed(interval, reason)


def _interval(value: float, half_width: float) -> Interval:
    values, zeros = np.array([value]), np.zeros(1)
    return Interval(
        value=values,
        low=np.where(np.isfinite(values), values - half_width, np.nan),
        high=np.where(np.isfinite(values), values + half_width, np.nan),
        keys=zeros.astype(np.int64),
        largest_share=zeros,
        exact=np.zeros(1, np.bool_),
        finite=np.ones(1, np.bool_),
        skewness=zeros,
    )


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of an answer when groups of keys are left out, one at a time."""

    variance: float
    # Fraction of the variance from one group.
    largest: float
    # Absolute skewness of the answer.
    skewness: float
    # Fraction of different changes.
    different: float

    @staticmethod
    def of(changes: F64Array, value: float) -> _Changes:
        """Sum up the changes of an answer with this value."""
        groups = len(changes)
        changes = np.where(np.abs(changes) <= ROUNDING * abs(value), 0.0, changes)
        deviations = changes - changes.mean()
        squares = deviations**2
        total = float(squares.sum())
        different = len(np.unique(changes)) / groups
        if total == 0:
            return _Changes(0.0, 1.0, 0.0, different)
        skewness = abs(float((squares * deviations).sum())) / total**1.5
        return _Changes((groups - 1) / groups * total, float(squares.max()) / total, skewness, different)
