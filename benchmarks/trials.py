"""Whether promises are kept: the rules of `estimate`, asked for one sum with another key column each time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from qbeast_core.estimate.aggregates import Smooth, recognise
from qbeast_core.estimate.intervals import factor_of, smooth_interval
from qbeast_core.estimate.rules import WIDENED, Target, is_met, next_fraction
from qbeast_core.estimate.sample import GROUP, Calibration, Sample

ASKED = {"sum": pl.col("x").sum(), "mean": pl.col("x").sum() / pl.len()}
ANSWERS = {
    one.name: one for one in recognise(ASKED, lambda _: pl.Float64()).answers if isinstance(one, Smooth)
}


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of trials: the share that was near enough, and the mean fraction read."""

    share: float
    fraction: float


def trials(
    sums: np.ndarray,
    rows: np.ndarray,
    *,
    error: float,
    confidence: float = 0.95,
    known: bool = False,
    answer: str = "sum",
    pilot: int = 1_500,
    count: int = 1_000,
) -> Kept:
    """Ask for the sum (or the mean over rows) of keys with these sums and rows; `known`: how many rows there are."""
    keys, total = len(sums), rows.sum()
    truth = sums.sum() / (total if answer == "mean" else 1)
    factor, target, every = WIDENED * factor_of(confidence), Target(error), np.ones(1, np.bool_)
    near, fractions = 0, []
    for seed in range(count):
        random = np.random.default_rng(seed)
        order, read, before = random.permutation(keys), 0, 0.0
        fraction = min(pilot / keys, 1.0)
        while fraction < 1.0:
            # Of the keys that are not read yet, each lies between the two fractions with this probability.
            read += int(random.binomial(keys - read, (fraction - before) / (1 - before)))
            before = fraction
            drawn = order[:read]
            sample = sample_of(sums[drawn], rows[drawn], fraction, total if known else None)
            found = smooth_interval(sample, ANSWERS[answer], factor)
            if is_met(found, target).all():
                near += abs(found.value[0] - truth) <= error * abs(truth)
                break
            fraction = next_fraction(fraction, found, target, every)
        near += fraction == 1.0
        fractions.append(fraction)
    return Kept(near / count, float(np.mean(fractions)))


def sample_of(sums: np.ndarray, rows: np.ndarray, fraction: float, known: float | None) -> Sample:
    """A sample of keys, in one group."""
    values = np.column_stack([rows, sums])
    return Sample(
        probability=fraction,
        groups=pl.DataFrame({GROUP: [0]}),
        whole=np.zeros((1, 2)),
        sampled=values.sum(axis=0)[None, :],
        group=np.zeros(len(rows), np.int64),
        sums=values,
        key_rows=rows if known else np.zeros(len(rows)),
        calibration=None if known is None else _calibration(rows, known),
        values=(),
    )


def _calibration(rows: np.ndarray, known: float) -> Calibration:
    return Calibration(
        int(known),
        float(rows.sum()),
        float(rows @ rows),
        float((rows**3).sum()),
        float(rows.max(initial=0) ** 2),
    )
