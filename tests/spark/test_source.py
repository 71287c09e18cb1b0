"""format("qbeast") returns the rows that Polars returns, on whatever road Spark asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- as everybody names it

import qbeast
from tests.helpers.examples import examples
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, small_files, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

ROWS = 20_000


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    x = rng.normal(size=ROWS)
    return pl.DataFrame({"id": np.arange(ROWS), "x": x, "s": [f"v{i % 100}" for i in range(ROWS)]})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: pl.DataFrame) -> Path:
    place = tmp_path_factory.mktemp("a source") / "100 % [table]"
    qbeast.write_table(rows, place, columns=["id", "x"], cube_size=1000)
    return place


def load(spark: SparkSession, table: Path, **options: Any) -> DataFrame:
    return spark.read.format("qbeast").options(**options).load(str(table))


def fetched(frame: DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Fetch as Arrow; instants come in the zone of the session."""
    actual = pl.DataFrame(frame.toArrow())
    zoned = [
        pl.col(n).dt.convert_time_zone("UTC") for n, t in schema.items() if t == pl.Datetime("us", "UTC")
    ]
    return actual.with_columns(zoned).cast(dict(schema))


@examples(2, sweep=20, parent=settings(suppress_health_check=list(HealthCheck)))
@given(case=cases(most_columns=9))
def test_values_of_every_type_arrive_unchanged(spark: SparkSession, case: Case) -> None:
    with folder() as place, small_files():
        write(place, case)
        expected = qbeast.read_table(place)
        assert_same_rows(fetched(load(spark, place), expected.schema), expected, key=ROW)


@pytest.mark.parametrize(
    "sample", [*(pytest.param(part, marks=pytest.mark.sweep) for part in (0.01, 0.5)), (0.1, 0.2)], ids=str
)
def test_samples_equal_polars(spark: SparkSession, table: Path, sample: Any) -> None:
    text = sample if isinstance(sample, float) else "0.1,0.2"
    actual = load(spark, table, sample=text).select("id").toArrow()
    expected = qbeast.read_table(table, sample=sample)
    assert sorted(actual["id"].to_pylist()) == sorted(expected["id"].to_list())


def test_filters_and_columns_equal_polars(spark: SparkSession, table: Path, rows: pl.DataFrame) -> None:
    actual = load(spark, table, where="x > 1.5 AND s IN ('v1', 'v2', 'v3')", columns='["s", "id"]')
    expected = rows.filter(pl.col("x") > 1.5, pl.col("s").is_in(["v1", "v2", "v3"])).select("s", "id")
    assert_same_rows(fetched(actual, expected.schema), expected, key="id")
    assert actual.columns == ["s", "id"]


def test_schema_option_omits_columns(spark: SparkSession, table: Path, rows: pl.DataFrame) -> None:
    actual = spark.read.format("qbeast").schema("x double, id bigint").load(str(table))
    expected = rows.select("x", "id")
    assert_same_rows(fetched(actual, expected.schema), expected, key="id")


@pytest.mark.sweep
def test_not_null_column_is_trusted(spark: SparkSession, table: Path) -> None:
    actual = spark.read.format("qbeast").schema("id bigint NOT NULL").load(str(table))
    assert not actual.schema["id"].nullable
    assert actual.where("id < 10").count() == 10


@pytest.mark.sweep
def test_spark_filters_joins_and_reuses_a_frame(spark: SparkSession, table: Path, rows: pl.DataFrame) -> None:
    """What goes wrong with pushFilters: one loaded frame, several filters."""
    frame = load(spark, table)
    high, low = frame.where("x > 2"), frame.where(F.col("x") < -2)
    many, few = rows.filter(pl.col("x") > 2).height, rows.filter(pl.col("x") < -2).height
    assert (high.count(), frame.count(), low.count()) == (many, ROWS, few)
    assert high.union(low).count() == many + few
    assert high.join(frame, "id").count() == many


def test_view_works_in_sql(spark: SparkSession, table: Path) -> None:
    place = str(table).replace("'", "\\'")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW tenth USING qbeast OPTIONS (path '{place}', sample '0.1')")
    try:
        (row,) = spark.sql("SELECT count(*) AS n, max(id) AS most FROM tenth WHERE x < 0").collect()
        expected = qbeast.read_table(table, sample=0.1).filter(pl.col("x") < 0)
        assert (row["n"], row["most"]) == (expected.height, expected["id"].max())
    finally:
        spark.catalog.dropTempView("tenth")


@pytest.mark.classic  # a Connect client has no table before the first use, and its server may forget it
def test_frame_keeps_the_version_it_loaded(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "t"
    qbeast.write_table(pl.DataFrame({"id": [1]}), place, columns=["id"])
    before = load(spark, place)
    narrowed = spark.read.format("qbeast").schema("id bigint").load(str(place))
    assert narrowed.count() == 1  # with a schema of the user's Spark asks for the table at the first use
    qbeast.write_table(pl.DataFrame({"id": [2, 3]}), place, mode="append")
    assert (before.count(), narrowed.count(), load(spark, place).count()) == (1, 1, 3)


@pytest.mark.sweep
def test_requested_version_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "t"
    qbeast.write_table(pl.DataFrame({"id": [1]}), place, columns=["id"])
    first = load(spark, place, version=0)
    qbeast.write_table(pl.DataFrame({"id": [2, 3]}), place, mode="append")
    assert (first.count(), first.count(), load(spark, place, version="2999-01-01").count()) == (1, 1, 3)


@pytest.mark.sweep
def test_empty_tables_and_selections_are_read(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    empty = pl.DataFrame(schema={"id": pl.Int64, "s": pl.String})
    qbeast.write_table(empty, tmp_path / "t", columns=["id"])
    assert load(spark, tmp_path / "t").collect() == []
    assert load(spark, table, where="id < 0").count() == 0


@pytest.mark.sweep
def test_columns_that_old_files_lack_are_null(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "t"
    qbeast.write_table(pl.DataFrame({"id": [1]}), place, columns=["id"])
    new = pl.DataFrame({"id": [2], "more": ["x"]})
    qbeast.write_table(new, place, mode="append", schema_mode="merge")
    actual = {row["id"]: row["more"] for row in load(spark, place).collect()}
    assert actual == {1: None, 2: "x"}


@pytest.mark.sweep
def test_path_may_be_a_file_uri(spark: SparkSession, tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"id": [1, 2]}), tmp_path / "t", columns=["id"])
    assert spark.read.format("qbeast").load(f"file:{tmp_path}/t").count() == 2


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"sample": "2"}, "fraction"),
        ({"smaple": "0.1"}, "no option"),
        ({"where": "median(x) > 1"}, "several"),
        ({"columns": "id,nothing"}, "`columns` must be different names"),
        ({"version": "99"}, "no version 99"),
    ],
)
def test_invalid_options_raise_on_load(
    spark: SparkSession, table: Path, options: dict[str, str], part: str
) -> None:
    with pytest.raises(PySparkException, match=part):
        load(spark, table, **options).printSchema()


def test_table_and_path_are_required(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="nothing is there"):
        load(spark, tmp_path / "none").printSchema()
    with pytest.raises(PySparkException, match="needs the path"):
        spark.read.format("qbeast").load().printSchema()


def test_schema_option_cannot_change_types(spark: SparkSession, table: Path) -> None:
    with pytest.raises(PySparkException, match="'id' is bigint, not int"):
        spark.read.format("qbeast").schema("id int").load(str(table)).count()
