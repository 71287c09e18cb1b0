"""A part of the sampled keys tells a variance where no key is heavy; where one may be, all keys are looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np
import polars as pl
import pytest

from qbeast_core.sampling.confidence import smooth_interval
from tests.sampling.answers import intervals, recognised, sample_of

ROWS = 300_000
FRACTION = 0.8
ASKED = {
    "rows": pl.len(),
    "sum": pl.col("x").sum(),
    "mean": pl.col("x").mean(),
    "ratio": pl.col("x").sum() / pl.col("y").sum(),
}


def drawn(values: np.ndarray, *, key_rows: int = 1) -> tuple[pl.DataFrame, np.ndarray]:
    """Rows in three groups, one of them small, and weights: of so many rows each."""
    random = np.random.default_rng(8)
    kinds = pl.Series(random.choice(["a", "b", None], ROWS, p=[0.795, 0.2, 0.005]), dtype=pl.String)
    rows = pl.DataFrame({"x": values, "y": random.normal(10, 1, ROWS), "kind": kinds})
    keys = random.integers(-(2**31), 2**31, -(-ROWS // key_rows))
    return rows, np.repeat(keys, key_rows)[:ROWS].astype(np.int32)


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("key_rows", [pytest.param(1, marks=pytest.mark.sweep), 2])
@pytest.mark.parametrize("by", [[], ["kind"]])
def test_part_estimates_same_as_all_keys(by: list[str], key_rows: int, *, existing: bool) -> None:
    rows, weights = drawn(np.random.default_rng(4).normal(50, 10, ROWS), key_rows=key_rows)
    options = {"by": by, "known": existing, "where": pl.col("x") > 45}
    part = sample_of(ASKED, rows, weights, FRACTION, part=True, **options).part
    assert part is not None
    assert (part.share < 1.0).tolist() == ([True, True, False] if by else [True])
    some = intervals(ASKED, rows, weights, FRACTION, part=True, **options)
    everything = intervals(ASKED, rows, weights, FRACTION, **options)
    for name, item in some.items():
        assert item.value == pytest.approx(
            everything[name].value, rel=1e-12
        )  # threads add floats in any order
        assert item.half_width == pytest.approx(everything[name].half_width, rel=0.06), name
        whole = part.share == 1.0
        assert item.half_width[whole] == pytest.approx(everything[name].half_width[whole], rel=1e-9)
        assert item.keys == pytest.approx(everything[name].keys, rel=0.05)
        assert (item.largest_share >= 0.9 * everything[name].largest_share).all()
        assert (item.largest_share < 0.01)[part.share < 1.0].all()


def heavy() -> dict[str, np.ndarray]:
    """Values of which few decide a sum."""
    random = np.random.default_rng(6)
    return {
        "lognormal 2": random.lognormal(0, 2, ROWS),
        "Pareto 1.5": random.pareto(1.5, ROWS) + 1,
        "one in a thousand": (random.random(ROWS) < 0.001).astype(float),
        "Zipf": np.minimum(random.zipf(1.7, ROWS), 20_000).astype(float),
        "not a number": np.where(np.arange(ROWS) == 7, np.nan, 1.0),
    }


@pytest.mark.parametrize("name", heavy())
@pytest.mark.parametrize("by", [pytest.param([], marks=pytest.mark.sweep), ["kind"]])
def test_all_heavy_keys_are_included(by: list[str], name: str) -> None:
    rows, weights = drawn(heavy()[name])
    request = {"sum": ASKED["sum"], "mean": ASKED["mean"]}
    some = intervals(request, rows, weights, FRACTION, by=by, part=True)
    everything = intervals(request, rows, weights, FRACTION, by=by)
    for item in request:
        # Threads add floats in any order.
        np.testing.assert_allclose(some[item].half_width, everything[item].half_width, rtol=1e-9)
        np.testing.assert_allclose(some[item].largest_share, everything[item].largest_share, rtol=1e-9)
        np.testing.assert_array_equal(some[item].keys, everything[item].keys)


def test_heavy_keys_outside_part_are_counted() -> None:
    values = np.random.default_rng(4).normal(50, 10, ROWS)
    rows, weights = drawn(values)
    last = np.argsort(np.where(weights < 0.8 * 2**32 - 2**31, weights, -(2**31)))[-3:]
    values[last] = 1e5
    rows = rows.with_columns(x=pl.Series(values))
    actual = intervals({"sum": ASKED["sum"]}, rows, weights, FRACTION, part=True)["sum"]
    assert actual.largest_share[0] > 0.2


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("summed", [True, False])
def test_key_of_many_rows_is_counted(*, summed: bool, existing: bool) -> None:
    values = np.random.default_rng(4).normal(50, 10, ROWS)
    rows, weights = drawn(values)
    weights[:5_000] = round(0.8 * 2**32 - 2**31) - 1  # the last one of the sample
    request, options = {"sum": ASKED["sum"]}, {"known": existing, "summed": summed}
    actual = intervals(request, rows, weights, FRACTION, part=True, **options)["sum"]
    everything = intervals(request, rows, weights, FRACTION, **options)["sum"]
    assert actual.largest_share == pytest.approx(everything.largest_share)
    assert existing or actual.largest_share[0] > 0.9


def not_looked_at() -> NoReturn:
    raise AssertionError


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("by", [[], ["kind"]])
def test_few_repeated_keys_do_not_need_all(by: list[str], *, existing: bool) -> None:
    """In a large sample some keys share a weight: each is as heavy as several, but they are few."""
    rows, weights = drawn(np.random.default_rng(4).normal(50, 10, ROWS))
    kept = np.flatnonzero(weights < 0.8 * 2**32 - 2**31)
    weights[kept[:15]] = np.repeat(weights[kept[:15:3]], 3)
    options = {"by": by, "known": existing}
    request = {name: ASKED[name] for name in ("rows", "sum", "mean")}
    everything = intervals(request, rows, weights, FRACTION, **options)
    sample = sample_of(request, rows, weights, FRACTION, part=True, **options)
    assert sample.part is not None
    assert sample.part.max_rows >= 3
    for answer in recognised(request, rows).answers:
        item = smooth_interval(replace(sample, all_keys=not_looked_at), answer, 1.96)
        assert item.half_width == pytest.approx(everything[answer.name].half_width, rel=0.06), answer.name
        assert (item.largest_share >= 0.9 * everything[answer.name].largest_share).all()


@pytest.mark.parametrize("by", [[], ["kind"]])
def test_constant_values_have_no_error(by: list[str]) -> None:
    rows, weights = drawn(np.full(ROWS, 3.0))
    weights[:6] = -(2**31)  # a key of several rows
    actual = intervals(ASKED, rows, weights, FRACTION, by=by, part=True)
    assert actual["mean"].half_width == pytest.approx(0.0, abs=1e-9)
    if not by:
        assert actual["sum"].value == pytest.approx(3.0 * ROWS)
        assert actual["sum"].half_width == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("factor", [0.0, 1.0, 1e-160, 1e100, 1e150])
def test_part_handles_tiny_and_huge_values(factor: float) -> None:
    """Fourth powers of residuals have no place in a float; where values are all alike, nothing varies."""
    values = np.random.default_rng(4).normal(50, 10, ROWS) * factor
    rows, weights = drawn(values)
    request = {"sum": ASKED["sum"]}
    some = intervals(request, rows, weights, FRACTION, part=True)["sum"]
    everything = intervals(request, rows, weights, FRACTION)["sum"]
    np.testing.assert_allclose(some.half_width, everything.half_width, rtol=0.06)
    values[np.argmax(weights == weights[weights < 0.8 * 2**32 - 2**31].max())] = 1e4 * max(factor, 1e-160)
    rows = rows.with_columns(x=pl.Series(values))
    heavy = intervals(request, rows, weights, FRACTION, part=True)["sum"]
    of_all = intervals(request, rows, weights, FRACTION)["sum"]
    np.testing.assert_allclose(heavy.half_width, of_all.half_width, rtol=1e-9)
