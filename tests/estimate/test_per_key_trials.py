"""Estimates of values per key keep their promise: light and heavy users, null users, one giant."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.per_key_trials import SHAPES, shares, trials

TABLES = 40


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
def test_values_per_key_keep_the_promise(shape: str) -> None:
    """95 % of the tables, less two standard errors of such a share."""
    actual = trials(shape, TABLES)
    assert all(result.met for result in actual)
    assert min(shares(actual).values()) >= 0.95 - 2 * (0.95 * 0.05 / TABLES) ** 0.5, shares(actual)


def test_values_per_key_are_near_in_one_trial() -> None:
    actual = trials("giant 30%", 1, users=4_000)
    assert all(result.met for result in actual)
    assert np.mean([result.near for result in actual]) >= 0.75
    assert np.mean([result.fraction for result in actual]) < 0.8
