"""Joins keep the promise: with all steps of an estimate in some trials, and with sums of keys in many."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.join_trials import KINDS, SHAPES, Kind, shares, sizes_of, trial
from benchmarks.trials import trials

KEYS = 20_000


def kept_share(shape: str, kind: Kind, values: str, count: int) -> float:
    """The share of trials whose sum over the joined rows is within 5 %; heavy keys are known, so they are left out."""
    random = np.random.default_rng(7)
    others = sizes_of(shape, random, KEYS)
    left = np.ones(KEYS, np.int64) if kind == "1:n" else sizes_of(shape, random, KEYS)
    listed = (left * 256 >= left.sum()) | (others * 256 >= others.sum())
    sums = (left * others).astype(float)
    if values == "sum":
        sums *= random.lognormal(0, 0.5, KEYS)
    sampled = (left > 0) & ~listed
    return trials(sums[sampled], left[sampled].astype(float), error=0.05, known=True, count=count).share


@pytest.mark.sweep
@pytest.mark.parametrize("values", ["rows", "sum"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_joins_of_light_and_heavy_keys_keep_promise(shape: str, kind: Kind, values: str) -> None:
    """95 % of 1,000 trials, less two standard errors of such a share."""
    assert kept_share(shape, kind, values, 1_000) >= 0.95 - 2 * (0.95 * 0.05 / 1000) ** 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_sums_over_joins_keep_promise_in_few_trials(kind: Kind) -> None:
    assert kept_share("light", kind, "sum", 40) >= 0.85


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_joins_of_two_tables_keep_promise(shape: str, kind: Kind) -> None:
    results = [trial(shape, kind, seed) for seed in range(100)]
    assert all(item.met for item in results)
    assert shares(results)[0] >= 0.95 - 2 * (0.95 * 0.05 / 100) ** 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_join_of_two_tables_is_near_in_one_trial(kind: Kind) -> None:
    result = trial("null", kind, 1)
    assert result.met
    assert all(result.near)
    assert result.fraction < 0.5
