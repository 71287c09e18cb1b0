"""Estimates of joins keep their promise."""

from __future__ import annotations

import pytest

from benchmarks.join_trials import KINDS, SHAPES, Kind, shares, trial


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
