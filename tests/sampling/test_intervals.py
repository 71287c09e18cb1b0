"""Variances are those of sampling keys, calibrated totals know what they are calibrated to, and intervals cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.trials import Population
from qbeast_core.sampling.confidence import (
    MIN_KEYS,
    Interval,
    Target,
    factor_of,
    is_met,
    is_reliable,
    next_fraction,
)
from qbeast_core.sampling.recognise import Dual
from tests.sampling.answers import intervals, sample_of

MEAN, SUM, ROWS = pl.col("x").mean(), pl.col("x").sum(), pl.len()
KEYS = 6_000
UNSEEN = 3.7  # so many more of the heaviest key are expected at most, where a sample has one (Poisson, 95 %)


def clustered(seed: int = 3, keys: int = KEYS) -> tuple[pl.DataFrame, np.ndarray]:
    """Rows of which those of one key resemble each other, in three groups; and the key of each."""
    random = np.random.default_rng(seed)
    key = np.repeat(np.arange(keys), random.integers(1, 12, keys))
    x = random.lognormal(0, 0.4, keys)[key] + random.normal(0, 0.1, len(key))
    group = np.array(["a", "a", "b", None], dtype=object)[random.integers(0, 4, len(key))]
    return pl.DataFrame({"x": x, "g": pl.Series(group, dtype=pl.String)}), key


def draw(key: np.ndarray, seed: int) -> np.ndarray:
    """Weights of a new key column."""
    random = np.random.default_rng(seed)
    return random.integers(-(2**31), 2**31, key.max() + 1)[key].astype(np.int32)


def test_slopes_are_derivatives() -> None:
    def of(totals: np.ndarray) -> Dual:
        a, b, c = Dual.inputs(totals)
        return ((a * b - c / a).sqrt() + b.constant(2.0)) / -b

    at, step = np.array([[3.0, 2.0, 5.0]]), 1e-6
    for number in range(3):
        moved = at.copy()
        moved[0, number] += step
        assert of(at).slopes[0, number] == pytest.approx(
            (of(moved).value[0] - of(at).value[0]) / step, rel=1e-4
        )


def test_variance_of_total_is_by_key() -> None:
    rows, key = clustered()
    weights = draw(key, 1)
    actual = intervals({"s": SUM}, rows, weights, 0.1, factor=1.0, known=False)["s"]
    inside = weights < 0.1 * 2**32 - 2**31
    by_key = rows.with_columns(key=key).filter(pl.Series(inside)).group_by("key").agg(pl.col("x").sum())["x"]
    wider = 1 + (by_key**3).sum() / (by_key**2).sum() ** 1.5
    squares = (by_key**2).sum() + UNSEEN * (by_key**2).max()
    assert actual.half_width[0] ** 2 == pytest.approx(0.9 / 0.01 * squares * wider**2)
    assert actual.keys[0] == len(by_key)
    assert actual.largest_share[0] == pytest.approx((by_key**2).max() / (by_key**2).sum())


def test_calibrated_total_is_rows_times_mean() -> None:
    rows, key = clustered()
    actual = intervals({"s": SUM, "m": MEAN, "n": ROWS}, rows, draw(key, 1), 0.1)
    assert actual["s"].value[0] == pytest.approx(rows.height * actual["m"].value[0])
    assert actual["s"].half_width[0] == pytest.approx(rows.height * actual["m"].half_width[0])
    assert (actual["n"].value[0], actual["n"].exact[0]) == (rows.height, True)


def test_group_residuals_count_keys_without_rows() -> None:
    """Of a calibrated total by group, key by key, as the formula says it."""
    rows, key = clustered(keys=500)
    weights = draw(key, 2)
    actual = intervals({"s": SUM}, rows, weights, 0.3, factor=1.0, by=["g"])["s"]
    drawn = rows.with_columns(key=key).filter(pl.Series(weights < 0.3 * 2**32 - 2**31))
    scale = rows.height / drawn.height
    for at, group in enumerate(["a", "b", None]):
        per_key = drawn.group_by("key").agg(
            pl.len().alias("n"),
            pl.col("x").filter(pl.col("g").eq_missing(pl.lit(group, pl.String))).sum().alias("y"),
        )
        residual = per_key["y"] - per_key["y"].sum() / per_key["n"].sum() * per_key["n"]
        wider = 1 + abs((residual**3).sum()) / (residual**2).sum() ** 1.5
        squares = (residual**2).sum() + UNSEEN * (residual**2).max()
        assert actual.half_width[at] ** 2 == pytest.approx(0.7 * scale**2 * squares * wider**2)


def test_complete_reads_add_no_variance() -> None:
    rows, key = clustered()
    weights = draw(key, 4)
    alone = sample_of({"s": SUM}, rows, weights, 0.1, known=False)
    both = sample_of({"s": SUM}, rows, weights, 0.1, known=False, whole=rows.head(1000))
    assert both.totals[0, 1] - alone.totals[0, 1] == pytest.approx(rows.head(1000)["x"].sum())
    assert np.sort(both.keys.sums[:, 1]).tolist() == np.sort(alone.keys.sums[:, 1]).tolist()


ESTIMANDS = {
    "count": ROWS,
    "count of a condition": (pl.col("x") > 1).sum(),
    "sum": SUM,
    "mean": MEAN,
    "ratio": SUM / (pl.col("x") > 1).sum(),
    "std": pl.col("x").std(),
    "q": pl.col("x").quantile(0.8),
}
CASES: dict[str, dict[str, Any]] = {
    "all": {},
    "by": {"by": ["g"]},
    "where": {"where": pl.col("x") < 2.5},
    "where, not calibrated": {"where": pl.col("x") < 2.5, "known": False},
    "by, where": {"by": ["g"], "where": pl.col("x") < 2.5},
}


@pytest.mark.parametrize(
    ("case", "trials"),
    [("by, where", 12), *(pytest.param(case, 1_000, marks=pytest.mark.sweep) for case in CASES)],
)
def test_intervals_cover_94_percent_and_little_more(case: str, trials: int) -> None:
    """The share of the trials is off by several standard errors at most; a count of all rows alone is exact."""
    rows, key = clustered()
    population = Population(rows.with_columns(key=key), ESTIMANDS, key=["key"], **CASES[case])
    shares = population.covered(0.25, 0.95, count=trials).shares
    off = 3 * (0.94 * 0.06 / trials) ** 0.5
    exact = {"count"} if case in ("all", "where") else set()
    assert {name: share for name, share in shares.items() if not 0.94 - off <= share} == {}
    assert trials < 100 or {name for name, share in shares.items() if share > 0.995} <= exact


def test_few_keys_are_unreliable_and_read_on() -> None:
    rows, key = clustered(keys=900)
    actual = intervals({"s": SUM}, rows, draw(key, 1), 0.05)["s"]
    assert actual.keys[0] < MIN_KEYS
    assert not is_reliable(actual).any()
    expected = next_fraction(0.05, actual, Target(relative=9.0), np.ones(1, np.bool_))
    assert 0.05 * MIN_KEYS / actual.keys[0] < expected < 0.25


def test_key_with_most_variance_is_unreliable() -> None:
    rows = pl.DataFrame({"x": [1.0] * 9_999 + [1e6]})
    weights = np.arange(-(2**31), 2**31, 2**32 // 10_000).astype(np.int32)[:10_000]
    actual = intervals({"s": SUM}, rows.reverse(), weights, 0.2)["s"]
    assert actual.largest_share[0] > 0.9
    assert not is_met(actual, Target(relative=9.0)).any()


@pytest.mark.parametrize("value", [1.0, 7.5, 0.1, 1 / 3, 1e12 + 0.7, -2e-9])
@pytest.mark.parametrize("known", [True, False])
def test_equal_sampled_values_are_not_exact(value: float, *, known: bool) -> None:
    """Also if the residuals are rounding errors."""
    rows = pl.DataFrame({"x": [value] * 9_999 + [1e9]})
    weights = np.arange(-(2**31), 2**31, 2**32 // 10_000).astype(np.int32)[:10_000]
    actual = intervals({"m": MEAN}, rows, weights, 0.2, known=known)["m"]
    assert actual.value[0] == pytest.approx(value)
    assert (actual.half_width[0], actual.exact[0]) == (0.0, False)
    assert not is_reliable(actual).any()


@pytest.mark.parametrize("target", [Target(), Target(0.1)])
def test_unreliable_keys_double_the_fraction(target: Target) -> None:
    """Without a target, and where all values are the same, any width is enough: as much again is read."""
    rows = pl.DataFrame({"x": [1.0] * 9_999 + [1e9]})
    weights = np.arange(-(2**31), 2**31, 2**32 // 10_000).astype(np.int32)[:10_000]
    actual = intervals({"m": MEAN}, rows, weights, 0.2)["m"]
    assert next_fraction(0.2, actual, target, np.ones(1, np.bool_)) == 0.4


@pytest.mark.parametrize("skewness", [0.0, 0.13, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("enough", [0.05, 0.1, 0.5])
def test_skewness_falls_as_more_is_read(skewness: float, enough: float) -> None:
    """At the fraction that is named, less its margin, errors by the same variance and skewness are what is enough."""
    item, no, read = np.ones(1), np.zeros(1, np.bool_), 1e-3
    width = np.array([10.0])
    actual = Interval(100 * item, 100 - width, 100 + width, 500 * item, 0 * item, no, ~no, skewness * item)
    fraction = next_fraction(read, actual, Target(absolute=10 * enough), ~no, max_growth=1e6) / 1.1
    falls = (1 + skewness * np.sqrt(read / fraction)) / (1 + skewness)
    assert np.sqrt((1 / fraction - 1) / (1 / read - 1)) * falls == pytest.approx(enough, rel=2e-3)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_nan_and_infinities_have_no_bound(wrong: float) -> None:
    rows = pl.DataFrame({"x": [wrong, *map(float, range(9_999))]})
    weights = np.arange(-(2**31), 2**31, 2**32 // 10_000).astype(np.int32)[:10_000]
    for actual in intervals({"s": SUM, "q": pl.col("x").median()}, rows, weights, 0.2).values():
        assert not actual.finite.any()
        assert np.isnan(actual.low).all()
        # Reading on would not help.
        assert next_fraction(0.2, actual, Target(0.1), np.ones(1, np.bool_)) == 0.2


def test_several_answers_at_once_needs_wider_intervals() -> None:
    assert factor_of(0.95) == pytest.approx(1.95996, abs=1e-5)
    assert factor_of(0.95, answers=10) == pytest.approx(factor_of(0.995))
