"""Compare the rows of a sample with the counts of the log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

# A difference with a smaller probability than this is a deviation.
MIN_CHANCE: Final = 0.001

# An unseen key with fewer rows than this share of the standard error of the row count does not shift an answer.
_MIN_SHIFT: Final = 0.25

_MAX_ERRORS: Final = NormalDist().inv_cdf(1 - MIN_CHANCE / 2)


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Row counts of a sample of keys, and tests whether the sample fits the whole table."""

    # Number of rows of the sampled keys, and the sum of the squared row counts of keys.
    rows: float
    squares: float
    # Probability of a key to be in the sample, in (0, 1].
    probability: float

    @property
    def is_all(self) -> bool:
        """Whether the sample holds all keys, or none."""
        return self.probability in (0.0, 1.0)

    def lacks_keys(self, squares: float) -> bool:
        """Return whether an unseen key may hold enough rows to shift an answer.

        >>> SeenRows(rows=1_000, squares=1_000, probability=0.1).lacks_keys(10_400)
        False
        >>> SeenRows(rows=1_000, squares=1_000, probability=0.1).lacks_keys(10_000 + 500**2)
        True
        """
        unexplained = squares - self.squares / self.probability if self.probability else 0.0
        error = math.sqrt((1 - self.probability) * self.squares) / (self.probability or 1.0)
        return not self.is_all and math.sqrt(max(unexplained, 0.0)) > _MIN_SHIFT * error

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
