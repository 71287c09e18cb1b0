"""Whether what was sampled can be chance, by what is known of all rows without a sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

__all__ = ["LEAST_CHANCE", "SeenRows"]

LEAST_CHANCE: Final = 0.001
"""Of samples whose keys are all as heavy as those seen, how many deviate as far as is still believed."""

_MATTERS: Final = 0.25
"""Of the standard error of their number: so many rows of one key shift an answer little beside what chance does."""

_FARTHEST: Final = NormalDist().inv_cdf(1 - LEAST_CHANCE / 2)


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Rows of a sample of keys, and how far their number may vary if the keys that were not seen are like these.

    Attributes
    ----------
    rows, squares : float
        Rows of the sampled keys, and the sum of the squares of the rows of each.
    probability : float
        Of a key to be in the sample, in (0, 1].
    """

    rows: float
    squares: float
    probability: float

    @property
    def is_all(self) -> bool:
        """Whether there is nothing that the sample could lack, or nothing in it."""
        return self.probability in (0.0, 1.0)

    def lacks_keys(self, squares: float) -> bool:
        """Tell whether a key that is not in the sample may have so many rows that its absence matters.

        Parameters
        ----------
        squares : float
            The sum of the squares of the rows of each key of all that was sampled from, which is known.

        Examples
        --------
        >>> SeenRows(rows=1_000, squares=1_000, probability=0.1).lacks_keys(10_400)
        False
        >>> SeenRows(rows=1_000, squares=1_000, probability=0.1).lacks_keys(10_000 + 500**2)
        True
        """
        unexplained = squares - self.squares / self.probability if self.probability else 0.0
        error = math.sqrt((1 - self.probability) * self.squares) / (self.probability or 1.0)
        return not self.is_all and math.sqrt(max(unexplained, 0.0)) > _MATTERS * error

    def deviates(self, least: float, most: float | None = None) -> bool:
        """Tell whether chance does not explain these rows: so many are missing or too many that heavy keys must be.

        Parameters
        ----------
        least : float
            Rows that there are at least in all that was sampled from.
        most : float, optional
            Rows that there are at most; by default as many as at least.

        Examples
        --------
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
        missing = p * least - self.rows
        excess = self.rows - p * (least if most is None else most)
        off = max(missing, excess)
        # Each key has a row at least, also where no key was seen.
        expected = p * least if missing > excess else 0.0
        return off > _FARTHEST * math.sqrt((1 - p) * max(self.squares, expected))
