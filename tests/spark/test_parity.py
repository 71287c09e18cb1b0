"""A table is the same whoever writes it, and returns the same rows whoever reads it: Spark and Polars in turn."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import qbeast
import qbeast_spark_bridge as bridge
from tests.integration.invariants import check_invariants
from tests.integration.tables import assert_same_rows, folder, sampled, small_files
from tests.spark.frames import to_spark
from tests.strategies import ROW, Case, cases, with_key_in_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from qbeast_core.table.result import WriteResult

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
Engine = Literal["spark", "polars"]
FRACTIONS = (0.01, 0.1, 0.5)
# Seconds an example: a failing one is shown as it was found, shrinking would take minutes.
few = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate], deadline=None)
keyed_cases = st.one_of(cases(most_frames=3), cases(most_frames=3).map(with_key_in_rows))


@settings(few, max_examples=4)
@given(case=keyed_cases)
def test_both_engines_write_the_same_table_in_turn(spark: SparkSession, case: Case) -> None:
    check_parity(spark, case)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@settings(few, max_examples=60)
@given(case=keyed_cases)
def test_both_engines_write_the_same_table_in_turn_at_length(spark: SparkSession, case: Case) -> None:
    check_parity(spark, case)


def check_parity(spark: SparkSession, case: Case) -> None:
    """Write a case twice, each frame by Spark in one table and by Polars in the other."""
    with folder() as here, folder() as there:
        tables = {
            here: write_in_turn(spark, here, case, first="spark"),
            there: write_in_turn(spark, there, case, first="polars"),
        }
        wanted = {
            fraction: sampled(case.rows, case.indexed, fraction)[ROW].sort().to_list()
            for fraction in FRACTIONS
        }
        for path in tables:
            assert_same_rows(qbeast.read_table(path), case.rows)
            assert sum(block.rows for block in check_invariants(path)) == case.rows.height
            in_polars = {f: qbeast.read_table(path, sample=f)[ROW].sort().to_list() for f in FRACTIONS}
            assert in_polars == wanted
        for road, found in samples_in_spark(spark, list(tables)).items():
            assert found == wanted, road
        assert [r.transformers for r in tables[here]] == [r.transformers for r in tables[there]]


def write_in_turn(spark: SparkSession, path: Path, case: Case, *, first: Engine) -> list[WriteResult]:
    results = []
    for number, (frame, size) in enumerate(zip(case.frames, case.cube_sizes, strict=True)):
        by_spark = (number % 2 == 0) == (first == "spark")
        rows = to_spark(spark, frame, path.parent / f"raw-{number}") if by_spark else frame
        with small_files():
            result = (bridge if by_spark else qbeast).write_table(
                rows,
                path,
                columns=case.columns,
                mode="append" if number else "error",
                cube_size=size,
                dialect=case.dialect,
            )
        assert (result.rows, result.version) == (frame.height, number)
        results.append(result)
    return results


def samples_in_spark(spark: SparkSession, tables: list[Path]) -> dict[str, dict[float, list[int]]]:
    """Return the row numbers of samples by table and road; one job asks for all of them."""
    bridge.register(spark)
    parts: list[DataFrame] = []
    for table in tables:
        for fraction in FRACTIONS:
            source = spark.read.format("qbeast").option("sample", fraction).load(str(table))
            for road, rows in (
                ("read_table", bridge.read_table(spark, table, sample=fraction)),
                ("format", source),
            ):
                label = f"'{road} {tables.index(table)}' AS road, {fraction}D AS fraction"
                parts.append(rows.selectExpr(f"CAST({ROW} AS BIGINT) AS row", *label.split(", ")))
    found: pl.DataFrame = pl.DataFrame(reduce(lambda a, b: a.union(b), parts).toArrow())
    roads = [f"{road} {number}" for road in ("read_table", "format") for number in range(len(tables))]
    return {
        road: {
            fraction: found.filter(road=road, fraction=fraction)["row"].sort().to_list()
            for fraction in FRACTIONS
        }
        for road in roads
    }


@pytest.fixture(
    scope="module",
    params=[
        300_000,
        pytest.param(4_000_000, marks=pytest.mark.slow),
    ],  # a tree of all rows, and of one in four
    ids=lambda count: f"{count:,} rows",
)
def twins(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[Engine, qbeast.Table]:
    """Tables of the same rows, large enough for their pages to be counted."""
    rng = np.random.default_rng(11)
    count = int(request.param)
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
    root = tmp_path_factory.mktemp("twins")
    columns = ["price", "at", "id"]
    bridge.write_table(to_spark(spark, rows, root / "raw", parts=3), root / "spark", columns=columns)
    qbeast.write_table(rows, root / "polars", columns=columns)
    return {"spark": qbeast.open_table(root / "spark"), "polars": qbeast.open_table(root / "polars")}


ASKED: dict[str, dict[str, Any]] = {
    "1 %": {"sample": 0.01},
    "10 %": {"sample": 0.1},
    "30 %": {"sample": 0.3},
    "price": {"predicate": pl.col("price") < 5},
    "id": {"predicate": pl.col("id").is_between(1_200_000, 2_400_000)},
    "box": {"predicate": pl.col("price").is_between(20, 40) & (pl.col("id") < 3_600_000)},
    "box of 10 %": {
        "predicate": pl.col("price").is_between(20, 40) & (pl.col("id") < 3_600_000),
        "sample": 0.1,
    },
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_both_tables_open_about_the_same_share(
    twins: dict[Engine, qbeast.Table], asked: dict[str, Any]
) -> None:
    spark, polars = (twins[engine].explain(**asked) for engine in ("spark", "polars"))
    assert spark.share == pytest.approx(polars.share, rel=0.05)


def test_both_tables_have_about_the_same_size(twins: dict[Engine, qbeast.Table]) -> None:
    spark, polars = (twins[engine].explain() for engine in ("spark", "polars"))
    assert spark.rows_total == polars.rows_total
    assert spark.bytes_total == pytest.approx(polars.bytes_total, rel=0.02)
    assert len(twins["spark"].files()) == len(twins["polars"].files())
    assert twins["spark"].cube_size == twins["polars"].cube_size
