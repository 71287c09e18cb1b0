"""Rows of keys: runs of equal values in sorted arrays, row counts of keys, and their comparison with the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from qbeast_core.space.values import BoolArray, F64Array, I32Array, I64Array

# Up to this many rows per key on average, keys are repeated and sorted: `argsort` is three times slower.
_MAX_MEAN_ROWS: Final = 2

# A difference with a smaller probability than this is a deviation.
MIN_CHANCE: Final = 0.001

# An unseen key with fewer rows than this share of the standard error of the row count does not shift an answer.
MIN_SHIFT: Final = 0.25

# The same for a sample of a given size, which may be much smaller than that of a promise.
MIN_SHIFT_OF_SAMPLE: Final = 0.1

_MAX_ERRORS: Final = NormalDist().inv_cdf(1 - MIN_CHANCE / 2)


# The squares that a sample explains have an error of their own. A difference of fewer errors is not a deviation.
_SQUARES_ERRORS: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class GroupRuns:
    """Positions of the members of each group in an array that is sorted by group."""

    # Number of the group of each run, ascending, shape (runs,).
    group: I64Array
    starts: I64Array
    size: int

    @staticmethod
    def of(groups: I64Array) -> GroupRuns:
        """Find the runs of sorted group numbers.

        >>> runs = GroupRuns.of(np.array([0, 0, 2]))
        >>> runs.sums(np.array([1.0, 2.0, 3.0]), 3), runs.largest(np.array([1.0, 2.0, 3.0]), 3)
        (array([3., 0., 3.]), array([2., 0., 3.]))
        >>> runs.spread(np.array([5.0, 6.0, 7.0]))
        array([5., 5., 7.])
        """
        starts = run_starts(groups)
        return GroupRuns(groups[starts], starts, len(groups))

    def sums(self, values: F64Array | BoolArray, groups: int) -> F64Array:
        """Return the sum of each of `groups` groups; 0.0 without members."""
        result = np.zeros(groups)
        if self.size:
            result[self.group] = np.add.reduceat(values, self.starts, dtype=np.float64)
        return result

    def largest(self, values: F64Array, groups: int) -> F64Array:
        """Return the maximum of each group for values of at least 0; 0.0 without members."""
        result = np.zeros(groups)
        if self.size:
            result[self.group] = np.maximum.reduceat(values, self.starts)
        return result

    def spread(self, group_values: F64Array) -> F64Array:
        """Return the value of the group of each member."""
        return np.repeat(group_values[self.group], np.diff(np.append(self.starts, self.size)))


def run_starts(ordered: I32Array | I64Array) -> I64Array:
    """Return the first position of each distinct value in a sorted array."""
    is_start = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_start[1:])
    return np.flatnonzero(is_start)


@dataclass(frozen=True, slots=True, eq=False)
class KeySizes:
    """Rows of each key, including rows that a filter drops."""

    # Shape (entries,); ascending in each part.
    weight: I32Array
    # Number of rows of each entry; None for one each.
    rows: I64Array | None = None

    @staticmethod
    def concat(parts: Sequence[KeySizes]) -> KeySizes:
        """Concatenate parts; a key may be in several."""
        weights = np.concatenate([part.weight for part in parts])
        if all(part.rows is None for part in parts):
            return KeySizes(weights)
        rows = [np.ones(len(part.weight), np.int64) if part.rows is None else part.rows for part in parts]
        return KeySizes(weights, np.concatenate(rows))

    @property
    def size_bytes(self) -> int:
        """Memory in bytes."""
        return self.weight.nbytes + (0 if self.rows is None else self.rows.nbytes)

    def by_key(self) -> KeySizes:
        """Return each key once, ascending."""
        return KeySizes(*self._each())

    def _each(self) -> tuple[I32Array, I64Array]:
        """Return each key once, ascending, and all its rows."""
        if self.rows is None:
            return np.unique(self.weight, return_counts=True)
        order = np.argsort(self.weight, kind="stable")
        ordered = self.weight[order]
        starts = run_starts(ordered)
        return ordered[starts], np.add.reduceat(self.rows[order], starts)

    def counted(self) -> CountedKeys:
        """Count the rows of each key."""
        rows = self.rows
        if rows is not None and rows.sum() > _MAX_MEAN_ROWS * len(rows):
            keys, counts = self._each()
            is_repeated = counts > 1
            return CountedKeys(keys[is_repeated], counts[is_repeated], int((~is_repeated).sum()))
        weights = self.weight if rows is None else np.repeat(self.weight, rows)
        repeated = repeats_in(np.sort(weights, kind="stable"))  # a stable sort merges sorted parts
        starts = run_starts(repeated)
        counts = np.diff(starts, append=len(repeated)) + 1  # the first row of a key is not a repeat
        return CountedKeys(repeated[starts], counts, len(weights) - int(counts.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class CountedKeys:
    """Rows of each key."""

    # Distinct keys with several rows, ascending, shape (keys,).
    weight: I32Array
    rows: I64Array
    singles: int

    @property
    def largest(self) -> int:
        """Rows of the heaviest key; 0 without keys."""
        return int(self.rows.max(initial=min(self.singles, 1)))

    def power(self, exponent: int) -> float:
        """Return the sum of the row counts of all keys, raised to a power."""
        return self.singles + float((self.rows.astype(np.float64) ** exponent).sum())

    def rows_of(self, weight: I32Array) -> F64Array:
        """Return the number of rows of each key, shape (entries,); other keys count as one row."""
        rows = np.ones(len(weight))
        entries, position = among(weight, self.weight)
        rows[entries] = self.rows[position]
        return rows


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


def repeats_in(ordered: I32Array) -> I32Array:
    """Return the repeats of values in a sorted array."""
    repeats: I32Array = ordered[1:][ordered[1:] == ordered[:-1]]
    return repeats


def among(weight: I32Array, values: I32Array) -> tuple[I64Array, I64Array]:
    """Return the entries whose weights are in a sorted array, and their positions there.

    Few weights match, so a test of their upper halves excludes most entries at a tenth of the cost of a search.
    """
    halves = np.zeros(1 << 16, np.bool_)
    halves[(values >> 16) + (1 << 15)] = True
    entries = np.flatnonzero(halves[(weight >> 16) + (1 << 15)])
    position = np.searchsorted(values, weight[entries])
    is_member = (
        values[np.minimum(position, len(values) - 1)] == weight[entries] if len(values) else entries > 0
    )
    return entries[is_member], position[is_member]
