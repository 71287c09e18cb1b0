"""Candidate indexes of a table, and the one of which the filters open the fewest bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from qbeast_core.space.arrays import F64Array
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.table.advise.simulated import Opened
from qbeast_core.table.advise.stored import Encoder
from qbeast_core.table.advise.trial import ColumnSet, Index, Trial

# Number of best sets of one size to which further columns are added.
_EXTENDED: Final = 3

# Number of sets of one size that are compared by bytes, which takes longer than by shares.
_WEIGHED: Final = 8

_NOTICED: Final = 1e-9


class Candidates:
    """Indexes, each simulated once."""

    def __init__(self, trial: Trial, importance: F64Array, encoder: Encoder) -> None:
        self.trial, self._importance, self._encoder = trial, importance, encoder
        self._opened: dict[Index, Opened] = {}
        self._bytes: dict[Index, F64Array] = {}

    def search(
        self,
        options: Sequence[ColumnSpec],
        *,
        most: int,
        together: Callable[[ColumnSet], bool],
        by_bytes: bool = False,
    ) -> None:
        """Try single columns, and add further columns to the best sets, up to `most` columns.

        The best sets are those of which the filters open the smallest share, and with `by_bytes` also those of which
        they open the fewest bytes: tables of the same rows differ by up to a third in bytes. All pairs are tried then.
        """
        level: list[ColumnSet] = [(option,) for option in options]
        for _ in range(most):
            tried = {frozenset[ColumnSpec](index.columns) for index in self._opened}
            sets = {frozenset(columns): columns for columns in level if together(columns)}
            fresh = [Index(columns) for key, columns in sets.items() if key not in tried]
            for index in fresh:
                self._opened[index] = self.trial.opened(index, quickly=True)
            if not fresh:
                break
            ordered = sorted(fresh, key=self._expected_bytes if by_bytes else self.share_that_decides)
            best = ordered[:_EXTENDED]
            if by_bytes and len(ordered[0].columns) == 1:
                # All pairs: of many filters, each column serves one, and the best pair may be of any two.
                best = [index for index in ordered if (self._opened[index].shares < 1 - _NOTICED).any()]
                ordered = sorted(best or ordered[:1], key=self.mean_bytes)
            elif by_bytes:
                best += sorted(ordered[:_WEIGHED], key=self.mean_bytes)[:_EXTENDED]
            level = [(*index.columns, option) for index in dict.fromkeys(best) for option in options]

    def _expected_bytes(self, index: Index) -> float:
        """Return about the bytes that are opened, from the share and from the tables of the single columns."""
        alone = [Index((column,)) for column in index.columns]
        sizes = [self.mean_bytes(one) / self._mean_share(one) for one in alone if one in self._bytes]
        return self._mean_share(index) * (sum(sizes) / len(sizes) if sizes else 1.0)

    def _mean_share(self, index: Index) -> float:
        return max(float(self._opened[index].shares @ self._importance), _NOTICED)

    @property
    def by_bytes(self) -> list[Index]:
        """The indexes whose bytes are known, with the fewest bytes first."""
        return sorted(self._bytes, key=self.mean_bytes)

    def best(self, *, tie: float) -> Index:
        """Return the index with the fewest columns of all that cost at most `tie` times the minimum."""
        return self.best_of(self._opened, self.share_that_decides, tie=tie)

    def best_of(self, tried: Iterable[Index], cost: Callable[[Index], float], *, tie: float) -> Index:
        """Return the index with the fewest columns of those that cost at most `tie` times the minimum."""
        costs = {index: cost(index) for index in tried}
        limit = tie * min(costs.values()) + _NOTICED
        return min(
            (index for index, value in costs.items() if value <= limit), key=lambda i: _rank(i, costs[i])
        )

    def share_that_decides(self, index: Index) -> float:
        """Return the mean share that is opened by the filters for which indexes differ."""
        decide = self._differences > _NOTICED
        return float(self._opened[index].shares[decide] @ self._importance[decide])

    def share(self, columns: ColumnSet) -> float:
        """Return the mean share that all filters open."""
        return float(self.trial.opened(Index(columns)).shares @ self._importance)

    def bytes(self, index: Index) -> F64Array:
        """Return the bytes that each filter opens, shape (filters,)."""
        if index not in self._bytes:
            self._bytes[index] = self.trial.bytes_opened(index, self._encoder)
        return self._bytes[index]

    def mean_bytes(self, index: Index) -> float:
        """Return the mean of the bytes that the filters open."""
        return float(self.bytes(index) @ self._importance)

    @property
    def decides(self) -> bool:
        """Whether a filter opens more with one index than with another."""
        return bool((self._differences > _NOTICED).any())

    @property
    def _differences(self) -> F64Array:
        shares = np.array([opened.shares for opened in self._opened.values()])
        return np.asarray(np.ptp(shares, axis=0), np.float64)


def _rank(index: Index, cost: float) -> tuple[int, int, int, bool, float]:
    kinds = [column.kind for column in index.columns]
    named = len(kinds) - kinds.count("auto")
    return len(kinds), kinds.count("hashing"), named, index.cube_size is not None, cost
