"""The code that our pages show for Spark runs: each page's blocks in order, beside raw files, a table and a session."""

from __future__ import annotations

import doctest
import inspect
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.read import SparkRead
from qbeast_spark_bridge.tables import SparkTable
from tests.foreign.carbondata.collection import table_path
from tests.helpers.snippets import PAGES, ROOT, blocks, blocks_without_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sweep, pytest.mark.classic]
WITH_SPARK = [page for page in PAGES if len(blocks_without_spark(page)) < len(blocks(page))]


def test_pages_about_spark_have_code() -> None:
    assert {ROOT / "docs" / "spark.md", ROOT / "docs" / "tutorial-spark.md"} <= set(WITH_SPARK)


@pytest.mark.parametrize("page", WITH_SPARK, ids=lambda page: page.name)
def test_code_of_a_page_runs(
    other_session: SparkSession, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    (data / "raw").mkdir(parents=True)
    sales = pl.DataFrame({"user": range(20_000)}).with_columns(
        price=pl.col("user") * 7919 % 10_007 / 100, brand=pl.format("brand {}", pl.col("user") % 40)
    )
    sales.write_parquet(data / "raw" / "sales.parquet")
    qbeast.write_table(sales, data / "sales", columns=["price", "brand", "user:hash"])
    names: dict[str, Any] = {"spark": other_session, "df": other_session.read.parquet(str(data / "raw"))}
    for block in blocks(page, real=data):
        block.run(names)


DOCUMENTED = {name: getattr(bridge, name) for name in bridge.__all__} | {
    f"{kind.__name__}.{name}": member
    for kind in (SparkTable, SparkRead)
    for name, member in vars(kind).items()
    if not name.startswith("_") and inspect.isfunction(member)
}


@pytest.mark.parametrize("name", [*DOCUMENTED, "SparkTable"])
def test_example_of_a_function_runs(
    spark: SparkSession, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(table_path("tx230_basic_3segments"), "old_sales")
    function = DOCUMENTED.get(name, SparkTable)
    actual = doctest.DocTestParser().get_doctest(
        inspect.getdoc(function) or "", {"spark": spark}, name, inspect.getsourcefile(function), 0
    )
    assert actual.examples
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(actual, out=report.append)
    assert not result.failed, "".join(report)
