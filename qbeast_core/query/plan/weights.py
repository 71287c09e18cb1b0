"""Samples as ranges of weights (format 6 and 10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.space.arrays import BoolArray, I32Array
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT


@dataclass(frozen=True, slots=True)
class WeightRange:
    """The rows with ``from_ <= weight < to``."""

    # Smallest weight, in -2147483648 .. 2147483647.
    from_: int
    # Exclusive end, in -2147483648 .. 2147483648; the maximum includes weight 2147483647.
    to: int

    @property
    def last(self) -> int:
        """Largest weight in the range; below `from_` if the range is empty."""
        return self.to - 1

    @property
    def is_full(self) -> bool:
        """Whether the range holds all rows."""
        return self.from_ == MIN_WEIGHT and self.to == MAX_WEIGHT + 1

    @property
    def probability(self) -> float:
        """Probability that a key is in the range: the fraction of all weights."""
        return max(self.to - self.from_, 0) / 2**32

    @property
    def is_empty(self) -> bool:
        """Whether the range holds no row."""
        return self.from_ >= self.to


@dataclass(frozen=True, slots=True, eq=False)
class KeyChoice:
    """The rows of some keys only, or of all keys but these."""

    # Weights of the keys, ascending.
    weights: I32Array
    only: bool

    def mask(self, weights: I32Array) -> BoolArray:
        """Return which rows are chosen, given their weights.

        >>> keys = KeyChoice(np.array([3, 5], dtype=np.int32), only=False)
        >>> keys.mask(np.array([5, 4], dtype=np.int32))
        array([False,  True])
        """
        mask: BoolArray = np.isin(weights, self.weights, invert=not self.only)
        return mask


# The range of a read without a sample.
ALL_WEIGHTS = WeightRange(MIN_WEIGHT, MAX_WEIGHT + 1)
