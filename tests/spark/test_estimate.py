"""Estimates on Spark are those of this process: the same table, the same sample, the same answers."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
import qbeast_spark_bridge as bridge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(3)
    rows = pl.DataFrame(
        {
            "id": random.permutation(60_000),
            "x": random.lognormal(2, 0.5, 60_000),
            "kind": random.choice(["a", "b", "c"], 60_000),
            "cents": pl.Series(random.integers(0, 10**6, 60_000)).cast(pl.Decimal(12, 2)),
        }
    )
    place = tmp_path_factory.mktemp("estimate") / "t"
    for part in rows.iter_slices(30_000):  # keys of both files are put together here
        qbeast.write_table(part, place, columns=["id", "x"], mode="append")
    return place


def test_answers_equal_estimates_without_spark(spark: SparkSession, path: Path) -> None:
    request: dict[str, pl.Expr | str] = {
        "n": "count(*)",
        "mean": "avg(x)",
        "cents": "sum(cents)",
        "std": "stddev(x)",
        "median": pl.col("x").median(),
    }
    names = pl.DataFrame({"kind": ["a", "b"], "name": ["first", "second"]})
    options = {"by": "name", "where": "x < 20 OR name = 'first'", "join": (names, "kind"), "sample": 0.3}
    actual, here = bridge.estimate(spark, path, request, **options), qbeast.estimate(path, request, **options)
    assert_frame_equal(actual.frame, here.frame, rel_tol=1e-9)
    assert (actual.rows_read, actual.bytes_opened) == (here.rows_read, here.bytes_opened)


@pytest.mark.sweep
def test_estimate_reads_until_error_is_met(spark: SparkSession, path: Path) -> None:
    actual = bridge.estimate(spark, path, {"m": "avg(x)", "large": "count_if(x > 10)"}, error=0.04)
    here = qbeast.estimate(path, {"m": "avg(x)", "large": "count_if(x > 10)"}, error=0.04)
    assert actual.met
    assert actual.fraction == pytest.approx(here.fraction)
    assert_frame_equal(actual.frame, here.frame, rel_tol=1e-9)


@pytest.mark.sweep
def test_defaults_are_those_without_spark(spark: SparkSession, path: Path) -> None:
    by = "CASE WHEN id < 30 THEN 'rare' ELSE kind END"
    actual, here = bridge.estimate(spark, path, "avg(x)", by=by), qbeast.estimate(path, "avg(x)", by=by)
    assert_frame_equal(actual.frame, here.frame, rel_tol=1e-9)
    assert (actual.met, here.met) == (True, True)
    assert (actual.remarks, actual.summary, actual.groups) == (here.remarks, here.summary, here.groups)


def test_invalid_estimates_raise_before_a_job(spark: SparkSession, path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="Max depends on single rows"):
        bridge.estimate(spark, path, {"m": "max(x)"}, error=0.1)


@pytest.mark.sweep
def test_distinct_keys_equal_estimates_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    rows = pl.DataFrame(
        {
            "user": pl.Series(random.integers(0, 5_000, 40_000)).replace(7, None),
            "fare": random.gamma(2.0, 5.0, 40_000),
            "kind": random.choice(["a", "b"], 40_000),
        }
    )
    place = tmp_path / "t"
    for part in rows.iter_slices(20_000):  # users are in both files
        qbeast.write_table(part, place, columns=["fare"], sample_by=["user"], mode="append")
    users = pl.col("user").n_unique()
    alone: dict[str, pl.Expr | str] = {"n": users, "named": "count(DISTINCT user) FILTER (WHERE fare > 20)"}
    mixed = {**alone, "per user": pl.col("fare").sum() / users}
    exact: dict[str, Any] = {"error": 1e-6, "by": "kind"}
    sampled: dict[str, Any] = {"sample": 0.2, "by": "kind"}
    near: dict[str, Any] = {"error": 0.05}
    for request, options in product((alone, mixed), (sampled, near, exact)):
        actual = bridge.estimate(spark, place, request, **options)
        here = qbeast.estimate(place, request, **options)
        assert_frame_equal(actual.frame, here.frame, rel_tol=1e-9)
        assert (actual.met, actual.fraction) == (here.met, pytest.approx(here.fraction))
    counts = bridge.estimate(spark, place, alone, **exact).frame.sort("kind")["n"]
    assert counts.to_list() == rows.group_by("kind").agg(users).sort("kind")["user"].to_list()


@pytest.mark.sweep
def test_values_per_key_equal_estimates_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of a user are in several files; tasks read ranges of users."""
    random, place = np.random.default_rng(5), tmp_path / "t"
    user = pl.Series((5_000 * random.random(80_000) ** 2).astype(np.int64))
    rows = pl.DataFrame({"user": user.replace(7, None), "x": random.lognormal(2, 0.5, 80_000)})
    for part in rows.iter_slices(20_000):
        qbeast.write_table(part, place, columns=["x"], sample_by="user", mode="append")
    request: dict[str, Any] = {
        "aggregates": {"median": pl.col("spend").median(), "std": pl.col("spend").std(), "n": pl.len()},
        "per": {"spend": pl.col("x").sum(), "n_x": pl.col("x").n_unique()},
        "by": {"big": pl.col("n_x") > 10},
        "where": "x > 4",
    }
    choices: list[dict[str, Any]] = [
        {"sample": 0.3},
        {"sample": 0.5, "resources": qbeast.Resources(memory_bytes=1 << 22)},
        {"error": 0.1},
    ]
    for options in choices:
        actual = bridge.estimate(spark, place, **request, **options)
        assert_frame_equal(actual.frame, qbeast.estimate(place, **request, **options).frame, rel_tol=1e-9)
    values = rows.filter(pl.col("x") > 4).group_by("user").agg(**request["per"])
    truth = values.group_by(**request["by"]).agg(**request["aggregates"]).sort("big")
    actual = bridge.estimate(spark, place, **request, sample=1.0)
    assert_frame_equal(actual.frame.select(truth.columns), truth, rel_tol=1e-9, check_dtypes=False)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
@pytest.mark.parametrize("how", ["left", "inner", "semi", "anti"])
def test_joined_tables_equal_estimates_without_spark(spark: SparkSession, tmp_path: Path, how: Any) -> None:
    random = np.random.default_rng(8)
    users = random.integers(0, 3_000, 40_000)
    events = pl.DataFrame({"user": users, "fare": random.integers(0, 90, 40_000)})
    orders = events.filter(pl.col("user") % 3 != 0).head(9_000).rename({"fare": "cost"})
    for name, rows in {"events": events, "orders": orders}.items():
        qbeast.write_table(rows, tmp_path / name, columns=[rows.columns[1]], sample_by=["user"])
    request = {"n": "count(*)", "fare": "sum(fare)"}
    join = qbeast.Join(tmp_path / "orders", "user", how, where="cost < 60")
    truth = events.join(orders.filter(pl.col("cost") < 60), on="user", how=how)
    for sample in (0.2, 1.0):
        options: dict[str, Any] = {"join": join, "sample": sample}
        actual = bridge.estimate(spark, tmp_path / "events", request, **options)
        here = qbeast.estimate(tmp_path / "events", request, **options)
        assert_frame_equal(actual.frame, here.frame, rel_tol=1e-9)
        assert (actual.rows_read, actual.bytes_opened) == (here.rows_read, here.bytes_opened)
    assert actual.frame.select("n", "fare").row(0) == (truth.height, truth["fare"].sum())


def test_queries_equal_estimates_without_spark(spark: SparkSession, path: Path) -> None:
    query = (
        "SELECT k.name, count(*) AS n FROM t JOIN kinds AS k USING (kind) WHERE x < 20 GROUP BY k.name "
        "HAVING median(x) > 5 ORDER BY sum(x) DESC LIMIT 1"
    )
    options = {"join": {"kinds": pl.DataFrame({"kind": ["a", "b"], "name": ["one", "two"]})}, "sample": 0.3}
    actual, here = bridge.estimate(spark, path, query, **options), qbeast.estimate(path, query, **options)
    assert_frame_equal(actual.frame, here.frame, rel_tol=1e-9)
    assert actual.certain_order is here.certain_order
