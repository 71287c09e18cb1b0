"""Compute sums and maxima of runs of equal group numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Positions of the members of each group in an array that is sorted by group."""

    # Number of the group of each run, ascending, shape (runs,).
    group: I64Array
    starts: I64Array
    size: int

    @staticmethod
    def of(groups: I64Array) -> Runs:
        """Find the runs of sorted group numbers.

        >>> runs = Runs.of(np.array([0, 0, 2]))
        >>> runs.sums(np.array([1.0, 2.0, 3.0]), 3), runs.largest(np.array([1.0, 2.0, 3.0]), 3)
        (array([3., 0., 3.]), array([2., 0., 3.]))
        >>> runs.spread(np.array([5.0, 6.0, 7.0]))
        array([5., 5., 7.])
        """
        starts = run_starts(groups)
        return Runs(groups[starts], starts, len(groups))

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
