"""A plan for Spark opens the files that the read opens, and says what its condition is not used for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import polars as pl
import pytest
from pyspark.sql import functions as f
from sqlglot import exp
from sqlglot.parser import Parser

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.table.read.planner import FilterPlanner
from qbeast_spark_bridge.datasource.options import ReadOptions
from qbeast_spark_bridge.datasource.plan import SourcePlan
from tests.helpers.tables import small_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, n = tmp_path_factory.mktemp("explain") / "sales", pl.int_range(4_000)
    rows = pl.select(price=n * 7919 % 4_001, client=n * 101 % 503, store=n % 5)
    with small_files(file_rows=400, page_rows=50):
        qbeast.write_table(rows, path, columns=["price", "client:hash"], cube_size=50)
    return path


@pytest.mark.parametrize(
    "where",
    [
        "price < 100 AND store = 1",
        pytest.param("price < 100", marks=pytest.mark.sweep),
        pytest.param(pl.col("price") > 3_900, marks=pytest.mark.sweep),
        pytest.param("client < 9", marks=pytest.mark.sweep),
    ],
)
def test_plan_opens_files_spark_reads(spark: SparkSession, sales: Path, where: str | pl.Expr) -> None:
    plan = bridge.open_table(spark, sales).rows(where).explain()
    read = {Path(name).name for name in bridge.read_table(spark, sales, where=where).inputFiles()}
    assert {Path(name).name for name in plan.files.filter("opened")["path"]} == read
    assert list(plan.unused_conditions.values()) == list(
        qbeast.open_table(sales).rows(where).explain().unused_conditions.values()
    )


def test_text_is_parsed_once_and_a_read_planned_once(spark: SparkSession, sales: Path) -> None:
    where = "price < 3900 AND (store = 1 OR store = 2)"  # plain texts need no parser
    table = bridge.open_table(spark, sales)

    def through_source() -> None:
        options = {"path": str(sales), "where": where, "sample": "0.5"}
        plan = SourcePlan.open(ReadOptions.of(options), None)
        plan.tasks(plan.schema())

    calls = {
        "read_table": lambda: bridge.read_table(spark, sales, where=where, sample=0.5),
        "explain": lambda: table.rows(where, sample=0.5).explain(),
        "delete": lambda: table.delete(where, dry_run=True),
        "source": through_source,
    }
    for name, call in calls.items():
        with (
            mock.patch.object(Parser, "parse_into", autospec=True, side_effect=Parser.parse_into) as parsed,
            mock.patch.object(
                FilterPlanner, "within", autospec=True, side_effect=FilterPlanner.within
            ) as planned,
        ):
            call()
        texts = [call for call in parsed.call_args_list if call.args[1] is exp.Condition]
        assert (len(texts), planned.call_count) == (1, 1), name


def test_unused_conditions_of_spark_come_with_reasons(spark: SparkSession, sales: Path) -> None:
    table = bridge.open_table(spark, sales)
    ranged = table.rows("client < 9").explain()
    assert "hash, which has no order" in repr(ranged)
    column = table.rows(f.col("price") < 100).explain()
    assert column.share == 1.0
    assert ["price" in item for item in column.unused_conditions] == [True]
    assert "Spark applies it after the read" in repr(column)
    sampled = table.rows(sample=0.1).explain()
    assert sampled.unused_conditions == {}
    assert sampled.share < 0.5
