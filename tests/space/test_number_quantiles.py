"""Ranks of many values take a guessed place among the knots; it must be the searched one."""

from __future__ import annotations

import numpy as np
import pytest

from qbeast_core.space.coordinates import number_ranks

ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308]
RNG = np.random.default_rng(11)
MANY = 40_000


COLUMNS = {
    "normal": RNG.normal(size=MANY),
    "skewed": RNG.lognormal(0, 4, MANY),
    "few values": RNG.integers(0, 50, MANY).astype(np.float64),
    "far apart": np.concatenate([RNG.random(MANY), [1e300, -1e300]]),
    "denormal": RNG.random(MANY) * 1e-310,
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_many_values_rank_like_single_values(name, first):
    values = COLUMNS[name]
    knots = np.unique(np.quantile(values, np.linspace(0, 1, 1024)))
    request = np.concatenate([values, knots, np.nextafter(knots, np.inf), np.nextafter(knots, -np.inf), ODD])
    together = number_ranks(knots.tolist(), request, first=first)
    some = np.concatenate(
        [RNG.integers(0, len(request), 500), np.arange(len(request) - len(ODD), len(request))]
    )
    alone = [number_ranks(knots.tolist(), request[i : i + 1], first=first)[0] for i in some]
    assert together[some].tolist() == alone
