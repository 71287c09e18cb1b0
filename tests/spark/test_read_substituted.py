"""Spark puts settings into the texts of SQL it is given: never into the names and values of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge import read_table
from qbeast_spark_bridge.predicates.conditions import parse_where
from tests.helpers.tables import small_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
NAMES = ["${env:HOME}", "a`${env:HOME}", "${spark.app.name}", "plain"]
TEXT = "${env:HOME}"


def sorted_rows(rows: DataFrame | pl.DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in (rows.rows() if isinstance(rows, pl.DataFrame) else rows.collect()))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("substituted") / "t"
    rows = pl.DataFrame({name: range(number, number + 200) for number, name in enumerate(NAMES)})
    with small_files(file_rows=40, page_rows=5):
        qbeast.write_table(
            rows.with_columns(s=pl.when(pl.col("plain") % 2 == 0).then(pl.lit(TEXT)).otherwise(pl.lit("x"))),
            path,
            columns=[NAMES[0], NAMES[1]],
            cube_size=25,
        )
    return path


@pytest.mark.parametrize(
    "name", [NAMES[1], *(pytest.param(name, marks=pytest.mark.sweep) for name in (NAMES[0], *NAMES[2:]))]
)
def test_filters_use_column_names_literally(spark: SparkSession, table: Path, name: str) -> None:
    condition = (pl.col(name) > 150) & (pl.col("s") == TEXT)
    actual = read_table(spark, table, where=condition, sample=0.5)
    assert actual.columns == [*NAMES, "s"]
    expected = qbeast.scan_table(table, sample=0.5).filter(condition).collect()
    assert expected.height
    assert sorted_rows(actual) == sorted_rows(expected)


@pytest.mark.sweep
def test_columns_with_variables_can_be_selected(spark: SparkSession, table: Path) -> None:
    actual = read_table(spark, table, columns=NAMES[:2])
    assert actual.columns == NAMES[:2]
    assert sorted_rows(actual) == sorted_rows(qbeast.read_table(table).select(NAMES[:2]))


def test_text_is_never_substituted(spark: SparkSession, table: Path) -> None:
    spark.conf.set("spark.qbeast.least", "190")
    text = f"plain > 150 AND s = '{TEXT}' AND \"{NAMES[0]}\" < 190"
    assert sorted_rows(read_table(spark, table, where=text)) == sorted_rows(
        qbeast.read_table(table, where=text)
    )
    with pytest.raises(InvalidInputError, match="where"):
        parse_where("plain > ${spark.qbeast.least}", qbeast.open_table(table).schema)
