"""What was read, as sums: of each sampled key, and in all of what was read whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from qbeast_core.estimate.aggregates import TOTAL, Aggregates, Quantile
from qbeast_core.space.arrays import F64Array, I64Array

__all__ = ["GROUP", "VALUE", "WEIGHT", "Calibration", "Sample", "Sums", "sums_of"]

WEIGHT = "__qbeast_key_weight"
"""The column that tells keys apart: rows with one weight are in a sample together, whatever their keys."""

VALUE = "__qbeast_value_"
"""What the columns of values are called that quantiles are of, with a number after it."""

GROUP = "__qbeast_group"
"""The column with the number of a group."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """What some rows come to; sums over other keys may be put below each other.

    Attributes
    ----------
    keys : polars.DataFrame
        One row for each key and group: `WEIGHT`, the columns of groups, and the totals of their rows.
    sizes : polars.DataFrame
        `WEIGHT` and ``rows`` of each key, those included that the filter leaves out; without rows where they are not
        needed.
    rows : polars.DataFrame
        `WEIGHT`, the columns of groups, and values of rows for quantiles.
    scales : tuple of float
        Units of the totals: decimals are summed as integers.
    """

    keys: pl.DataFrame
    sizes: pl.DataFrame
    rows: pl.DataFrame
    scales: tuple[float, ...]

    @staticmethod
    def together(parts: Sequence[Sums]) -> Sums:
        """Put sums over different keys together.

        Parameters
        ----------
        parts : sequence of Sums
            Of one question, at least one.
        """
        return Sums(
            pl.concat([one.keys for one in parts]),
            pl.concat([one.sizes for one in parts]),
            pl.concat([one.rows for one in parts]),
            parts[0].scales,
        )

    @property
    def rows_kept(self) -> int:
        """Rows that the filter keeps."""
        return int(self.keys[f"{TOTAL}0"].sum())


def sums_of(frames: Sequence[Sums], by: Sequence[str], *, totals: int) -> Sums:
    """Add up what batches of the same keys come to.

    Parameters
    ----------
    frames : sequence of Sums
        One a batch, at least one; a key may be in several.
    by : sequence of str
        The columns of groups.
    totals : int
        How many there are.
    """
    both = Sums.together(frames)
    if len(frames) == 1:
        return both
    names = [f"{TOTAL}{at}" for at in range(totals)]
    keys = both.keys.group_by(WEIGHT, *by).agg(pl.col(names).sum())
    return Sums(keys, both.sizes.group_by(WEIGHT).agg(pl.col("rows").sum()), both.rows, both.scales)


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


@dataclass(frozen=True, slots=True, eq=False)
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
        Number of the group of each sampled key and group, shape (entries,).
    sums : F64Array
        Totals of each, shape (entries, totals).
    key_rows : F64Array
        Rows of the key in all groups, shape (entries,); zeros without calibration.
    calibration : Calibration or None
        None: how many rows there are is not known, or not compared.
    values : tuple of polars.DataFrame
        For each quantile the rows that count: `GROUP`, `WEIGHT` (null: read whole), ``value``.
    ungrouped : bool
        Whether all rows are one group and no filter leaves any out: their number is known where it is calibrated to.
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
        return self.whole + self.scale * self.sampled

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
        farthest : mapping of int to float, optional
            By numbers of totals, how far from zero values of rows go, where that is known.
        """
        groups = _groups(by, sampled.keys, whole.keys)
        names = [f"{TOTAL}{at}" for at in range(len(aggregates.totals))]
        scales = np.array(sampled.scales)
        keys = _numbered(sampled.keys, groups, by)
        calibration, sizes = None, np.zeros(keys.height)
        if known_rows is not None:
            rows = sampled.sizes["rows"].to_numpy().astype(np.float64)
            calibration = Calibration(
                rows=known_rows,
                sampled=float(rows.sum()),
                squares=float(rows @ rows),
                cubes=float((rows**3).sum()),
                largest=float(rows.max(initial=0.0) ** 2),
            )
            joined = keys.select(WEIGHT).join(sampled.sizes, on=WEIGHT, how="left", maintain_order="left")
            sizes = joined["rows"].to_numpy().astype(np.float64)
        sums = keys.select(pl.col(names).cast(pl.Float64)).to_numpy() * scales
        ungrouped = not by and not filtered
        return Sample(
            probability=probability,
            groups=groups,
            whole=_sum_by_group(_numbered(whole.keys, groups, by), names, groups.height) * scales,
            sampled=_sum_by_group(keys, names, groups.height) * scales,
            group=keys[GROUP].to_numpy().astype(np.int64),
            sums=sums,
            key_rows=sizes,
            calibration=calibration,
            values=_values(aggregates.quantiles, by, groups, sampled.rows, whole.rows),
            ungrouped=ungrouped,
            unseen=_unseen(sums, farthest or {}) if ungrouped else np.zeros(0),
        )


def _groups(by: Sequence[str], *frames: pl.DataFrame) -> pl.DataFrame:
    if not by:
        return pl.DataFrame({GROUP: [0]})
    found = pl.concat([frame.select(by) for frame in frames]).unique().sort(by, nulls_last=True)
    return found.with_row_index(GROUP)


def _numbered(frame: pl.DataFrame, groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return a frame with the numbers of its groups."""
    if not by:
        return frame.with_columns(pl.lit(0).alias(GROUP))
    return frame.join(groups, on=list(by), how="left", nulls_equal=True, maintain_order="left")


def _sum_by_group(frame: pl.DataFrame, names: Sequence[str], groups: int) -> F64Array:
    """Return exact sums, one row a group."""
    sums = frame.group_by(GROUP).agg(pl.col(names).sum().cast(pl.Float64))
    found = np.zeros((groups, len(names)))
    found[sums[GROUP].to_numpy().astype(np.int64)] = sums.select(names).to_numpy()
    return found


def _unseen(sums: F64Array, farthest: Mapping[int, float]) -> F64Array:
    """Return what lies farther from zero than any sampled row is known to: of keys of many rows, means are known."""
    found = np.zeros(sums.shape[1])
    for number, far in farthest.items():
        means = np.abs(sums[:, number]) / np.maximum(sums[:, 0], 1.0)
        found[number] = far if means.max(initial=0.0) < far * (1 - 1e-9) else 0.0
    return found


def _values(
    quantiles: Sequence[Quantile],
    by: Sequence[str],
    groups: pl.DataFrame,
    sampled: pl.DataFrame,
    whole: pl.DataFrame,
) -> tuple[pl.DataFrame, ...]:
    if not quantiles:
        return ()
    rows = pl.concat([sampled, whole.with_columns(pl.lit(None, pl.Int32).alias(WEIGHT))])
    numbered = _numbered(rows, groups, by)
    return tuple(
        numbered.select(GROUP, WEIGHT, value=pl.col(f"{VALUE}{at}")).drop_nulls("value")
        for at in range(len(quantiles))
    )
