"""Samples and filters open as much of a table that Spark wrote as of one that Polars wrote from the same rows.

One question about a pair of tables says little where a tree is drawn from a sample: cubes of 8 pages begin just before
or just after the border of a page, a sample of 30 % stops at the thresholds of 64 cubes at once, and a box that begins
at a median opens a half more where the median is known a little less well. Eight tables of 4 million rows, all by
Polars and alike but for their seeds, spread by 9 % at a 1 % sample, by 5 % at 30 %, and by 2 % in the mean of 13
fractions. So large tables are compared by means, over several pairs of them.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.spark.frames import to_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.classic, pytest.mark.sweep]

FRACTIONS = (0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7)
BOXES = 30
# Between two quartiles of the price, 20.1 and 39.4.
BOX = pl.col("price").is_between(25, 36) & (pl.col("id") < 3_600_000)
ASKED: dict[str, dict[str, Any]] = {
    "1 %": {"sample": 0.01},
    "10 %": {"sample": 0.1},
    "30 %": {"sample": 0.3},
    "price": {"where": pl.col("price") < 5},
    "id": {"where": pl.col("id").is_between(1_200_000, 2_400_000)},
    "box": {"where": BOX},
    "box of 10 %": {"where": BOX, "sample": 0.1},
}
BY_CHANCE = ("1 %", "30 %")  # of one pair of large tables


class Twins(NamedTuple):
    """Tables of the same rows."""

    spark: qbeast.Table
    polars: qbeast.Table


def write_twins(spark: SparkSession, root: Path, count: int, *, seed: int) -> Twins:
    rng = np.random.default_rng(seed)
    rows = pl.DataFrame(
        {
            "id": rng.permutation(count) * (12_000_000 // count),
            "price": rng.lognormal(3, 1, count).round(2),
            "at": pl.Series(rng.integers(0, 10**12, count))
            .cast(pl.Datetime("us"))
            .dt.replace_time_zone("UTC"),
            "brand": (rng.zipf(1.5, count) % 90).astype(str),
            "note": rng.random(count),
        }
    )
    columns = ["price", "at", "id"]
    bridge.write_table(to_spark(spark, rows, root / "raw", parts=3), root / "spark", columns=columns)
    qbeast.write_table(rows, root / "polars", columns=columns)
    return Twins(qbeast.open_table(root / "spark"), qbeast.open_table(root / "polars"))


def assert_same_size(twins: Twins) -> None:
    spark, polars = (table.rows().explain() for table in twins)
    assert spark.rows_total == polars.rows_total
    assert spark.bytes_total == pytest.approx(polars.bytes_total, rel=0.02)
    assert len(twins.spark.rows().files()) == len(twins.polars.rows().files())
    assert twins.spark.cube_size == twins.polars.cube_size


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return write_twins(spark, tmp_path_factory.mktemp("twins"), 300_000, seed=11)


@pytest.mark.parametrize("options", ASKED.values(), ids=ASKED.keys())
def test_both_tables_open_about_the_same_share(twins: Twins, options: dict[str, Any]) -> None:
    spark, polars = (table.rows(**options).explain() for table in twins)
    assert spark.share == pytest.approx(polars.share, rel=0.05)


def test_both_tables_have_about_the_same_size(twins: Twins) -> None:
    assert_same_size(twins)


def test_source_opens_the_same_after_one_optimize(spark: SparkSession, twins: Twins, tmp_path: Path) -> None:
    rows = spark.read.format("qbeast").load(twins.polars.uri)
    options = {"columnsToIndex": ",".join(twins.polars.indexed_columns)}
    rows.write.format("qbeast").mode("append").options(**options).save(str(tmp_path / "t"))
    qbeast.open_table(tmp_path / "t").optimize()
    table = qbeast.open_table(tmp_path / "t")
    assert_same_size(Twins(table, twins.polars))
    for asked in ASKED.values():
        assert table.rows(**asked).explain().share == pytest.approx(
            twins.polars.rows(**asked).explain().share, rel=0.05
        )


@pytest.fixture(scope="module")
def pairs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Twins]:
    """Large tables: Spark's trees are drawn from one row in sixteen."""
    root = tmp_path_factory.mktemp("pairs")
    return [write_twins(spark, root / str(seed), 4_000_000, seed=seed) for seed in (11, 0, 1)]


@pytest.mark.parametrize("name", [name for name in ASKED if name not in BY_CHANCE])
def test_large_tables_open_about_the_same_share(pairs: list[Twins], name: str) -> None:
    spark, polars = (table.rows(**ASKED[name]).explain() for table in pairs[0])
    assert spark.share == pytest.approx(polars.share, rel=0.05)


def test_large_tables_open_the_same_on_average(pairs: list[Twins]) -> None:
    for pair in pairs:
        assert_same_size(pair)
    for seen in (amplification, share_of_boxes):
        by_spark, by_polars = (mean(seen(pair[number]) for pair in pairs) for number in range(2))
        assert by_spark == pytest.approx(by_polars, rel=0.04), seen


def amplification(table: qbeast.Table) -> float:
    """Return the bytes that samples open over those of a perfect sample, the mean of all fractions."""
    return mean(table.rows(sample=fraction).explain().share / fraction for fraction in FRACTIONS)


def share_of_boxes(table: qbeast.Table) -> float:
    """Return the share of bytes that boxes at random places open, the mean over them."""
    rng = np.random.default_rng(5)
    prices = np.exp(3 + np.sort(rng.normal(size=(BOXES, 2))))
    ids = np.sort(rng.uniform(0, 12_000_000, (BOXES, 2)))
    return mean(
        table.rows(pl.col("price").is_between(*price) & pl.col("id").is_between(*some)).explain().share
        for price, some in zip(prices.tolist(), ids.tolist(), strict=True)
    )
