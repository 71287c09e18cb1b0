"""A part of the sampled keys tells a variance where no key is heavy; where one may be, all keys are looked at."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tests.estimate.answers import intervals, sample_of

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


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("key_rows", [1, 2])
@pytest.mark.parametrize("by", [[], ["kind"]])
def test_it_tells_what_all_keys_tell(by: list[str], key_rows: int, *, known: bool) -> None:
    rows, weights = drawn(np.random.default_rng(4).normal(50, 10, ROWS), key_rows=key_rows)
    options = {"by": by, "known": known, "where": pl.col("x") > 45}
    part = sample_of(ASKED, rows, weights, FRACTION, part=True, **options).part
    assert part is not None
    assert (part.share < 1.0).tolist() == ([True, True, False] if by else [True])
    some = intervals(ASKED, rows, weights, FRACTION, part=True, **options)
    every = intervals(ASKED, rows, weights, FRACTION, **options)
    for name, one in some.items():
        assert one.value == pytest.approx(every[name].value, rel=1e-12)  # threads add floats in any order
        assert one.half_width == pytest.approx(every[name].half_width, rel=0.06), name
        whole = part.share == 1.0
        assert one.half_width[whole] == pytest.approx(every[name].half_width[whole], rel=1e-9)
        assert one.keys == pytest.approx(every[name].keys, rel=0.05)
        assert (one.largest_share >= 0.9 * every[name].largest_share).all()
        assert (one.largest_share < 0.01)[part.share < 1.0].all()


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
@pytest.mark.parametrize("by", [[], ["kind"]])
def test_heavy_keys_are_all_looked_at(by: list[str], name: str) -> None:
    rows, weights = drawn(heavy()[name])
    asked = {"sum": ASKED["sum"], "mean": ASKED["mean"]}
    some = intervals(asked, rows, weights, FRACTION, by=by, part=True)
    every = intervals(asked, rows, weights, FRACTION, by=by)
    for one in asked:
        np.testing.assert_array_equal(some[one].half_width, every[one].half_width)
        np.testing.assert_array_equal(some[one].largest_share, every[one].largest_share)
        np.testing.assert_array_equal(some[one].keys, every[one].keys)


def test_heavy_keys_outside_of_the_part_are_not_missed() -> None:
    values = np.random.default_rng(4).normal(50, 10, ROWS)
    rows, weights = drawn(values)
    last = np.argsort(np.where(weights < 0.8 * 2**32 - 2**31, weights, -(2**31)))[-3:]
    values[last] = 1e5
    rows = rows.with_columns(x=pl.Series(values))
    found = intervals({"sum": ASKED["sum"]}, rows, weights, FRACTION, part=True)["sum"]
    assert found.largest_share[0] > 0.2


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("summed", [True, False])
def test_a_key_of_many_rows_is_not_missed(*, summed: bool, known: bool) -> None:
    values = np.random.default_rng(4).normal(50, 10, ROWS)
    rows, weights = drawn(values)
    weights[:5_000] = round(0.8 * 2**32 - 2**31) - 1  # the last one of the sample
    asked, options = {"sum": ASKED["sum"]}, {"known": known, "summed": summed}
    found = intervals(asked, rows, weights, FRACTION, part=True, **options)["sum"]
    every = intervals(asked, rows, weights, FRACTION, **options)["sum"]
    assert found.largest_share == pytest.approx(every.largest_share)
    assert known or found.largest_share[0] > 0.9
