"""Promises are kept with heavy keys of every kind, by tables of both engines, appended to, deleted from, optimized."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.heavy_trials import QUESTIONS, SETS, SHAPES, shares, trials


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
def test_heavy_keys_keep_the_promise(shape: str) -> None:
    """95 % of 1,000 trials of each question, less two standard errors of such a share."""
    actual = trials(shape, 1_000)
    assert all(item.met for item in actual)
    assert min(shares(actual).values()) >= 0.95 - 2 * (0.95 * 0.05 / 1000) ** 0.5, shares(actual)


@pytest.mark.parametrize("shape", ["null 60%", "ten keys of 5%"])
def test_heavy_keys_keep_promise_in_few_trials(shape: str) -> None:
    actual = trials(shape, 4 * SETS, rows=20_000)
    assert {item.question for item in actual} == set(QUESTIONS)
    assert {item.state for item in actual} == {"written", "appended", "deleted", "optimized"}
    assert all(item.met for item in actual)
    assert min(shares(actual).values()) >= 0.75
    assert np.mean([item.share for item in actual]) < 0.5
