"""A batch of rows as sums for each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.sampling.aggregates import TOTAL
from qbeast_core.sampling.sums import VALUE, WEIGHT, KeySizes, Sums, totals_of
from qbeast_core.space.arrays import I32Array
from qbeast_core.tree.parallel import workers

# Memory of a 128-bit integer, or of the view of a text: of a value, about.
_VALUE_BYTES: Final = 16

_SHORT: Final = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A frame that says more of rows, each of which meets one row of it at most."""

    frame: pl.DataFrame
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RowSums:
    """What is done with each batch of rows; it pickles."""

    # What is summed over rows, see `Aggregates.totals`.
    totals: tuple[pl.Expr, ...]
    quantiles: tuple[pl.Expr, ...]
    # What rows are grouped by, and what its columns are called.
    groups: Mapping[str, pl.Expr]
    condition: pl.Expr | None
    lookup: Lookup | None
    # The numbers that `Aggregates.centres` asks for.
    centres: Mapping[str, float]

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of groups."""
        return tuple(self.groups)

    def kept(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that count, with the columns that are joined to them."""
        return self._kept(frame.lazy()).collect()

    def _kept(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        if self.lookup is not None:
            rows = rows.join(self.lookup.frame.lazy(), on=list(self.lookup.on), how="left")
        return rows if self.condition is None else rows.filter(self.condition)

    def of(self, frame: pl.DataFrame, *, sizes: bool) -> Sums:
        """Sum up a batch."""
        totals = [expr.alias(f"{TOTAL}{at}") for at, expr in enumerate(self.totals)]
        values = [expr.alias(f"{VALUE}{at}") for at, expr in enumerate(self.quantiles)]
        names = [one.meta.output_name() for one in totals]
        centres = [pl.lit(number).alias(name) for name, number in self.centres.items()]
        by_key = WEIGHT in frame.columns
        one_key = [] if by_key else [pl.lit(0, pl.Int32).alias(WEIGHT)]
        groups_of = [expr.alias(name) for name, expr in self.groups.items()]
        summed = self._kept(frame.lazy()).with_columns(*centres, *one_key)
        summed = summed.with_columns(*totals, *values, *groups_of)
        types = summed.select(names).collect_schema()
        # A query, not its rows: they are asked for of some keys, and memory that is new costs more than they do.
        entries = summed.select(WEIGHT, *self.by, *(_exact(name, types[name]) for name in names))
        with workers(1, rows=frame.height, calls=1 + sizes) as pool:  # adding up does not fill all cores
            weights = pool.submit(_weights, frame) if sizes else None
            groups = totals_of(entries, self.by, names)
        entries_bytes = int(groups[names[0]].sum()) * _VALUE_BYTES * len(entries.collect_schema())
        if not by_key:
            entries, entries_bytes = pl.LazyFrame(schema=entries.collect_schema()), 0
        elif frame.estimated_size() > entries_bytes:
            made = entries.collect()
            entries, entries_bytes = made.lazy(), int(made.estimated_size())
        no_rows = pl.DataFrame(schema=entries.select(WEIGHT, *self.by).collect_schema())
        of_values = summed.select(WEIGHT, *self.by, *(one.meta.output_name() for one in values))
        return Sums(
            groups=groups,
            scales=tuple(_scale(types[name]) for name in names),
            entries=entries,
            entries_bytes=entries_bytes,
            sizes=KeySizes(_NO_WEIGHTS if weights is None else weights.result()),
            rows=of_values.collect() if values else no_rows,
        )


_NO_WEIGHTS: Final = np.zeros(0, np.int32)


def _weights(frame: pl.DataFrame) -> I32Array:
    """Return the weights of rows, ascending."""
    if WEIGHT not in frame.columns:
        return _NO_WEIGHTS
    return frame[WEIGHT].sort(multithreaded=False).to_numpy()  # twice as fast as NumPy's


def _exact(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return values in a type in which sums are exact where they can be, and do not overflow."""
    values = pl.col(name)
    if isinstance(dtype, _SHORT):
        return values.cast(pl.Int64)
    if isinstance(dtype, pl.Decimal):
        return values.to_physical().cast(pl.Int128)  # summed by key, decimals take five times as long
    return values.cast(pl.Int128 if dtype.is_integer() else pl.Float64)


def _scale(dtype: pl.DataType) -> float:
    """Return what the unit of `_exact` values is."""
    return 10.0**-dtype.scale if isinstance(dtype, pl.Decimal) else 1.0
