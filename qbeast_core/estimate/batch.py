"""A batch of rows as sums for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from qbeast_core.estimate.aggregates import TOTAL
from qbeast_core.estimate.sample import VALUE, WEIGHT, Sums

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
        if self.lookup is not None:
            frame = frame.join(self.lookup.frame, on=list(self.lookup.on), how="left")
        return frame if self.condition is None else frame.filter(self.condition)

    def of(self, frame: pl.DataFrame, *, sizes: bool) -> Sums:
        """Sum up a batch.

        Parameters
        ----------
        frame : polars.DataFrame
            Rows with the columns that are looked at, and `WEIGHT` if keys are told apart.
        sizes : bool
            Whether the rows of each key are counted, those included that do not count.
        """
        if WEIGHT not in frame.columns:
            frame = frame.with_columns(pl.lit(0, pl.Int32).alias(WEIGHT))
        kept = self.kept(frame).with_columns(
            pl.lit(number).alias(name) for name, number in self.centres.items()
        )
        totals = [expr.alias(f"{TOTAL}{at}") for at, expr in enumerate(self.totals)]
        values = [expr.alias(f"{VALUE}{at}") for at, expr in enumerate(self.quantiles)]
        rows = kept.select(WEIGHT, *self.by, *totals, *values)
        names: Sequence[str] = [f"{TOTAL}{at}" for at in range(len(totals))]
        scales = tuple(_scale(rows.schema[name]) for name in names)
        rows = rows.with_columns(_exact(name, rows.schema[name]) for name in names)
        counted = (frame if sizes else frame.head(0)).select(WEIGHT, pl.lit(1, pl.Int64).alias("rows"))
        return Sums(
            keys=_summed(rows.select(WEIGHT, *self.by, *names), (WEIGHT, *self.by)),
            sizes=_summed(counted, (WEIGHT,)),
            rows=rows.select(WEIGHT, *self.by, *(f"{VALUE}{at}" for at in range(len(values)))).head(
                rows.height if values else 0
            ),
            scales=scales,
        )


def _summed(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return sums by key; rows whose weight is that of no other, which most are, are sums already."""
    alone = rows[WEIGHT].is_unique()
    others = rows.filter(~alone).group_by(by).agg(pl.exclude(by).sum())
    return pl.concat([rows.filter(alone).with_columns(pl.exclude(by).fill_null(0)), others])


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
