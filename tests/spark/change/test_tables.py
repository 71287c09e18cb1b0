"""Tables with Spark as their engine return the rows of local tables, and change them the same way."""

from __future__ import annotations

import shutil
from functools import reduce
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the usual name

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, estimated
from tests.spark.frames import every_type, of_spark, to_spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from qbeast_spark_bridge.tables import SparkTable

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning"),
]
ROWS = pl.DataFrame({"id": range(900)}).with_columns(
    price=pl.col("id") * 7919 % 901 / 4, kind=pl.Series([f"k{number % 5}" for number in range(900)])
)
CHEAP = pl.col("price") < 90
TYPES = every_type(300)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two versions, which no test changes."""
    place = tmp_path_factory.mktemp("tables") / "t"
    qbeast.write_table(ROWS[:600], place, columns=["id", "price"], cube_size=60)
    qbeast.write_table(ROWS[600:], place, mode="append")
    return place


@pytest.fixture(scope="module")
def table(spark: SparkSession, path: Path) -> SparkTable:
    return bridge.open_table(spark, path)


@pytest.fixture(scope="module")
def local(path: Path) -> qbeast.Table:
    return qbeast.open_table(path)


@pytest.fixture
def own(path: Path, tmp_path: Path) -> Path:
    """A copy of the table, to be changed."""
    return shutil.copytree(path, tmp_path / "own")


def test_reads_return_the_rows_of_polars(table: SparkTable, local: qbeast.Table) -> None:
    """One job reads the table in all ways."""
    requests: list[dict[str, Any]] = [
        {"where": "price < 90 AND kind = 'k1'", "columns": ["kind", "id"]},
        {"sample": 0.3, "seed": 3, "where": CHEAP},
        {"sample": 0.4, "sample_by": ["kind"]},
        {"rows": 100, "where": CHEAP, "seed": 2},
        {"rows": 80, "by": "kind", "where": CHEAP, "expand": True, "columns": ["id"]},
        {"sample": (0.2, 0.6), "expand": True},
    ]
    found: list[DataFrame] = []
    expected: list[pl.DataFrame] = []
    for request in requests:
        df, wanted = table.read(**request), local.read(**request)
        assert df.columns == wanted.columns
        weight = "sampling_weight" if "expand" in request else "0.0"
        found.append(df.selectExpr(f"{len(expected)} AS number", "id", f"CAST({weight} AS DOUBLE) AS weight"))
        added = [] if "expand" in request else [pl.lit(0.0).alias("sampling_weight")]
        expected.append(wanted.with_columns(added).select("id", weight="sampling_weight").sort("id"))
    rows = of_spark(reduce(DataFrame.union, found)).sort("number", "id")
    for number, wanted in enumerate(expected):
        part = rows.filter(number=number).drop("number")
        assert_frame_equal(part, wanted, check_dtypes=False)
        assert 0 < wanted.height < ROWS.height, number


def test_columns_of_spark_are_conditions_of_reads(table: SparkTable) -> None:
    condition = (F.col("price") < 90) & (F.col("KIND") == "k1")
    wanted = ROWS.filter(CHEAP, kind="k1")
    assert_same_rows(of_spark(table.read(condition)), wanted, "id")
    assert table.count(condition) == wanted.height
    chosen = table.read(condition, rows=20, by="kind")
    assert set(of_spark(chosen)["id"]) < set(wanted["id"])
    assert_same_rows(table.rows(condition).lazy().collect(), wanted, "id")
    assert_same_rows(pl.concat(table.rows(condition).batches()), wanted, "id")
    plan = table.rows(condition).explain()
    assert plan.share == 1.0
    assert ["price" in part for part in plan.unused_conditions] == [True]


def test_counts_equal_the_local_ones(table: SparkTable, local: qbeast.Table) -> None:
    assert table.count() == len(table) == ROWS.height
    assert table.count("price < 90") == ROWS.filter(CHEAP).height
    assert table.count(CHEAP, sample=0.3) == local.count(CHEAP, sample=0.3)


QUERIES = {
    "SELECT count(*) AS n, max(price) AS most FROM self WHERE id < 100": (100, ROWS["price"][:100].max()),
    "-- few\n /* with */ with few AS (SELECT self.id FROM self WHERE self.price < 9) "
    "SELECT count(*), min(few.id) FROM few": (
        ROWS.filter(pl.col("price") < 9).height,
        ROWS.filter(pl.col("price") < 9)["id"].min(),
    ),
    "SELECT '{id} {{}}' AS text, count(*) FROM self WHERE self.kind <> '}{'": ("{id} {{}}", ROWS.height),
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) "
    "SELECT count(*), max(i) FROM self JOIN n ON self.id = n.i": (3, 3),
}


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_queries_name_the_table_self(table: SparkTable, query: str) -> None:
    assert [tuple(row) for row in table.sql(query).collect()] == [QUERIES[query]]


def test_queries_take_samples_and_refuse_changes(table: SparkTable, local: qbeast.Table) -> None:
    query = "SELECT count(*) AS n FROM self"
    (row,) = table.rows(sample=0.3).sql(query).collect()
    assert row.n == local.count(sample=0.3)
    with pytest.raises(qbeast.InvalidInputError, match="DELETE is a change"):
        table.sql("DELETE FROM self WHERE id < 10")
    with pytest.raises(qbeast.InvalidInputError, match="text of a query"):
        table.sql(7)  # type: ignore[arg-type]


def test_changes_return_rows_of_commits(table: SparkTable) -> None:
    assert_same_rows(of_spark(table.changes(since=0).select(*ROWS.columns)), ROWS[600:], "id")


def test_estimates_equal_the_local_ones(table: SparkTable, local: qbeast.Table) -> None:
    asked: dict[str, pl.Expr | str] = {"mean": "avg(price)", "n": pl.len()}
    options: dict[str, Any] = {"by": "kind", "sample": 0.4}
    actual = estimated(table, asked, where=F.col("price") < 90, **options)
    assert_frame_equal(actual.frame, estimated(local, asked, where=CHEAP, **options).frame, rel_tol=1e-9)
    rounds = list(table.rows(F.col("price") < 90).estimates(asked, error=0.05))
    wanted = list(local.rows(CHEAP).estimates(asked, error=0.05))
    assert [item.fraction for item in rounds] == [item.fraction for item in wanted]
    assert_frame_equal(rounds[-1].frame, wanted[-1].frame, rel_tol=1e-9)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("typed") / "t"
    qbeast.write_table(TYPES[:200], place, columns=[ROW, "whole", "`day`"], cube_size=50)
    return place


SOURCE = TYPES[150:].with_columns(pl.col("x.y").reverse(), pl.col("list").reverse(), pl.col("money").shift())
SOURCES: dict[str, Callable[[SparkSession, pl.DataFrame, Path], Any]] = {
    "frame": lambda _spark, rows, _folder: rows,
    "query": lambda _spark, rows, _folder: rows.lazy(),
    "arrow": lambda _spark, rows, _folder: rows.to_arrow(),
    "batches": lambda _spark, rows, _folder: iter([rows[:80], rows[80:]]),
    "spark": lambda spark, rows, folder: to_spark(spark, rows, folder / "raw"),
}


@pytest.mark.parametrize(
    "kind", ["frame", *(pytest.param(kind, marks=pytest.mark.sweep) for kind in list(SOURCES)[1:])]
)
def test_rows_of_any_kind_are_merged(spark: SparkSession, typed: Path, tmp_path: Path, kind: str) -> None:
    path = shutil.copytree(typed, tmp_path / "t")
    result = bridge.open_table(spark, path).merge(SOURCES[kind](spark, SOURCE, tmp_path), ROW)
    assert (result.rows_updated, result.rows_inserted, result.engine) == (50, 100, "spark")
    assert_same_rows(qbeast.read_table(path), pl.concat([TYPES[:150], SOURCE]))


def test_columns_of_nulls_take_the_types_of_the_table(
    spark: SparkSession, typed: Path, tmp_path: Path
) -> None:
    path, twin = (shutil.copytree(typed, tmp_path / name) for name in "tu")
    source = TYPES[:20].with_columns(flag=None, struct=None, list=pl.lit([]), new=None).head(20)
    for opened in (bridge.open_table(spark, path), qbeast.open_table(twin)):
        opened.merge(source, ROW, schema_mode="merge")
    assert_same_rows(qbeast.read_table(path), qbeast.read_table(twin))


def test_merge_without_rows_equals_the_local_one(spark: SparkSession, own: Path, tmp_path: Path) -> None:
    twin = shutil.copytree(own, tmp_path / "twin")
    results = [
        opened.merge(
            ROWS.clear(), "id", when_not_matched_by_source="delete", not_matched_by_source_if="id < 9"
        )
        for opened in (bridge.open_table(spark, own), qbeast.open_table(twin))
    ]
    assert [result.rows_deleted for result in results] == [9, 9]
    assert_same_rows(qbeast.read_table(own), qbeast.read_table(twin), "id")


def test_streams_are_refused(spark: SparkSession, own: Path) -> None:
    table = bridge.open_table(spark, own)
    stream = spark.readStream.format("rate").load()
    with pytest.raises(qbeast.InvalidInputError, match=r"foreachBatch\. Nothing was changed") as caught:
        table.merge(stream, "id")
    assert caught.value.argument == "source"
    named = pl.DataFrame({"key": [1], "isStreaming": [True]}).to_pandas()
    with pytest.raises(qbeast.InvalidInputError, match=r"no column\(s\) \['id'\]"):
        table.merge(named, "id")
    assert table.version == qbeast.open_table(own).version == 1


def test_local_tables_name_the_engine_of_columns(spark: SparkSession, own: Path) -> None:
    local = qbeast.open_table(own)
    with pytest.raises(qbeast.InvalidInputError, match=r"qbeast_spark_bridge\.open_table"):
        local.delete(F.col("id") < 9)
    with pytest.raises(qbeast.InvalidInputError, match=r"qbeast_spark_bridge\.open_table"):
        local.merge(ROWS[:9], "id", matched_if=F.col("price") < 9)
    assert local.version == 1
    source = spark.range(5).selectExpr("id", "0.5D AS price", "'new' AS kind")
    if hasattr(source, "__arrow_c_stream__"):
        assert local.merge(source, "id").rows_updated == 5
        assert_same_rows(local.read("id < 5"), of_spark(source), "id")
        return
    with pytest.raises(qbeast.InvalidInputError, match=r"qbeast_spark_bridge\.open_table"):
        local.merge(source, "id")


def test_object_moves_and_names_follow_it(spark: SparkSession, own: Path) -> None:
    name = bridge.register_table(spark, own, "followed")
    table = bridge.open_table(spark, "followed")
    changes: list[tuple[Callable[[], Any], int]] = [
        (lambda: table.delete(F.col("id") < 100), 2),
        (lambda: table.restore(0), 3),
        (lambda: table.set_properties({"owner": "sales"}), 4),
        (lambda: table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False), 4),
    ]
    for change, version in changes:
        change()
        assert table.version == qbeast.open_table(own).version == version
        assert spark.table(name).count() == table.count() == (800 if version == 2 else 600)
    spark.catalog.dropTempView("followed")


def test_versions_and_names_are_opened(spark: SparkSession, path: Path) -> None:
    first = bridge.open_table(spark, path, version=0)
    assert (first.version, first.count(), first.read("id >= 590").count()) == (0, 600, 10)
    assert first.refresh().version == 1
    bridge.register_table(spark, path, "opened")
    assert bridge.open_table(spark, "Opened").uri == first.uri
    spark.catalog.dropTempView("opened")
    with pytest.raises(qbeast.TableNotFoundError, match="the session has no name 'opened'"):
        bridge.open_table(spark, "opened")
    with pytest.raises(qbeast.VersionNotFoundError):
        bridge.open_table(spark, path, version=5)
    with pytest.raises(TypeError, match="Did you mean 'version'"):
        bridge.open_table(spark, path, versoin=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Did you mean 'where'"):
        first.read(filter="id < 3")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["delete", "merge", "optimize"])
def test_old_function_names_its_method(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"open_table\(spark, path\)\.{name}"):
        getattr(bridge, name)
