"""Stretches of equal numbers: sums and maxima of groups whose members lie together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Where each group's members lie, in an array of them in the order of groups."""

    # Number of the group of each run, ascending, shape (runs,).
    group: I64Array
    starts: I64Array
    size: int

    @staticmethod
    def of(groups: I64Array) -> Runs:
        """Find runs.

        >>> runs = Runs.of(np.array([0, 0, 2]))
        >>> runs.sums(np.array([1.0, 2.0, 3.0]), 3), runs.largest(np.array([1.0, 2.0, 3.0]), 3)
        (array([3., 0., 3.]), array([2., 0., 3.]))
        >>> runs.spread(np.array([5.0, 6.0, 7.0]))
        array([5., 5., 7.])
        """
        starts = run_starts(groups)
        return Runs(groups[starts], starts, len(groups))

    def sums(self, values: F64Array | BoolArray, groups: int) -> F64Array:
        """Return the sum over each group, of so many groups; 0.0 without members."""
        found = np.zeros(groups)
        if self.size:
            found[self.group] = np.add.reduceat(values, self.starts, dtype=np.float64)
        return found

    def largest(self, values: F64Array, groups: int) -> F64Array:
        """Return the largest value of each group, of values above 0; 0.0 without members."""
        found = np.zeros(groups)
        if self.size:
            found[self.group] = np.maximum.reduceat(values, self.starts)
        return found

    def spread(self, of_group: F64Array) -> F64Array:
        """Return for each member what its group has."""
        return np.repeat(of_group[self.group], np.diff(np.append(self.starts, self.size)))


def run_starts(ordered: I32Array | I64Array) -> I64Array:
    """Return where each value begins among sorted ones."""
    fresh = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return np.flatnonzero(fresh)
