"""Sum a batch of rows by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.sampling.key_rows import KeySizes, run_starts
from qbeast_core.sampling.recognise import TOTAL
from qbeast_core.sampling.sums import KEY, SHOWN, VALUE, WEIGHT, Sums, merged_keys, totals_of
from qbeast_core.support.joins import join_equal, own_column
from qbeast_core.support.sizing import sizing

# Approximate memory of a value: a 128-bit integer, or the view of a string.
_VALUE_BYTES: Final = 16

# The column with the number of matches of a key.
_MATCHES: Final = own_column("matches")

# How a row with or without a match is joined, as in Polars.
JoinHow: TypeAlias = Literal["left", "inner", "semi", "anti"]

# Sums of a billion longer decimals may not fit 128 bits; they are summed as floats, like integers of 128 bits.
_MAX_EXACT_DIGITS: Final = 29
_SHORT: Final = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class Lookup:
    """A frame that is joined to the rows."""

    frame: pl.DataFrame
    on: tuple[str, ...]
    how: JoinHow = "left"

    @cached_property
    def repeated(self) -> pl.DataFrame | None:
        """The keys with several matches, and their number; None if a row never becomes several rows."""
        if self.how in ("semi", "anti"):
            return None
        counts = self.frame.lazy().group_by(self.on).agg(pl.len().cast(pl.Int64).alias(_MATCHES))
        repeated = counts.filter(pl.col(_MATCHES) > 1).collect()
        return repeated if repeated.height else None


@dataclass(frozen=True, slots=True, eq=False)
class RowSums:
    """The expressions that sum a batch of rows; it can be pickled."""

    # Summed over rows, see `Aggregates.totals`.
    totals: tuple[pl.Expr, ...]
    quantiles: tuple[pl.Expr, ...]
    # Group expressions by column name.
    groups: Mapping[str, pl.Expr]
    condition: pl.Expr | None
    # Joined in this order.
    lookups: Sequence[Lookup]
    # Values of `Aggregates.centres`.
    centres: Mapping[str, float]
    # See `Aggregates.key` and `Aggregates.shown`.
    key: tuple[str, ...] = ()
    shown: tuple[pl.Expr, ...] = ()

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of groups."""
        return tuple(self.groups)

    def kept(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows that meet the condition, with the joined columns."""
        for lookup in self.lookups:
            rows = join_equal(rows, lookup.frame.lazy(), lookup.on, lookup.how)
        return rows if self.condition is None else rows.filter(self.condition)

    def pieces(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Split a batch, so that the joined rows of each piece need a bounded amount of memory."""
        matches = np.ones(frame.height, np.int64)
        row_bytes = frame.estimated_size() / max(frame.height, 1)
        for lookup in self.lookups:
            if lookup.repeated is not None:
                joined = join_equal(
                    frame.select(lookup.on), lookup.repeated, lookup.on, "left", maintain_order="left"
                )
                matches *= joined[_MATCHES].fill_null(1).to_numpy()
                row_bytes += lookup.frame.estimated_size() / lookup.frame.height
        max_rows = max(int(sizing().batch_bytes / max(row_bytes, 1.0)), 1)
        starts = run_starts((np.cumsum(matches) - 1) // max_rows).tolist()
        if len(starts) <= 1:
            yield frame
            return
        for start, end in pairwise([*starts, frame.height]):
            yield frame[start:end]

    def of(self, frame: pl.DataFrame, *, sizes: bool) -> Sums:
        """Sum up a batch."""
        totals = [expr.alias(f"{TOTAL}{index}") for index, expr in enumerate(self.totals)]
        values = [expr.alias(f"{VALUE}{index}") for index, expr in enumerate(self.quantiles)]
        names = [expr.meta.output_name() for expr in totals]
        centres = [pl.lit(number).alias(name) for name, number in self.centres.items()]
        has_weights = WEIGHT in frame.columns
        key = [] if has_weights else [pl.lit(0, pl.Int32).alias(WEIGHT)]
        groups_of = [expr.alias(name) for name, expr in self.groups.items()]
        summed = self.kept(frame.lazy()).with_columns(*centres, *key)
        summed = summed.with_columns(*totals, *values, *groups_of, *self._key_columns)
        types = summed.select(names).collect_schema()
        # A query instead of rows: only some keys need them, and new memory costs more than computing them again.
        entries = summed.select(WEIGHT, *self.by, *(_exact(name, types[name]) for name in names))
        groups = totals_of(entries, self.by, names)
        entries_bytes = int(groups[names[0]].sum()) * _VALUE_BYTES * len(entries.collect_schema())
        if not has_weights:
            entries, entries_bytes = pl.LazyFrame(schema=entries.collect_schema()), 0
        elif frame.estimated_size() > entries_bytes:
            collected = entries.collect()
            entries, entries_bytes = collected.lazy(), int(collected.estimated_size())
        no_rows = pl.DataFrame(schema=entries.select(WEIGHT, *self.by).collect_schema())
        value_rows = summed.select(WEIGHT, *self.by, *(expr.meta.output_name() for expr in values))
        # Polars sorts weights twice as fast as NumPy.
        weights = frame[WEIGHT].sort() if sizes and has_weights else pl.Series(dtype=pl.Int32)
        return Sums(
            groups=groups,
            scales=tuple(_scale(types[name]) for name in names),
            entries=entries,
            entries_bytes=entries_bytes,
            sizes=KeySizes(weights.to_numpy()),
            rows=value_rows.collect() if values else no_rows,
            keys=self._keys(summed) if self.key else pl.DataFrame(),
        )

    @property
    def _key_columns(self) -> list[pl.Expr]:
        """The columns of the key, and whether a row shows it."""
        key = [pl.col(name).alias(f"{KEY}{index}") for index, name in enumerate(self.key)]
        return [*key, *(expr.alias(f"{SHOWN}{index}") for index, expr in enumerate(self.shown))]

    def _keys(self, rows: pl.LazyFrame) -> pl.DataFrame:
        """Return the distinct keys of each group."""
        names = [expr.meta.output_name() for expr in self._key_columns]
        shown = pl.any_horizontal(f"{SHOWN}{index}" for index in range(len(self.shown)))
        return merged_keys(rows.select(WEIGHT, *self.by, *names).filter(shown))


def _exact(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return values in a type whose sums do not overflow, and are exact except for floats."""
    values = pl.col(name)
    if isinstance(dtype, _SHORT):
        return values.cast(pl.Int64)
    if isinstance(dtype, pl.Decimal):  # decimals take five times as long to sum by key
        is_long = dtype.precision > _MAX_EXACT_DIGITS
        return values.to_physical().cast(pl.Float64 if is_long else pl.Int128)
    return values.cast(pl.Int128 if dtype.is_integer() and dtype != pl.Int128() else pl.Float64)


def _scale(dtype: pl.DataType) -> float:
    """Return the unit of `_exact` values."""
    return 10.0**-dtype.scale if isinstance(dtype, pl.Decimal) else 1.0
