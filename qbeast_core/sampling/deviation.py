"""Compare the rows of a sample with the counts of the log."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qbeast_core.sampling.sums import CountedKeys

# A difference with a smaller probability than this is a deviation.
MIN_CHANCE: Final = 0.001

# An unseen key with fewer rows than this share of the standard error of the row count does not shift an answer.
MIN_SHIFT: Final = 0.25

# The same for a sample of a given size, which may be much smaller than that of a promise.
MIN_SHIFT_OF_SAMPLE: Final = 0.1

_MAX_ERRORS: Final = NormalDist().inv_cdf(1 - MIN_CHANCE / 2)


# The squares that a sample explains have an error of their own. A difference of fewer errors is not a deviation.
_SQUARES_ERRORS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often keys repeat in the rows that samples are drawn from, by the tags of their files."""

    rows: float
    # Sum of `m_k * (m_k - 1)` over the keys, where m_k is the number of rows of a key, and its standard error.
    excess: float
    error: float = 0.0
    min_shift: float = MIN_SHIFT

    def among(self, rows: float) -> Repeats:
        """Return the repeats in a part of the rows: keys are assumed to match a filter as often as others."""
        share = min(rows / self.rows, 1.0) if self.rows else 1.0
        return replace(self, rows=rows, excess=self.excess * share**2, error=self.error * share**2)


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Row counts of a sample of keys, and tests whether the sample fits the whole table."""

    # Number of rows of the sampled keys, and the sum of the squared row counts of keys.
    rows: float
    squares: float
    # Probability of a key to be in the sample, in (0, 1].
    probability: float
    # Sum of `(n_k * (n_k - 1)) ** 2`.
    excess_squares: float = 0.0

    @staticmethod
    def of(sizes: CountedKeys, probability: float) -> SeenRows:
        """Return the row counts of the keys of a sample."""
        rows, squares, cubes, fourths = map(sizes.power, (1, 2, 3, 4))
        return SeenRows(rows, squares, probability, fourths - 2 * cubes + squares)

    @property
    def is_all(self) -> bool:
        """Whether the sample holds all keys, or none."""
        return self.probability in (0.0, 1.0)

    def lacks_keys(self, repeats: Repeats) -> bool:
        """Return whether an unseen key may hold enough rows to shift an answer.

        >>> seen = SeenRows(rows=1_000, squares=1_000, probability=0.1)
        >>> [seen.lacks_keys(Repeats(10_000, excess)) for excess in (400, 500**2)]
        [False, True]
        """
        if self.is_all:
            return False
        p, matching = self.probability, repeats.among(self.rows / self.probability)
        unexplained = matching.excess - (self.squares - self.rows) / p
        row_error = math.sqrt((1 - p) * self.squares) / p
        error = math.hypot(math.sqrt((1 - p) * self.excess_squares) / p, matching.error)
        return unexplained > _SQUARES_ERRORS * error and unexplained > (repeats.min_shift * row_error) ** 2

    def deviates(self, min_rows: float, max_rows: float | None = None) -> bool:
        """Return whether the number of sampled rows differs from the expected number by more than chance explains.

        >>> SeenRows(rows=980, squares=980, probability=0.1).deviates(10_000)
        False
        >>> SeenRows(rows=700, squares=700, probability=0.1).deviates(10_000)
        True
        >>> SeenRows(rows=700, squares=300_000, probability=0.1).deviates(10_000)  # one key has 500 of them
        False
        """
        p = self.probability
        if self.is_all:
            return False
        missing = p * min_rows - self.rows
        excess = self.rows - p * (min_rows if max_rows is None else max_rows)
        difference = max(missing, excess)
        # Each key has at least one row, also if no key was sampled.
        expected = p * min_rows if missing > excess else 0.0
        return difference > _MAX_ERRORS * math.sqrt((1 - p) * max(self.squares, expected))
