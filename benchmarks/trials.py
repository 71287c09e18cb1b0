"""Check that promises are kept: apply the rules of `estimate` to a sum or a frame, with new keys in each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from qbeast_core.plan.weights import sample_to_weights
from qbeast_core.sampling.confidence import (
    WIDENED,
    Interval,
    Target,
    factor_of,
    interval_of,
    is_met,
    is_reliable,
    next_fraction,
    smooth_interval,
)
from qbeast_core.sampling.key_sample import Calibration, Keys, KeySample
from qbeast_core.sampling.recognise import TOTAL, Smooth, recognise
from qbeast_core.sampling.sums import GROUP, WEIGHT, KeySizes, RowSums, Sums, totals_of
from qbeast_core.tree.keys import heaviest

ASKED = {"sum": pl.col("x").sum(), "mean": pl.col("x").sum() / pl.len()}
ANSWERS = {
    answer.name: answer
    for answer in recognise(ASKED, lambda _: pl.Float64()).answers
    if isinstance(answer, Smooth)
}


@dataclass(frozen=True, slots=True)
class Kept:
    """The results of trials: the share within the error, and the mean fraction read."""

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
    """Estimate the sum (or the mean over rows) of keys with these sums and rows; `known`: their total is known."""
    keys, total = len(sums), rows.sum()
    truth = sums.sum() / (total if answer == "mean" else 1)
    factor, target, everything = WIDENED * factor_of(confidence), Target(error), np.ones(1, np.bool_)
    near, fractions = 0, []
    for seed in range(count):
        random = np.random.default_rng(seed)
        order, read, before = random.permutation(keys), 0, 0.0
        fraction = min(pilot / keys, 1.0)
        while fraction < 1.0:
            # The probability that a key that was not read yet is between the two fractions.
            read += int(random.binomial(keys - read, (fraction - before) / (1 - before)))
            before = fraction
            drawn = order[:read]
            sample = sample_of(sums[drawn], rows[drawn], fraction, total if known else None)
            interval = smooth_interval(sample, ANSWERS[answer], factor)
            if is_met(interval, target).all():
                near += abs(interval.value[0] - truth) <= error * abs(truth)
                break
            fraction = next_fraction(fraction, interval, target, everything)
        near += fraction == 1.0
        fractions.append(fraction)
    return Kept(near / count, float(np.mean(fractions)))


def sample_of(sums: np.ndarray, rows: np.ndarray, fraction: float, known: float | None) -> KeySample:
    """Return a sample of keys in one group."""
    values = np.column_stack([rows, sums])
    return KeySample(
        probability=fraction,
        groups=pl.DataFrame({GROUP: [0]}),
        whole=np.zeros((1, 2)),
        sampled=values.sum(axis=0)[None, :],
        all_keys=lambda: Keys(
            np.zeros(len(rows), np.int64), values, rows if known else np.zeros(len(rows)), 1
        ),
        calibration=None if known is None else _calibration(rows, known),
        values={},
    )


def _calibration(rows: np.ndarray, known: float) -> Calibration:
    return Calibration(
        int(known),
        float(rows.sum()),
        float(rows @ rows),
        float((rows**3).sum()),
        float(rows.max(initial=0) ** 2),
        len(rows),
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """The results of trials of several answers: the share of correct ones in the worst group, by name."""

    shares: dict[str, float]
    fraction: float


class Population:
    """A frame to draw samples from, with different hashes of its keys each time.

    Parameters
    ----------
    frame : polars.DataFrame
        All rows.
    aggregates : mapping of str to polars.Expr
        The aggregates.
    by : sequence of str
        Columns of groups.
    where : polars.Expr, optional
        Filter of the rows.
    known : bool
        Whether totals are calibrated to the number of all rows, if answers use totals over rows.
    key : sequence of str
        Columns of the key; by default each row has its own key.
    apart : bool
        Whether heavy keys are not sampled, as if tags listed them.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        aggregates: Mapping[str, pl.Expr],
        *,
        by: Sequence[str] = (),
        where: pl.Expr | None = None,
        known: bool = True,
        key: Sequence[str] = (),
        apart: bool = False,
    ) -> None:
        self.by, self.filtered = tuple(by), where is not None
        self.aggregates = recognise(aggregates, lambda expr: frame.select(expr).dtypes[0], key)
        self.known = known and not self.aggregates.counts_keys
        centres = {name: frame.select(expr).item() for name, expr in self.aggregates.centres.items()}
        quantiles = tuple(quantile.values for quantile in self.aggregates.quantiles)
        number = pl.struct(key).rank("dense") - 1 if key else pl.int_range(pl.len())
        # What the log has of the columns: their largest magnitudes.
        plain = self.aggregates.plain.items()
        self.farthest = {total: frame[column].cast(pl.Float64).abs().max() for total, column in plain}
        numbered = frame.with_columns(number.cast(pl.Int32).alias(WEIGHT))
        counts = np.bincount(numbered[WEIGHT].to_numpy())
        self.keys = len(counts)
        is_apart = np.zeros(self.keys, np.bool_)
        is_apart[heaviest(counts, frame.height) if apart else []] = True
        in_apart = pl.Series(is_apart).gather(numbered[WEIGHT])
        self.rows = frame.height - int(in_apart.sum())
        sums = RowSums(
            self.aggregates.totals,
            quantiles,
            {name: pl.col(name) for name in self.by},
            where,
            (),
            centres,
            self.aggregates.key,
            tuple(self.aggregates.shown.values()),
        )
        self.every = sums.of(numbered.filter(~in_apart), sizes=self.known).by_key(self.by)
        self.entries = self.every.entries.collect()
        self.whole = sums.of(numbered.filter(in_apart).drop(WEIGHT), sizes=False)
        self.no_sizes = sums.of(numbered.clear(), sizes=False).sizes
        self.truth = [
            interval.value for interval in self.intervals(self.sample(np.zeros(self.keys), 1.0), 1.0)
        ]

    def sample(self, drawn: np.ndarray, fraction: float) -> KeySample:
        """Return the keys whose number in [0, 1) is below a fraction, as a sample."""
        inside, everything = pl.Series(drawn < fraction), self.every
        # Uniform like hashes, so that parts of the keys can be selected by weight, as in `estimate`.
        weights = pl.Series(WEIGHT, np.floor(drawn * 2**32) - 2**31).cast(pl.Int32)

        def chosen(frame: pl.DataFrame) -> pl.DataFrame:
            frame = frame.filter(inside.gather(frame[WEIGHT]))
            return frame.with_columns(weights.gather(frame[WEIGHT]))

        entries = chosen(self.entries)
        totals = [name for name in entries.columns if name.startswith(TOTAL)]
        part = Sums(
            groups=totals_of(entries.lazy(), self.by, totals),
            scales=everything.scales,
            entries=entries.lazy(),
            entries_bytes=int(entries.estimated_size()),
            sizes=self.sizes(inside, weights) if self.known else self.no_sizes,
            rows=everything.rows.filter(inside.gather(everything.rows[WEIGHT])),
            keys=chosen(everything.keys) if self.aggregates.shown else everything.keys,
        )
        return KeySample.of(
            self.aggregates,
            self.by,
            part,
            self.whole,
            probability=fraction,
            known_rows=self.rows if self.known else None,
            filtered=self.filtered,
            farthest=lambda: self.farthest if self.by else {},
            weights=sample_to_weights(fraction),
        )

    def sizes(self, inside: pl.Series, weights: pl.Series) -> KeySizes:
        """Return the rows of the sampled keys."""
        sizes = self.every.sizes
        sampled = inside.gather(sizes.weight).to_numpy()
        rows = None if sizes.rows is None else sizes.rows[sampled]
        return KeySizes(weights.to_numpy()[sizes.weight[sampled]], rows)

    def intervals(self, sample: KeySample, factor: float) -> list[Interval]:
        """Return the interval of each answer."""
        return [interval_of(sample, answer, factor) for answer in self.aggregates.answers]

    def promised(
        self, error: float, confidence: float, *, pilot: int = 4_000, count: int = 1_000
    ) -> Coverage:
        """Read until the rules of `estimate` stop; return the share of answers within the requested error."""
        factor, target = WIDENED * factor_of(confidence), Target(error)
        right = np.zeros((len(self.truth), len(self.truth[0])))
        fractions = []
        for seed in range(count):
            drawn, fraction = np.random.default_rng(seed).random(self.keys), pilot / self.rows
            intervals = self.intervals(self.sample(drawn, fraction), factor)
            while fraction < 1.0 and not all(is_met(interval, target).all() for interval in intervals):
                everything = np.ones(len(intervals[0].value), np.bool_)
                fraction = max(
                    next_fraction(fraction, interval, target, everything) for interval in intervals
                )
                intervals = self.intervals(self.sample(drawn, fraction), factor)
            for at, (interval, truth) in enumerate(zip(intervals, self.truth, strict=True)):
                right[at] += np.abs(interval.value - truth) <= error * np.abs(truth) * (1 + 1e-9)
            fractions.append(fraction)
        return self._coverage(right / count, float(np.mean(fractions)))

    def covered(self, fraction: float, confidence: float, *, count: int = 1_000) -> Coverage:
        """Read one fraction; return the share of intervals that contain the truth.

        Groups that are reliable in most samples count only their reliable intervals, other groups count all: the few
        reliable samples of a group that is usually unreliable are not typical.
        """
        right, reliable, covered = (np.zeros((len(self.truth), len(self.truth[0]))) for _ in range(3))
        for seed in range(count):
            drawn = np.random.default_rng(seed).random(self.keys)
            intervals = self.intervals(self.sample(drawn, fraction), factor_of(confidence))
            for at, (interval, truth) in enumerate(zip(intervals, self.truth, strict=True)):
                can_trust, holds = is_reliable(interval), (interval.low <= truth) & (truth <= interval.high)
                reliable[at] += can_trust
                covered[at] += holds
                right[at] += can_trust & holds
        shares = np.where(reliable > count / 2, right / np.maximum(reliable, 1), covered / count)
        return self._coverage(shares, fraction)

    def _coverage(self, right: np.ndarray, fraction: float) -> Coverage:
        names = [answer.name for answer in self.aggregates.answers]
        return Coverage(dict(zip(names, right.min(axis=1).tolist(), strict=True)), fraction)
