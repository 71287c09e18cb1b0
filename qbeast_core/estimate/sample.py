"""What is known of groups: sums of each sampled key, and totals of what was read whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from qbeast_core.estimate.aggregates import Aggregates, Quantile
from qbeast_core.estimate.runs import Runs
from qbeast_core.estimate.sums import GROUP, VALUE, WEIGHT, KeySizes, Sums, common_groups
from qbeast_core.space.arrays import F64Array, I64Array

__all__ = ["Calibration", "Sample"]


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """How many rows there are, which is known, against how many were sampled.

    Attributes
    ----------
    rows : int
        In all that was sampled from.
    sampled : float
        Of these in the sample.
    squares, cubes : float
        Sums of the squares and of the cubes of the rows of each sampled key.
    largest : float
        The largest of the squares.
    """

    rows: int
    sampled: float
    squares: float
    cubes: float
    largest: float


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class Sample:
    """What is known of groups: a sample of keys, and totals of the rest that was read whole.

    Attributes
    ----------
    probability : float
        Of each key to be in the sample, in (0, 1].
    groups : polars.DataFrame
        One row a group, in order.
    whole : F64Array
        Totals of rows that were read whole, shape (groups, totals).
    sampled : F64Array
        Totals of sampled rows, shape (groups, totals).
    group : I64Array
        Number of the group of each sampled key and group, ascending, shape (entries,).
    sums : F64Array
        Totals of each, shape (entries, totals).
    key_rows : F64Array
        Rows of the key in all groups, shape (entries,); zeros without calibration.
    calibration : Calibration or None
        None: how many rows there are is not known, or not compared.
    values : tuple of polars.DataFrame
        For each quantile the rows that count: `GROUP`, `WEIGHT` (null: read whole), ``value``.
    ungrouped : bool
        Whether the rows that are calibrated to are one group, so that it has so many.
    unseen : F64Array
        For each total the value of a row that is there and not in the sample, shape (totals,); 0.0: none is known of.
    """

    probability: float
    groups: pl.DataFrame
    whole: F64Array
    sampled: F64Array
    group: I64Array
    sums: F64Array
    key_rows: F64Array
    calibration: Calibration | None
    values: tuple[pl.DataFrame, ...]
    ungrouped: bool = False
    unseen: F64Array = field(default_factory=lambda: np.zeros(0))

    @property
    def scale(self) -> float:
        """How many rows a sampled row stands for."""
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
    def entries(self) -> I64Array:
        """How many keys each group has, shape (groups,)."""
        return np.bincount(self.group, minlength=len(self.whole)).astype(np.int64)

    @cached_property
    def key_powers(self) -> tuple[F64Array, F64Array]:
        """Sums of the squares and of the cubes of the rows of the keys of each group, shape (groups,)."""
        groups = len(self.whole)
        runs, squared = Runs.of(self.group), self.key_rows * self.key_rows
        squares = runs.sums(squared, groups)
        squared *= self.key_rows
        return squares, runs.sums(squared, groups)

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
        farthest: Mapping[int, float] | None = None,
    ) -> Sample:
        """Return columns as arrays, with numbers for groups.

        Parameters
        ----------
        aggregates : Aggregates
            What is asked for.
        by : sequence of str
            The columns of groups.
        sampled, whole : Sums
            Of sampled keys, and of what was read whole, whose keys do not matter.
        probability : float
            Of a key to be in the sample.
        known_rows : int or None
            Rows of what was sampled from; None if they are not compared.
        filtered : bool
            Whether rows are left out by a filter.
        counted : bool
            Whether `known_rows` are those that it keeps.
        farthest : mapping of int to float, optional
            By numbers of totals, how far from zero values of rows go, where that is known.
        """
        groups, (of_sampled, of_whole) = common_groups([sampled, whole], by)
        keys = sampled.keys.renumbered(of_sampled).by_group()
        everything = not by and not filtered
        compared = known_rows is not None
        return Sample(
            probability=probability,
            groups=groups,
            whole=_placed(whole.totals(), of_whole, groups.height),
            sampled=_placed(sampled.totals(), of_sampled, groups.height),
            group=keys.group,
            sums=keys.totals,
            key_rows=sampled.sizes.looked_up(keys.weight) if compared else np.zeros(len(keys.weight)),
            calibration=None if known_rows is None else _calibration(known_rows, sampled.sizes),
            values=_values(aggregates.quantiles, (sampled.rows, of_sampled), (whole.rows, of_whole)),
            ungrouped=everything or (counted and not by),
            unseen=_unseen(keys.totals, farthest or {}) if everything else np.zeros(0),
        )


def _placed(totals: F64Array, numbers: I64Array, groups: int) -> F64Array:
    """Return totals in the order of all groups; zeros where there are none."""
    found = np.zeros((groups, totals.shape[1]))
    found[numbers] = totals
    return found


def _calibration(known_rows: int, sizes: KeySizes) -> Calibration:
    rows = sizes.rows.astype(np.float64)
    squares = rows * rows
    return Calibration(
        rows=known_rows,
        sampled=float(rows.sum()),
        squares=float(squares.sum()),
        cubes=float((squares * rows).sum()),
        largest=float(rows.max(initial=0.0) ** 2),
    )


def _unseen(sums: F64Array, farthest: Mapping[int, float]) -> F64Array:
    """Return what lies farther from zero than any sampled row is known to: of keys of many rows, means are known."""
    found = np.zeros(sums.shape[1])
    for number, far in farthest.items():
        means = np.abs(sums[:, number]) / np.maximum(sums[:, 0], 1.0)
        found[number] = far if means.max(initial=0.0) < far * (1 - 1e-9) else 0.0
    return found


def _values(quantiles: Sequence[Quantile], *parts: tuple[pl.DataFrame, I64Array]) -> tuple[pl.DataFrame, ...]:
    """Return the rows that count for each quantile: sampled ones, and those that were read whole."""
    if not quantiles:
        return ()
    (sampled, _), (whole, _) = parts
    numbers = [new[rows[GROUP].to_numpy()] for rows, new in parts]
    rows = pl.concat([sampled, whole.with_columns(pl.lit(None, pl.Int32).alias(WEIGHT))])
    rows = rows.with_columns(pl.Series(GROUP, np.concatenate(numbers), pl.Int64))
    return tuple(
        rows.select(GROUP, WEIGHT, value=pl.col(f"{VALUE}{at}")).drop_nulls("value")
        for at in range(len(quantiles))
    )
