"""Sets of columns that a table could be indexed by, and the one of which its filters open least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from qbeast_core.space.arrays import F64Array
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.table.write.trial import Trial

# Columns to index together.
ColumnSet: TypeAlias = tuple[ColumnSpec, ...]

# Best sets of one size that further columns are added to.
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
        """Try single columns, and add further ones to the best sets as long as they have fewer than `most`."""
        level: list[ColumnSet] = [(one,) for one in options]
        for _ in range(most):
            tried = {frozenset(one) for one in self._tried}
            fresh = {frozenset(one): one for one in level if frozenset(one) not in tried and together(one)}
            for one in fresh.values():
                self.opened(one)
            best = sorted(fresh.values(), key=self.cost)[:_EXTENDED]
            level = [(*base, one) for base in best for one in options]

    def best(self, *, tie: float) -> ColumnSet:
        """Return the set of fewest columns among those that cost up to `tie` times the least."""
        most = tie * min(map(self.cost, self._tried)) + _NOTICED
        return min((one for one in self._tried if self.cost(one) <= most), key=self._rank)

    def cost(self, columns: ColumnSet) -> float:
        """Return what the filters open in the mean, of those that open more of one set than of another."""
        decide = self._differences > _NOTICED
        return float(self._tried[columns][decide] @ self._importance[decide])

    def opened(self, columns: ColumnSet) -> float:
        """Return what all filters open in the mean of a set, tried now if it was not."""
        if columns not in self._tried:
            self._tried[columns] = self._trial.shares(columns)
        return float(self._tried[columns] @ self._importance)

    @property
    def decides(self) -> bool:
        """Whether any filter opens more of one set than of another."""
        return bool((self._differences > _NOTICED).any())

    @property
    def _differences(self) -> F64Array:
        shares = np.array(list(self._tried.values()))
        return np.asarray(np.ptp(shares, axis=0), np.float64)

    def _rank(self, columns: ColumnSet) -> tuple[int, int, float]:
        return len(columns), sum(one.kind == "hashing" for one in columns), self.cost(columns)
