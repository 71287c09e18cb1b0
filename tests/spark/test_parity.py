"""A table is the same whoever writes it, and returns the same rows whoever reads it: Spark and Polars in turn."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Literal

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files
from tests.spark.frames import to_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from qbeast_core.table.write.write import WriteResult

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
Engine = Literal["spark", "polars"]
FRACTIONS = (0.01, 0.1, 0.5)
# Seconds an example: a failing one is shown as it was found, shrinking would take minutes.
few = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate], deadline=None)


@pytest.mark.timeout(1500)
@examples(2, sweep=12, parent=few)
@given(case=st.one_of(cases(most_frames=3), cases(most_frames=3).map(with_key_in_rows)))
def test_engines_write_same_table_in_turn(spark: SparkSession, case: Case) -> None:
    """Write a case twice, each frame by Spark in one table and by Polars in the other."""
    with folder() as here, folder() as there:
        tables = {
            here: write_in_turn(spark, here, case, first="spark"),
            there: write_in_turn(spark, there, case, first="polars"),
        }
        expected = {
            fraction: sampled(case.rows, case.indexed, fraction)[ROW].sort().to_list()
            for fraction in FRACTIONS
        }
        for path in tables:
            assert_same_rows(qbeast.read_table(path), case.rows)
            assert sum(block.rows for block in check_invariants(path)) == case.rows.height
            in_polars = {f: qbeast.read_table(path, sample=f)[ROW].sort().to_list() for f in FRACTIONS}
            assert in_polars == expected
        for road, actual in samples_in_spark(spark, list(tables)).items():
            assert actual == expected, road
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
    actual: pl.DataFrame = pl.DataFrame(reduce(lambda a, b: a.union(b), parts).toArrow())
    roads = [f"{road} {number}" for road in ("read_table", "format") for number in range(len(tables))]
    return {
        road: {
            fraction: actual.filter(road=road, fraction=fraction)["row"].sort().to_list()
            for fraction in FRACTIONS
        }
        for road in roads
    }
