"""A sample of keys: totals of sampled rows, totals of rows that are not sampled, and sums of each sampled key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.plan.weights import WeightRange
from qbeast_core.sampling.recognise import TOTAL, Aggregates, Quantile
from qbeast_core.sampling.sums import (
    GROUP,
    MAX,
    SHOWN,
    VALUE,
    WEIGHT,
    CountedKeys,
    GroupRuns,
    KeySizes,
    KeySums,
    Repeats,
    SeenRows,
    Sums,
    common_groups,
    numbers_of,
)
from qbeast_core.space.values import BoolArray, F64Array, I64Array
from qbeast_core.support.frames import join_equal, own_column
from qbeast_core.support.sizing import sizing

# A part is used if the sample has at least this many times the rows.
_MIN_PARTS: Final = 2

# Maximum number of such groups: with more, the part is not much smaller than the sample.
_MAX_SMALL_GROUPS: Final = 8

# Steps of an iteration, of which the second is precise to a few per cent.
_STEPS: Final = 4

# Prefix of the columns of keys that rows outside of the sample show.
_CERTAIN: Final = own_column("certain")


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The known number of rows, and row counts of the sample."""

    # Number of rows of the population.
    rows: int
    sampled: float
    # Sums of the squared and cubed row counts of sampled keys.
    squares: float
    cubes: float
    largest: float
    # Number of sampled keys.
    keys: int


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
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
        """Sums of the squared and cubed row counts of the keys of each group, shape (groups,)."""
        runs, squared = GroupRuns.of(self.group), self.rows * self.rows
        squares = runs.sums(squared, self.groups)
        squared *= self.rows
        return squares, runs.sums(squared, self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of the sampled keys, selected by weight, and bounds for all of them."""

    # Some or all keys of each group.
    keys: Keys
    # Probability of a sampled key to be in the part, in (0, 1], shape (groups,).
    share: F64Array
    # Minimum and maximum that one sampled row adds to each total, shape (groups, totals).
    min_values: F64Array
    max_values: F64Array
    # Maximum rows of a key.
    max_rows: int
    # Sum of the fourth powers of the row counts of keys with several rows.
    fourth_powers: float


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class KeySample:
    """A sample of keys by group, with totals of rows that are not sampled."""

    # Probability of each key to be in the sample, in (0, 1].
    probability: float
    # One row per group, in order.
    groups: pl.DataFrame
    # Totals of rows that are not sampled, shape (groups, totals).
    whole: F64Array
    # Totals of sampled rows, shape (groups, totals).
    sampled: F64Array
    # Returns all sampled keys; called only if a part of them is not enough.
    all_keys: Callable[[], Keys]
    # None if the number of rows is unknown or not used.
    calibration: Calibration | None
    # Rows for each quantile, by name: `GROUP`, `WEIGHT` (null: not sampled), `value`.
    values: Mapping[str, pl.DataFrame]
    # None to use all keys.
    part: Part | None = None
    # Whether the only group has all rows of `calibration`.
    ungrouped: bool = False
    # Value of a known row outside of the sample for each total, shape (totals,); 0.0 if unknown.
    unseen: F64Array = field(default_factory=lambda: np.zeros(0))
    # Whether the sample differs from the counts of the log by more than chance explains.
    deviates: bool = False
    # Numbers of the totals that count distinct keys. They are not calibrated: heavy keys do not count more.
    distinct: tuple[int, ...] = ()
    # Returns the maximum magnitude that any row of the table adds to a total, by number; others have no known maximum.
    farthest: Callable[[], Mapping[int, float]] = dict

    @property
    def scale(self) -> float:
        """Number of rows that a sampled row represents."""
        calibration = self.calibration
        if calibration is None or calibration.sampled == 0 or self.probability == 1.0:
            return 1.0 / self.probability
        return calibration.rows / calibration.sampled

    @property
    def scales(self) -> F64Array:
        """Number of rows, or of distinct keys, that a sampled one represents, shape (totals,)."""
        scales = np.full(self.whole.shape[1], self.scale)
        scales[[*self.distinct]] = 1.0 / self.probability
        return scales

    @property
    def totals(self) -> F64Array:
        """Estimated totals, shape (groups, totals)."""
        totals = self.whole + self.scales * self.sampled
        if self.ungrouped and self.calibration is not None and self.probability < 1.0:
            totals[:, 0] = self.whole[:, 0] + self.calibration.rows  # also without sampled rows
        return totals

    @cached_property
    def keys(self) -> Keys:
        """All sampled keys."""
        return self.all_keys()

    def missing(self, chance: float) -> F64Array:
        """Return the maximum magnitude that keys outside of the sample add to each total of a group that lacks them.

        All of K keys are missing with the probability (1 - f)^K, and at most n / K groups of n rows have K keys: the
        probability that a group lacks more is at most `chance`. A key adds at most as much as the sampled key that adds
        most, or as the value that the log has; infinite if the log has none.
        """
        totals = self.whole.shape[1]
        if self.probability == 1.0:
            return np.zeros(totals)
        rate, rows = -np.log1p(-self.probability), max(float(self.totals[:, 0].sum()), 1.0)
        keys = 1.0
        for _ in range(_STEPS):  # keys = log(rows / keys / chance) / rate
            keys = max(float(np.log(max(rows / keys, 1.0) / chance)) / rate, 1.0)
        limits, part = {} if self.deviates else self.farthest(), self.part
        magnitudes = np.array([limits.get(number, np.inf) for number in range(totals)])
        added = (
            self.keys.sums if part is None else part.max_rows * np.vstack([part.min_values, part.max_values])
        )
        for number, column in enumerate(added.T):  # one by one: this makes no copy
            magnitudes[number] = max(magnitudes[number], column.max(initial=0.0), -column.min(initial=0.0))
        return np.asarray(keys * magnitudes)

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
        repeats: Repeats | None = None,
        farthest: Callable[[], Mapping[int, float]] = dict,
        weights: WeightRange | None = None,
        compared: bool = False,
    ) -> KeySample:
        """Build a sample from sums.

        `known_rows` is the number of rows of the population (None: not compared); only matching rows if `counted`.
        `bounds` are its minimum and maximum if it is unknown, or if it is `compared` only: `sampled.sizes` are compared
        with it, but totals are not calibrated. `repeats` counts how often keys repeat (None: unknown). `farthest`
        returns the largest magnitude of each total.
        """
        sampled, whole = _count_keys(sampled, whole, by, aggregates.shown)
        groups, (sampled_numbers, whole_numbers) = common_groups([sampled, whole], by)
        is_all = not by and not filtered
        rows = _placed(sampled.totals(), sampled_numbers, groups.height)
        min_values, max_values = (
            _placed(extremes, sampled_numbers, groups.height) for extremes in sampled.extremes()
        )
        sizes = sampled.sizes.counted()
        lookup = _KeyLookup(sampled, groups, tuple(by), sizes, compared or known_rows is not None)
        part = None if weights is None else lookup.part(rows[:, 0], weights, min_values, max_values)
        row_bounds = bounds if known_rows is None else (known_rows, known_rows)
        return KeySample(
            probability=probability,
            groups=groups,
            whole=_placed(whole.totals(), whole_numbers, groups.height),
            sampled=rows,
            all_keys=partial(lookup.keys, sampled.entries),
            calibration=None if known_rows is None else _calibration(known_rows, sizes),
            values=_values(aggregates.quantiles, by, groups, sampled.rows, whole.rows),
            part=part,
            ungrouped=is_all or (counted and not by),
            unseen=_unseen(np.maximum(np.abs(min_values), np.abs(max_values)), farthest())
            if is_all
            else np.zeros(0),
            deviates=lookup.deviates(rows[:, 0].sum(), probability, row_bounds, repeats),
            distinct=tuple(aggregates.shown),
            farthest=lambda: {**farthest(), **dict.fromkeys(aggregates.counts, 1.0)},
        )


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class _KeyLookup:
    """Sums sampled rows by key."""

    sampled: Sums
    groups: pl.DataFrame
    by: tuple[str, ...]
    sizes: CountedKeys
    # Whether `sizes` are known.
    sized: bool

    def keys(self, entries: pl.LazyFrame) -> Keys:
        """Sum rows by key."""
        key_sums = KeySums.of(entries, self.groups, self.by, self.sampled.scales)
        rows = self.sizes.rows_of(key_sums.weight) if self.sized else np.zeros(len(key_sums.weight))
        return Keys(key_sums.group, key_sums.totals, rows, self.groups.height)

    def part(
        self, rows: F64Array, weights: WeightRange, min_values: F64Array, max_values: F64Array
    ) -> Part | None:
        """Return the keys with the lowest weights, and all keys of small groups; None if the part is not small."""
        if rows.sum() < _MIN_PARTS * sizing().part_rows or weights.is_empty:
            return None
        width = max(round((weights.to - weights.from_) * sizing().part_rows / rows.sum()), 1)
        share = width / (weights.to - weights.from_)
        small = rows * share < sizing().min_group_rows
        if small.sum() > _MAX_SMALL_GROUPS:
            return None
        first = pl.col(WEIGHT) < weights.from_ + width
        keys = self.keys(self.sampled.entries.filter(pl.any_horizontal(first, *self._all_of(small))))
        sizes = self.rows_of_keys
        several = sizes.power(4) - sizes.singles
        return Part(keys, np.where(small, 1.0, share), min_values, max_values, sizes.largest, several)

    def _all_of(self, small: BoolArray) -> list[pl.Expr]:
        """Return expressions for the rows of the marked groups."""
        selected = self.groups.filter(pl.Series(small)).select(self.by)
        return [
            pl.all_horizontal(
                pl.col(column.name).eq_missing(_value(column))
                for column in selected.slice(number, 1).get_columns()
            )
            for number in range(selected.height)
        ]

    def deviates(
        self, rows: float, probability: float, row_bounds: tuple[int, int] | None, repeats: Repeats | None
    ) -> bool:
        """Return whether the sample differs from the known counts by more than chance explains."""
        if not self.sized:
            # If one row per key explains the known numbers, the rows of keys need not be counted.
            single = SeenRows(rows, rows, probability)
            row_bounds = row_bounds if row_bounds is not None and single.deviates(*row_bounds) else None
            repeats = repeats if repeats is not None and single.lacks_keys(repeats) else None
        if row_bounds is None and repeats is None:
            return False
        return SeenRows.of(self.rows_of_keys, probability).differs(row_bounds, repeats)

    @cached_property
    def rows_of_keys(self) -> CountedKeys:
        """The rows of each key, including rows that do not match if they are known."""
        if self.sized:
            return self.sizes
        # An entry may be a row, or all rows of a key in a group.
        entries = self.sampled.entries.select(WEIGHT, pl.col(f"{TOTAL}0").cast(pl.Int64)).collect()
        return KeySizes(*(column.to_numpy() for column in entries)).counted()


def _value(column: pl.Series) -> pl.Expr:
    """Return the single value of a column, as a literal if possible: Polars then filters before it computes."""
    if column.dtype.is_numeric() or isinstance(column.dtype, (pl.String, pl.Boolean, pl.Date)):
        return pl.lit(column.item(), dtype=column.dtype)
    return pl.lit(column).first()  # Python rounds or lacks values of other types


def _placed(totals: F64Array, numbers: I64Array, groups: int) -> F64Array:
    """Return totals in the order of all groups; 0.0 for groups without rows."""
    placed = np.zeros((groups, totals.shape[1]))
    placed[numbers] = totals
    return placed


def _calibration(known_rows: int, sizes: CountedKeys) -> Calibration:
    return Calibration(
        rows=known_rows,
        sampled=sizes.power(1),
        squares=sizes.power(2),
        cubes=sizes.power(3),
        largest=float(sizes.largest) ** 2,
        keys=int(sizes.power(0)),
    )


def _unseen(seen: F64Array, farthest: Mapping[int, float]) -> F64Array:
    """Return the known magnitudes above those of all sampled rows, else 0.0."""
    unseen = np.zeros(seen.shape[1])
    for number, magnitude in farthest.items():
        unseen[number] = magnitude if seen[:, number].max(initial=0.0) < magnitude * (1 - 1e-9) else 0.0
    return unseen


def _values(
    quantiles: Sequence[Quantile], by: Sequence[str], groups: pl.DataFrame, *parts: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """Return the matching rows for each quantile, sampled or not."""
    if not quantiles:
        return {}
    sampled, whole = (
        rows.with_columns(pl.Series(GROUP, numbers_of(rows, groups, by), pl.Int64)) for rows in parts
    )
    rows = pl.concat([sampled, whole.with_columns(pl.lit(None, pl.Int32).alias(WEIGHT))])
    return {
        quantile.name: rows.select(GROUP, WEIGHT, value=pl.col(f"{VALUE}{number}")).drop_nulls("value")
        for number, quantile in enumerate(quantiles)
    }


def _count_keys(sampled: Sums, whole: Sums, by: Sequence[str], numbers: Collection[int]) -> tuple[Sums, Sums]:
    """Add distinct keys to the totals with these numbers. Keys of both parts count in `whole` alone, without error."""
    if not numbers:
        return sampled, whole
    shown = {f"{TOTAL}{number}": f"{SHOWN}{index}" for index, number in enumerate(numbers)}
    keys = _uncertain(sampled.keys, whole.keys, [*shown.values()])
    schema = sampled.entries.collect_schema()
    values = {name: pl.lit(0) for name in schema if name.startswith(TOTAL)}
    values |= {total: pl.col(name) for total, name in shown.items()}
    casts = [value.cast(schema[name]).alias(name) for name, value in values.items()]
    one_each = keys.lazy().filter(pl.any_horizontal(shown.values())).select(WEIGHT, *by, *casts)
    entries = pl.concat([sampled.entries, one_each.select(schema.names())])
    return (
        replace(sampled, groups=_with_counts(sampled.groups, keys, by, shown), entries=entries),
        replace(whole, groups=_with_counts(whole.groups, whole.keys, by, shown)),
    )


def _uncertain(sampled: pl.DataFrame, whole: pl.DataFrame, shown: Sequence[str]) -> pl.DataFrame:
    """Return the sampled keys; those that also occur in `whole` are not shown."""
    on = [name for name in whole.columns if name != WEIGHT and name not in shown]
    certain = whole.select(*on, *(pl.col(name).alias(f"{_CERTAIN}{name}") for name in shown))
    is_certain = {name: pl.col(f"{_CERTAIN}{name}").fill_null(value=False) for name in shown}
    joined = join_equal(sampled, certain, on, "left", nulls_equal=True)
    return joined.with_columns(pl.col(name) & ~flag for name, flag in is_certain.items())


def _with_counts(
    groups: pl.DataFrame, keys: pl.DataFrame, by: Sequence[str], shown: Mapping[str, str]
) -> pl.DataFrame:
    """Return groups with the numbers of their keys."""
    exprs = [pl.col(name).sum().alias(total) for total, name in shown.items()]
    others = groups.drop(shown)
    if by:
        counted = join_equal(others, keys.group_by(by).agg(exprs), by, "left", nulls_equal=True)
    else:
        counted = others.hstack(keys.select(exprs))
    maxima = [pl.lit(1).alias(f"{MAX}{total.removeprefix(TOTAL)}") for total in shown]
    return counted.with_columns(pl.col([*shown]).fill_null(0), *maxima)
