"""Promises are kept with heavy keys of every kind, by tables of both engines, appended to, deleted from, optimized."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import heavy_trials
from benchmarks.heavy_trials import QUESTIONS, SHAPES, shares, trials

TRIALS = 60


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
def test_heavy_keys_keep_the_promise(shape: str) -> None:
    """95 % of the trials of each question, less two standard errors of such a share."""
    actual = trials(shape, TRIALS)
    assert all(item.met for item in actual)
    assert min(shares(actual).values()) >= 0.95 - 2 * (0.95 * 0.05 / TRIALS) ** 0.5, shares(actual)


@pytest.mark.parametrize(("shape", "seed"), [("null 60%", 2), ("ten keys of 5%", 3)])
def test_heavy_keys_keep_promise_in_one_trial(shape: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_trials, "SETS", 1)
    actual = trials(shape, 1, rows=20_000, first=seed)
    assert {item.question for item in actual} == set(QUESTIONS)
    assert {item.state for item in actual} == {heavy_trials.STATES[seed]}
    assert all(item.met for item in actual)
    assert min(shares(actual).values()) == 1
    assert np.mean([item.share for item in actual]) < 0.6
