"""Reading on until the rules say so keeps the promise, also where tails are heavy; a trial is another key column."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.trials import Kept, trials

KEYS = 40_000


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


@pytest.mark.slow
@pytest.mark.parametrize("compared", ["known rows", "nothing"])
@pytest.mark.parametrize("name", distributions())
def test_the_promise_is_kept(name: str, compared: str) -> None:
    """Of 1,000 trials 95 % (99 %) of the answers are near enough; less two standard errors of such a share."""
    sums, rows = distributions()[name]
    known = compared == "known rows"
    for confidence in (0.95, 0.99):
        kept = trials(sums, rows, error=0.05, confidence=confidence, known=known)
        least = confidence - 2 * (confidence * (1 - confidence) / 1000) ** 0.5
        assert kept.share >= least, (confidence, kept)


@pytest.mark.parametrize("name", ["normal", "lognormal 1"])
def test_a_promise_is_kept_without_reading_everything(name: str) -> None:
    kept = trials(*distributions()[name], error=0.05, known=True, count=60)
    assert kept.share >= 0.9
    assert kept.fraction < 0.4


def test_what_cannot_be_promised_is_read_to_the_end() -> None:
    kept = trials(*distributions()["one in a thousand"], error=0.1, count=20)
    assert kept == Kept(1.0, 1.0)
