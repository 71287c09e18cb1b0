"""Samples as ranges of weights (format 6 and 10)."""

from __future__ import annotations

from dataclasses import dataclass

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


# The range of a read without a sample.
ALL_WEIGHTS = WeightRange(MIN_WEIGHT, MAX_WEIGHT + 1)
