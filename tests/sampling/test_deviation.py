"""Samples that lack a heavy key deviate from what is known of all rows; samples of like keys rarely do."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.sampling.confidence import Target, is_met, is_reliable, next_fraction
from qbeast_core.sampling.sums import MIN_CHANCE, SeenRows
from tests.sampling.answers import intervals

KEYS = 20_000
N = {"n": pl.col("x").sum(), "q": pl.col("x").quantile(0.4)}


@pytest.mark.parametrize("rows_of_key", [1, 7])
def test_chance_alone_rarely_deviates(rows_of_key: int) -> None:
    random, trials = np.random.default_rng(3), 20_000
    drawn = random.binomial(KEYS, 0.1, trials) * float(rows_of_key)
    seen = [SeenRows(rows, rows * rows_of_key, 0.1) for rows in drawn.tolist()]
    alarms = sum(item.deviates(KEYS * rows_of_key) for item in seen)
    assert alarms <= MIN_CHANCE * trials + 4 * (MIN_CHANCE * trials) ** 0.5


@given(st.integers(0, 10**6), st.floats(0, 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_rows_within_bounds_never_deviate(rows: int, share: float, below: int, above: int) -> None:
    probability = 0.01 + 0.99 * share
    all_rows = rows / probability
    assert not SeenRows(rows, rows, probability).deviates(all_rows - below, all_rows + above)


def test_sample_without_heavy_key_is_unreliable() -> None:
    x = np.concatenate([np.ones(KEYS), np.zeros(KEYS // 10)])
    weights = np.linspace(-(2**31), 2**31 - 1, KEYS).astype(np.int32)
    weights = np.concatenate([weights, np.full(KEYS // 10, 7, np.int32)])
    frame = pl.DataFrame({"x": x})
    for actual in intervals(N, frame, weights, 0.1).values():
        assert actual.deviates
        assert not is_reliable(actual).any()
        assert not is_met(actual, Target(0.5)).any()
        assert next_fraction(0.1, actual, Target(0.5), np.ones(1, np.bool_)) == 1.0
    for actual in intervals(N, frame, weights, 1.0).values():
        assert is_reliable(actual).all()
