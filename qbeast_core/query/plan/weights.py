"""Samples as ranges of weights (format 6 and 10)."""

from __future__ import annotations

from dataclasses import dataclass

from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT


@dataclass(frozen=True, slots=True)
class WeightRange:
    """The rows with ``from_ <= weight < to``."""

    # Smallest weight, in -2147483648 .. 2147483647.
    from_: int
    # End, excluded, in -2147483648 .. 2147483648: the last one takes weight 2147483647 in.
    to: int

    @property
    def last(self) -> int:
        """Largest weight taken; below `from_` when the range is empty."""
        return self.to - 1

    @property
    def is_full(self) -> bool:
        """Whether it takes every row."""
        return self.from_ == MIN_WEIGHT and self.to == MAX_WEIGHT + 1

    @property
    def probability(self) -> float:
        """How likely a key is to be in it: the share of all weights."""
        return max(self.to - self.from_, 0) / 2**32

    @property
    def is_empty(self) -> bool:
        """Whether it takes no row at all."""
        return self.from_ >= self.to


# What a read without a sample takes.
ALL_WEIGHTS = WeightRange(MIN_WEIGHT, MAX_WEIGHT + 1)
