"""A sample of keys: totals of its groups, totals of rows that were read whole, and sums of each sampled key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.query.plan.weights import WeightRange
from qbeast_core.sampling.aggregates import TOTAL, Aggregates, Quantile
from qbeast_core.sampling.deviation import SeenRows
from qbeast_core.sampling.runs import Runs
from qbeast_core.sampling.sums import (
    GROUP,
    VALUE,
    WEIGHT,
    CountedKeys,
    KeySizes,
    KeySums,
    Sums,
    common_groups,
    numbers_of,
)
from qbeast_core.space.arrays import BoolArray, F64Array, I64Array

# Sampled rows whose keys give a good enough variance if none of them is heavy.
_PART_ROWS: Final = 1 << 16

# A part is used from this many times as many sampled rows on.
_WORTH_PART: Final = 2

# Groups with fewer rows in the part use all of their keys.
_SMALL_ROWS: Final = 2_000

# Maximum number of such groups: with more, the part is not much smaller than the sample.
_MAX_SMALL_GROUPS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The known number of rows, and that of the sample."""

    # Of the population.
    rows: int
    sampled: float
    # Sums of the squares and of the cubes of the rows of each sampled key.
    squares: float
    cubes: float
    largest: float


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class Keys:
    """Totals of each sampled key in each group."""

    # Number of the group, ascending, shape (entries,).
    group: I64Array
    sums: F64Array
    # Rows of the key in all groups, shape (entries,); zeros without calibration.
    rows: F64Array
    groups: int

    @cached_property
    def entries(self) -> I64Array:
        """Number of keys of each group, shape (groups,)."""
        return np.bincount(self.group, minlength=self.groups).astype(np.int64)

    @cached_property
    def powers(self) -> tuple[F64Array, F64Array]:
        """Sums of the squares and of the cubes of the rows of the keys of each group, shape (groups,)."""
        runs, squared = Runs.of(self.group), self.rows * self.rows
        squares = runs.sums(squared, self.groups)
        squared *= self.rows
        return squares, runs.sums(squared, self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some of the sampled keys, drawn by their weights, and bounds of the others."""

    # Some, or all, of each group.
    keys: Keys
    # Probability of a sampled key to be in the part, in (0, 1], shape (groups,).
    share: F64Array
    # Bounds of what one sampled row adds to each total, shape (groups, totals).
    least: F64Array
    most: F64Array
    most_rows: int
    # Sum of the fourth powers of the row counts of keys with several rows.
    fourth_powers: float


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class KeySample:
    """A sample of keys by group, with totals of the rows that were read whole."""

    # Of each key to be in the sample, in (0, 1].
    probability: float
    # One row a group, in order.
    groups: pl.DataFrame
    # Totals of rows that were read whole, shape (groups, totals).
    whole: F64Array
    # Totals of sampled rows, shape (groups, totals).
    sampled: F64Array
    # Returns all sampled keys; called only if a part of them is not enough.
    every: Callable[[], Keys]
    # None: the number of rows is not known, or not used.
    calibration: Calibration | None
    # For each quantile the rows that count: `GROUP`, `WEIGHT` (null: read whole), `value`.
    values: tuple[pl.DataFrame, ...]
    # None: all keys are used.
    part: Part | None = None
    # Whether the only group has all rows of `calibration`.
    ungrouped: bool = False
    # For each total the value of a known row that is not in the sample, shape (totals,); 0.0: none is known.
    unseen: F64Array = field(default_factory=lambda: np.zeros(0))
    # Whether the sample differs from the counts of the log by more than chance explains.
    deviates: bool = False

    @property
    def scale(self) -> float:
        """Number of rows that a sampled row represents."""
        known = self.calibration
        if known is None or known.sampled == 0 or self.probability == 1.0:
            return 1.0 / self.probability
        return known.rows / known.sampled

    @property
    def totals(self) -> F64Array:
        """Estimated totals, shape (groups, totals)."""
        found = self.whole + self.scale * self.sampled
        if self.ungrouped and self.calibration is not None and self.probability < 1.0:
            found[:, 0] = self.whole[:, 0] + self.calibration.rows  # also where no row is in the sample
        return found

    @cached_property
    def keys(self) -> Keys:
        """All sampled keys."""
        return self.every()

    @staticmethod
    def of(
        aggregates: Aggregates,
        by: Sequence[str],
        sampled: Sums,
        whole: Sums,
        *,
        probability: float,
        known_rows: int | None,
        filtered: bool,
        counted: bool = False,
        bounds: tuple[int, int] | None = None,
        squares: float | None = None,
        farthest: Callable[[], Mapping[int, float]] = dict,
        weights: WeightRange | None = None,
    ) -> KeySample:
        """Return the sample of some sums.

        `known_rows` is the number of rows that were sampled from (None: not compared), of those that match if
        `counted`; `bounds` are the least and the most where it is not known. `squares` is the sum over all keys of
        their squared row counts (infinite: unknown heavy keys), `farthest` the largest magnitude of each total.
        """
        groups, (of_sampled, of_whole) = common_groups([sampled, whole], by)
        everything = not by and not filtered
        rows = _placed(sampled.totals(), of_sampled, groups.height)
        least, most = (_placed(one, of_sampled, groups.height) for one in sampled.extremes())
        sizes = sampled.sizes.counted()
        looked_at = _KeyLookup(sampled, groups, tuple(by), sizes, known_rows is not None)
        part = None if weights is None else looked_at.part(rows[:, 0], weights, least, most)
        compared = bounds if known_rows is None else (known_rows, known_rows)
        return KeySample(
            probability=probability,
            groups=groups,
            whole=_placed(whole.totals(), of_whole, groups.height),
            sampled=rows,
            every=partial(looked_at.keys, sampled.entries),
            calibration=None if known_rows is None else _calibration(known_rows, sizes),
            values=_values(aggregates.quantiles, by, groups, sampled.rows, whole.rows),
            part=part,
            ungrouped=everything or (counted and not by),
            unseen=_unseen(np.maximum(np.abs(least), np.abs(most)), farthest())
            if everything
            else np.zeros(0),
            deviates=looked_at.deviates(rows[:, 0].sum(), probability, compared, squares),
        )


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class _KeyLookup:
    """Sums sampled rows key by key."""

    sampled: Sums
    groups: pl.DataFrame
    by: tuple[str, ...]
    sizes: CountedKeys
    calibrated: bool

    def keys(self, entries: pl.LazyFrame) -> Keys:
        """Add up rows by key."""
        found = KeySums.of(entries, self.groups, self.by, self.sampled.scales)
        rows = self.sizes.looked_up(found.weight) if self.calibrated else np.zeros(len(found.weight))
        return Keys(found.group, found.totals, rows, self.groups.height)

    def part(self, rows: F64Array, weights: WeightRange, least: F64Array, most: F64Array) -> Part | None:
        """Return the keys of the lowest weights, and all keys of small groups; None if that is most of them."""
        if rows.sum() < _WORTH_PART * _PART_ROWS or weights.is_empty:
            return None
        width = max(round((weights.to - weights.from_) * _PART_ROWS / rows.sum()), 1)
        share = width / (weights.to - weights.from_)
        small = rows * share < _SMALL_ROWS
        if small.sum() > _MAX_SMALL_GROUPS:
            return None
        first = pl.col(WEIGHT) < weights.from_ + width
        keys = self.keys(self.sampled.entries.filter(pl.any_horizontal(first, *self._all_of(small))))
        sizes = self.rows_of_keys
        several = sizes.power(4) - sizes.singles
        return Part(keys, np.where(small, 1.0, share), least, most, sizes.largest, several)

    def _all_of(self, small: BoolArray) -> list[pl.Expr]:
        """Return expressions that keep the rows of these groups."""
        chosen = self.groups.filter(pl.Series(small)).select(self.by)
        return [
            pl.all_horizontal(
                pl.col(one.name).eq_missing(_value(one)) for one in chosen.slice(at, 1).get_columns()
            )
            for at in range(chosen.height)
        ]

    def deviates(
        self, kept: float, probability: float, compared: tuple[int, int] | None, squares: float | None
    ) -> bool:
        """Return whether the sample differs from the known counts by more than chance explains."""
        if compared is not None and not self.calibrated:
            # Each key has at least one row: if that explains the number of rows, keys need no count.
            compared = compared if SeenRows(kept, kept, probability).deviates(*compared) else None
        if compared is None and not squares:
            return False
        sizes = self.rows_of_keys
        seen = SeenRows(sizes.power(1), sizes.power(2), probability)
        return (compared is not None and seen.deviates(*compared)) or seen.lacks_keys(squares or 0.0)

    @cached_property
    def rows_of_keys(self) -> CountedKeys:
        """The rows of each key, including those that do not match where they are known."""
        if self.calibrated:
            return self.sizes
        # An entry may be a row, or all rows of a key in a group.
        entries = self.sampled.entries.select(WEIGHT, pl.col(f"{TOTAL}0").cast(pl.Int64)).collect()
        return KeySizes(*(one.to_numpy() for one in entries)).counted()


def _value(one: pl.Series) -> pl.Expr:
    """Return the only value of a column, as a literal where possible: Polars then filters before it computes."""
    if one.dtype.is_numeric() or isinstance(one.dtype, (pl.String, pl.Boolean, pl.Date)):
        return pl.lit(one.item(), dtype=one.dtype)
    return pl.lit(one).first()  # Python would round others, or does not know them


def _placed(totals: F64Array, numbers: I64Array, groups: int) -> F64Array:
    """Return totals in the order of all groups; 0.0 for groups without rows."""
    found = np.zeros((groups, totals.shape[1]))
    found[numbers] = totals
    return found


def _calibration(known_rows: int, sizes: CountedKeys) -> Calibration:
    return Calibration(
        rows=known_rows,
        sampled=sizes.power(1),
        squares=sizes.power(2),
        cubes=sizes.power(3),
        largest=float(sizes.largest) ** 2,
    )


def _unseen(seen: F64Array, farthest: Mapping[int, float]) -> F64Array:
    """Return the known magnitudes that exceed those of all sampled rows; else 0.0."""
    found = np.zeros(seen.shape[1])
    for number, far in farthest.items():
        found[number] = far if seen[:, number].max(initial=0.0) < far * (1 - 1e-9) else 0.0
    return found


def _values(
    quantiles: Sequence[Quantile], by: Sequence[str], groups: pl.DataFrame, *parts: pl.DataFrame
) -> tuple[pl.DataFrame, ...]:
    """Return the matching rows for each quantile: sampled ones, and those that were read whole."""
    if not quantiles:
        return ()
    sampled, whole = (
        rows.with_columns(pl.Series(GROUP, numbers_of(rows, groups, by), pl.Int64)) for rows in parts
    )
    rows = pl.concat([sampled, whole.with_columns(pl.lit(None, pl.Int32).alias(WEIGHT))])
    return tuple(
        rows.select(GROUP, WEIGHT, value=pl.col(f"{VALUE}{at}")).drop_nulls("value")
        for at in range(len(quantiles))
    )
