"""Aggregates are recognised by their structure, come to what Polars says, or are refused by name with a reason."""

from __future__ import annotations

import polars as pl
import pytest

from qbeast_core.sampling.recognise import RefusedAggregate, recognise
from tests.sampling.answers import exact

ROWS = pl.DataFrame(
    {
        "a": [1.5, None, -4.0, 8.25, 1e6, 3.0],
        "b": [2, 3, None, -5, 7, 2**62],
        "c": [True, False, None, True, True, False],
        "g": ["x", "x", "y", None, "y", "x"],
        "d": pl.Series(["1.10", "2.20", None, "-0.05", "9.99", "3.00"]).cast(pl.Decimal(15, 2)),
    }
)
AGGREGATES = {
    "len": pl.len(),
    "count": pl.col("a").count(),
    "len of a column": pl.col("a").len(),
    "nulls": pl.col("b").null_count(),
    "sum": pl.col("a").sum(),
    "sum of booleans": pl.col("c").sum(),
    "sum of decimals": pl.col("d").sum(),
    "count of a condition": (pl.col("a") > 2).sum(),
    "mean": pl.col("a").mean(),
    "mean of booleans": pl.col("c").mean(),
    "product within": (pl.col("a") * pl.col("d")).sum(),
    "filter within": pl.col("a").filter(pl.col("c")).mean(),
    "len of a filter": pl.col("a").filter(pl.col("c")).len(),
    "variance": pl.col("a").var(),
    "population variance": pl.col("a").var(ddof=0),
    "standard deviation": pl.col("a").std(),
    "ratio": pl.col("a").sum() / pl.col("d").sum(),
    "arithmetic": 100.0 * pl.col("a").sum() / pl.len() - pl.col("d").mean() + 1,
    "negative": -pl.col("a").sum(),
    "root": pl.len().sqrt(),
    "cast": pl.len().cast(pl.Float64).alias("other"),
    "median": pl.col("a").median(),
    "quantile": pl.col("a").quantile(0.3, "linear"),
    "nearest quantile": pl.col("a").filter(pl.col("c")).quantile(0.9),
}


@pytest.mark.parametrize("name", AGGREGATES)
def test_exact_aggregates_equal_polars(name: str) -> None:
    actual = exact(AGGREGATES[name], ROWS)
    expected = ROWS.select(AGGREGATES[name].cast(pl.Float64)).to_series().to_list()
    assert actual == pytest.approx(expected, rel=1e-12)


def test_integers_beyond_64_bits_are_summed_exactly() -> None:
    rows = pl.DataFrame({"b": [2**62] * 9 + [-(2**62)] * 8})
    assert exact(pl.col("b").sum(), rows) == [2.0**62]


def test_variance_far_from_zero_keeps_digits() -> None:
    rows = pl.DataFrame({"x": [1e9 + item % 7 for item in range(1000)]})
    assert exact(pl.col("x").var(), rows) == pytest.approx([rows["x"].var()], rel=1e-9)


REFUSED = {
    "Max": (pl.col("a").max(), "Max depends on single rows"),
    "Min": (pl.col("a").min() + 1, "Min depends on single rows"),
    "NUnique": (pl.col("a").n_unique(), "n_unique depends on rare values"),
    "First": (pl.col("a").first(), "First picks single rows"),
    "Over": (pl.col("a").sum().over("g"), r"Over uses other rows \(a window\)"),
    "Column": (pl.col("a"), "Column is not an aggregate"),
    "Product": (pl.col("a").product(), "Product cannot be bounded"),
    "text": (pl.col("g").sum(), "a sum needs numbers, and .* is String"),
    "rounded": (pl.col("a").sum() // 2, "the operator FloorDivide is not smooth"),
    "levels": (pl.col("a").quantile([0.1, 0.2]), "one level"),
    "level": (pl.col("a").quantile(1.5), "between 0 and 1"),
    "integers": (pl.col("a").mean().cast(pl.Int64), "Cast cannot be bounded"),
    "python": (pl.col("a").sum().map_elements(abs), "cannot be bounded|Python function"),
    "filter": (pl.col("a").filter(pl.col("b")).sum(), "a filter needs a condition, and .* is Int64"),
    "list beside": (pl.len() * pl.lit(pl.Series([1, 2])), "is not a number"),
    "text beside": (pl.len() * pl.lit("12"), "is not a number"),
    "null beside": (pl.len() * pl.lit(None), "is not a number"),
    "several": (pl.col("a", "b").sum() + pl.lit("x"), "is not a number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_aggregates_without_bounds_raise(name: str) -> None:
    expr, message = REFUSED[name]
    with pytest.raises(RefusedAggregate, match=message):
        recognise({"it": expr}, lambda item: ROWS.select(item).dtypes[0])
