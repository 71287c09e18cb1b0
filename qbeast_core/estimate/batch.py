"""A batch of rows as sums for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.estimate.aggregates import TOTAL
from qbeast_core.estimate.sums import VALUE, WEIGHT, KeySizes, Sums, totals_of
from qbeast_core.space.arrays import I32Array

__all__ = ["Lookup", "RowSums"]

_SHORT: Final = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A frame that says more of rows, each of which meets one row of it at most.

    Attributes
    ----------
    frame : polars.DataFrame
        Each value of `on` once.
    on : tuple of str
        Columns that both have.
    """

    frame: pl.DataFrame
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RowSums:
    """What is done with each batch of rows; it pickles.

    Attributes
    ----------
    totals : tuple of polars.Expr
        What is summed over rows, see `Aggregates.totals`.
    quantiles : tuple of polars.Expr
        Values that quantiles are of.
    by : tuple of str
        Columns of groups.
    condition : polars.Expr or None
        Rows that count.
    lookup : Lookup or None
        Joined before.
    centres : mapping of str to float
        The numbers that `Aggregates.centres` asks for.
    """

    totals: tuple[pl.Expr, ...]
    quantiles: tuple[pl.Expr, ...]
    by: tuple[str, ...]
    condition: pl.Expr | None
    lookup: Lookup | None
    centres: Mapping[str, float]

    def kept(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that count, with the columns that are joined to them."""
        return self._kept(frame.lazy()).collect()

    def _kept(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        if self.lookup is not None:
            rows = rows.join(self.lookup.frame.lazy(), on=list(self.lookup.on), how="left")
        return rows if self.condition is None else rows.filter(self.condition)

    def of(self, frame: pl.DataFrame, *, sizes: bool) -> Sums:
        """Sum up a batch.

        Parameters
        ----------
        frame : polars.DataFrame
            Rows with the columns that are looked at, and `WEIGHT` if keys are told apart.
        sizes : bool
            Whether the rows of each key are counted, those included that do not count.
        """
        totals = [expr.alias(f"{TOTAL}{at}") for at, expr in enumerate(self.totals)]
        values = [expr.alias(f"{VALUE}{at}") for at, expr in enumerate(self.quantiles)]
        names = [one.meta.output_name() for one in totals]
        centres = [pl.lit(number).alias(name) for name, number in self.centres.items()]
        weight = [WEIGHT] if WEIGHT in frame.columns else []
        summed = self._kept(frame.lazy()).with_columns(centres).with_columns(*totals, *values)
        types = summed.select(names).collect_schema()
        exact = (_exact(name, types[name]) for name in names)
        # In one query, so that of the rows that count nothing is copied but what is asked for.
        kept = summed.select(*weight, *self.by, *exact, *(one.meta.output_name() for one in values)).collect()
        rows = kept.select(*weight, *self.by, *names)
        by_key = pl.DataFrame(schema={WEIGHT: pl.Int32, **rows.schema}) if not weight else rows
        return Sums(
            groups=totals_of(rows, self.by, names),
            scales=tuple(_scale(types[name]) for name in names),
            entries=by_key,
            sizes=KeySizes(_weights(frame) if sizes else _NO_WEIGHTS),
            rows=_values(kept, self.by, values),
        )


_NO_WEIGHTS: Final = np.zeros(0, np.int32)


def _weights(frame: pl.DataFrame) -> I32Array:
    return frame[WEIGHT].to_numpy() if WEIGHT in frame.columns else _NO_WEIGHTS


def _values(kept: pl.DataFrame, by: Sequence[str], values: list[pl.Expr]) -> pl.DataFrame:
    """Return the rows that quantiles are of."""
    weight = pl.col(WEIGHT) if WEIGHT in kept.columns else pl.lit(0, pl.Int32).alias(WEIGHT)
    rows = kept if values else kept.clear()
    return rows.select(weight, *by, *(one.meta.output_name() for one in values))


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
