"""Candidate sets of columns for an index, and the set with which the filters open the fewest bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from qbeast_core.space.arrays import F64Array
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.table.write.trial import Trial

# Columns to index together.
ColumnSet: TypeAlias = tuple[ColumnSpec, ...]

# Number of best sets of one size to which further columns are added.
_EXTENDED: Final = 3

_NOTICED: Final = 1e-9


class Candidates:
    """Sets of columns, each tried once."""

    def __init__(self, trial: Trial, importance: F64Array) -> None:
        self._trial, self._importance = trial, importance
        self._tried: dict[ColumnSet, F64Array] = {}

    def search(
        self, options: Sequence[ColumnSpec], *, most: int, together: Callable[[ColumnSet], bool]
    ) -> None:
        """Try single columns, and add further columns to the best sets, up to `most` columns."""
        level: list[ColumnSet] = [(option,) for option in options]
        for _ in range(most):
            tried = set(map(frozenset[ColumnSpec], self._tried))
            sets = {frozenset(columns): columns for columns in level if together(columns)}
            fresh = [columns for key, columns in sets.items() if key not in tried]
            for columns in fresh:
                self.opened(columns)
            best = sorted(fresh, key=self.cost)[:_EXTENDED]
            level = [(*columns, option) for columns in best for option in options]

    def best(self, *, tie: float) -> ColumnSet:
        """Return the set with the fewest columns of all sets that cost at most `tie` times the minimum."""
        limit = tie * min(map(self.cost, self._tried)) + _NOTICED
        return min((columns for columns in self._tried if self.cost(columns) <= limit), key=self._rank)

    def cost(self, columns: ColumnSet) -> float:
        """Return the mean share that is opened by the filters for which sets differ."""
        decide = self._differences > _NOTICED
        return float(self._tried[columns][decide] @ self._importance[decide])

    def opened(self, columns: ColumnSet) -> float:
        """Return the mean share that all filters open. A new set is tried first."""
        if columns not in self._tried:
            self._tried[columns] = self._trial.shares(columns)
        return float(self._tried[columns] @ self._importance)

    @property
    def decides(self) -> bool:
        """Whether a filter opens more with one set than with another."""
        return bool((self._differences > _NOTICED).any())

    @property
    def _differences(self) -> F64Array:
        shares = np.array(list(self._tried.values()))
        return np.asarray(np.ptp(shares, axis=0), np.float64)

    def _rank(self, columns: ColumnSet) -> tuple[int, int, float]:
        return len(columns), sum(column.kind == "hashing" for column in columns), self.cost(columns)
