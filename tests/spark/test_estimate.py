"""Estimates on Spark are those of this process: the same table, the same sample, the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def test_answers_are_those_of_this_process(spark: SparkSession, path: Path) -> None:
    asked: dict[str, pl.Expr | str] = {
        "n": "count(*)",
        "mean": "avg(x)",
        "cents": "sum(cents)",
        "std": "stddev(x)",
        "median": pl.col("x").median(),
    }
    names = pl.DataFrame({"kind": ["a", "b"], "name": ["first", "second"]})
    options = {"by": "name", "where": "x < 20 OR name = 'first'", "join": (names, "kind"), "sample": 0.3}
    found, here = bridge.estimate(spark, path, asked, **options), qbeast.estimate(path, asked, **options)
    assert_frame_equal(found.frame, here.frame, rel_tol=1e-9)
    assert (found.rows_read, found.bytes_opened) == (here.rows_read, here.bytes_opened)


def test_it_reads_on_until_the_error_is_kept(spark: SparkSession, path: Path) -> None:
    found = bridge.estimate(spark, path, {"m": "avg(x)", "large": "count_if(x > 10)"}, error=0.04)
    here = qbeast.estimate(path, {"m": "avg(x)", "large": "count_if(x > 10)"}, error=0.04)
    assert found.met
    assert found.fraction == pytest.approx(here.fraction)
    assert_frame_equal(found.frame, here.frame, rel_tol=1e-9)


def test_what_cannot_be_answered_is_refused_before_a_job_runs(spark: SparkSession, path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="Max is decided by single rows"):
        bridge.estimate(spark, path, {"m": "max(x)"}, error=0.1)
