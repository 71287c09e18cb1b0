"""Profile of columns: number and spread of their values, and which columns have the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.space.arrays import F64Array, I64Array
from qbeast_core.table.data.foreign_schema import lost_columns

_BINS: Final = 64
# Quantiles of the range that a filter is assumed to have if no queries are given.
_WINDOW: Final = 0.45, 0.55

# From this share of distinct values on, a column identifies rows, and is rarely filtered by ranges.
_LIKE_IDS: Final = 0.95

# From this rank correlation on, two columns have nearly the same order.
_FOLLOWS: Final = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Profile of the columns of rows."""

    names: list[str]
    # Number of distinct values of each column, including null, shape (columns,).
    distinct: I64Array
    # Shape (columns,). The spread is the entropy of equal bins, divided by its maximum.
    null_share: F64Array
    spread: F64Array
    # Absolute rank correlation of each two columns, in [0, 1], shape (columns, columns).
    correlation: F64Array
    others: list[str]
    rows: int

    @staticmethod
    def of(rows: pl.DataFrame) -> Profile:
        """Compute the profile of rows."""
        others = lost_columns(rows.columns, rows.schema)
        names = [name for name in rows.columns if name not in others]
        if not names:
            types = dict(rows.schema)
            msg = f"no column can be indexed: {types}. Numbers, dates, timestamps and strings can."
            raise InvalidColumnsError(msg, columns=rows.columns)
        ranks = pl.col(names).rank("average").fill_null(0.5)
        order = rows.select((ranks - 0.5) / rows.height).to_numpy()
        bins = (order * _BINS).astype(np.int64)
        shares = [np.bincount(column, minlength=_BINS) / rows.height for column in bins.T]
        entropies = np.array([-(share[share > 0] * np.log2(share[share > 0])).sum() for share in shares])
        spreads = order.std(axis=0)
        centred = np.divide(order - order.mean(axis=0), spreads, out=np.zeros_like(order), where=spreads > 0)
        return Profile(
            names=names,
            distinct=np.array([rows[name].n_unique() for name in names]),
            null_share=np.array([rows[name].null_count() / rows.height for name in names]),
            spread=entropies / np.log2(_BINS),
            correlation=np.abs(centred.T @ centred) / rows.height,
            others=list(others),
            rows=rows.height,
        )

    @property
    def evenest(self) -> list[str]:
        """Columns by decreasing importance without queries: evenly spread ones first, ids last."""
        return [self.names[at] for at in np.argsort(-self._importance, kind="stable")]

    def importance(self, names: Sequence[str]) -> F64Array:
        """Return the importance of columns without queries, with sum 1."""
        importance = self._importance[[self.names.index(name) for name in names]]
        return importance / np.float64(importance.sum())

    @property
    def _importance(self) -> F64Array:
        like_ids = self.distinct >= _LIKE_IDS * self.rows
        return np.maximum(self.spread * np.where(like_ids, 0.2, 1.0), 1e-9)

    def follows(self, name: str, leaders: Sequence[str]) -> str | None:
        """Return the first of other columns that has nearly the same order, so that both divide alike."""
        own = self.correlation[self.names.index(name)]
        near = (leader for leader in leaders if own[self.names.index(leader)] >= _FOLLOWS and leader != name)
        return next(near, None)


def window(values: pl.Series) -> pl.Expr:
    """Return a filter on a column that keeps about a tenth of its values, in the middle of their order."""
    values = values.drop_nulls().sort()
    if not len(values):
        return pl.col(values.name).is_null()
    first, last = (pl.lit(values[int(len(values) * at)], values.dtype) for at in _WINDOW)
    return pl.col(values.name).is_between(first, last)
