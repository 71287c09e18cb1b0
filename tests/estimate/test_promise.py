"""Reading on until the rules say so keeps the promise, also where tails are heavy; a trial is another key column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

from qbeast_core.estimate.aggregates import Smooth, recognise
from qbeast_core.estimate.intervals import factor_of, smooth_interval
from qbeast_core.estimate.rules import WIDENED, Target, is_met, next_fraction
from qbeast_core.estimate.sample import GROUP, Calibration, Sample

KEYS, PILOT = 40_000, 1_500
SCHEMA = pl.Schema({"x": pl.Float64})
ASKED = recognise({"sum": pl.col("x").sum()}, SCHEMA, lambda _: pl.Float64())


def distributions() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The sum and the rows of each key."""
    random = np.random.default_rng(11)
    one = np.ones(KEYS)
    zipf = np.minimum(random.zipf(1.7, KEYS), 20_000).astype(float)
    return {
        "normal": (random.normal(100, 20, KEYS), one),
        "lognormal 1": (random.lognormal(0, 1, KEYS), one),
        "lognormal 1.5": (random.lognormal(0, 1.5, KEYS), one),
        "lognormal 2": (random.lognormal(0, 2, KEYS), one),
        "Pareto 1.5": (random.pareto(1.5, KEYS) + 1, one),
        "Pareto 2.5": (random.pareto(2.5, KEYS) + 1, one),
        "one in a hundred": ((random.random(KEYS) < 0.01).astype(float), one),
        "one in a thousand": ((random.random(KEYS) < 0.001).astype(float), one),
        "Zipf keys": (zipf * random.lognormal(0, 0.5, KEYS), zipf),
    }


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of trials: the share that was near enough, and the mean fraction read."""

    share: float
    fraction: float


def trials(
    sums: np.ndarray, rows: np.ndarray, *, error: float, confidence: float, known: bool, count: int
) -> Kept:
    """Ask for a sum, with other weights each time."""
    truth, near, fractions = sums.sum(), 0, []
    answer = ASKED.answers[0]
    assert isinstance(answer, Smooth)
    factor = WIDENED * factor_of(confidence)
    for seed in range(count):
        random = np.random.default_rng(seed)
        order = random.permutation(KEYS)
        ends = np.sort(random.random(KEYS))
        fraction = PILOT / KEYS
        while True:
            drawn = order[: int(np.searchsorted(ends, fraction))]
            found = smooth_interval(
                sample(sums[drawn], rows[drawn], fraction, rows.sum() if known else None), answer, factor
            )
            if fraction == 1.0 or is_met(found, Target(error)).all():
                break
            fraction = next_fraction(fraction, found, Target(error), np.ones(1, np.bool_))
            if fraction == 1.0:
                break
        near += fraction == 1.0 or abs(found.value[0] - truth) <= error * abs(truth)
        fractions.append(fraction)
    return Kept(near / count, float(np.mean(fractions)))


def sample(sums: np.ndarray, rows: np.ndarray, fraction: float, known: float | None) -> Sample:
    values = np.column_stack([rows, sums])
    calibration = (
        Calibration(int(known), rows.sum(), rows @ rows, (rows**3).sum(), rows.max() ** 2) if known else None
    )
    return Sample(
        probability=fraction,
        groups=pl.DataFrame({GROUP: [0]}),
        whole=np.zeros((1, 2)),
        sampled=values.sum(axis=0)[None, :],
        group=np.zeros(len(rows), np.int64),
        sums=values,
        key_rows=rows if known else np.zeros(len(rows)),
        calibration=calibration,
        values=(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("compared", ["known rows", "nothing"])
@pytest.mark.parametrize("name", distributions())
def test_the_promise_is_kept(name: str, compared: str) -> None:
    """Of 1,000 trials 95 % (99 %) of the answers are near enough; less two standard errors of such a share."""
    sums, rows = distributions()[name]
    known = compared == "known rows"
    for error in (0.03, 0.1):
        for confidence in (0.95, 0.99):
            kept = trials(sums, rows, error=error, confidence=confidence, known=known, count=1000)
            least = confidence - 2 * (confidence * (1 - confidence) / 1000) ** 0.5
            assert kept.share >= least, (error, confidence, kept)


@pytest.mark.parametrize("name", ["normal", "lognormal 1"])
def test_a_promise_is_kept_without_reading_everything(name: str) -> None:
    kept = trials(*distributions()[name], error=0.05, confidence=0.95, known=True, count=60)
    assert kept.share >= 0.9
    assert kept.fraction < 0.4


def test_what_cannot_be_promised_is_read_to_the_end() -> None:
    kept = trials(*distributions()["one in a thousand"], error=0.1, confidence=0.95, known=False, count=20)
    assert kept == Kept(1.0, 1.0)
