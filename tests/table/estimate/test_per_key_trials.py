"""Estimates of values per key keep their promise: light and heavy users, null users, one giant."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from benchmarks.per_key_trials import ANSWERS, PER, SHAPES, clicks, shares, trials
from benchmarks.trials import Population

TABLES = 40


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
def test_values_per_key_keep_the_promise(shape: str) -> None:
    """95 % of the tables, less two standard errors of such a share."""
    actual = trials(shape, TABLES)
    assert all(result.met for result in actual)
    assert min(shares(actual).values()) >= 0.95 - 2 * (0.95 * 0.05 / TABLES) ** 0.5, shares(actual)


@pytest.mark.sweep
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_samples_of_many_users_keep_the_promise(shape: str, answer: str) -> None:
    """95 % of 1,000 samples of one table of more users, whose heavy keys are read apart."""
    values = clicks(shape, 1, 40_000).group_by("user").agg(**PER)
    values = values.filter(pl.col("spend") < 0.02 * pl.col("spend").sum())
    kept = Population(values, {answer: ANSWERS[answer]}, known=False).promised(0.05, 0.95, pilot=2_000)
    assert kept.shares[answer] >= 0.95 - 2 * (0.95 * 0.05 / 1000) ** 0.5, kept


def test_values_per_key_are_near_in_one_trial() -> None:
    actual = trials("giant 30%", 1, users=6_000)
    assert all(result.met for result in actual)
    assert np.mean([result.near for result in actual]) >= 0.75
    assert np.mean([result.fraction for result in actual]) < 0.8
