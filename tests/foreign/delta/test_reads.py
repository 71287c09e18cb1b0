"""Spark's own Delta reader returns what was written: every type, every filter, nothing of ours besides."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.predicates.conditions import parse_where
from tests.foreign.delta.delta import Delta, assert_right, collected, rows_from
from tests.helpers.examples import examples
from tests.helpers.expressions import filters
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, small_files, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")]
# Shrinking would take minutes, at a second a read.
few = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate], deadline=None)

EDGES: dict[str, tuple[pl.DataType, list[Any]]] = {
    "long": (pl.Int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1, None]),
    "int": (pl.Int32(), [-(2**31), -1, 0, 1, 2**31 - 1, None]),
    "short": (pl.Int16(), [-(2**15), -1, 0, 1, 2**15 - 1, None]),
    "byte": (pl.Int8(), [-128, -1, 0, 1, 127, None]),
    "double": (pl.Float64(), [float("-inf"), -0.0, 5e-324, float("inf"), float("nan"), None]),
    "float": (pl.Float32(), [float("-inf"), -1.5, 0.0, float("inf"), float("nan"), None]),
    "text": (pl.String(), ["", "a\0", "\ud7ff" * 40, "日本" * 20, "z" * 31 + "\U0010ffff" * 9, None]),
    "day": (
        pl.Date(),
        [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None],
    ),
    "moment": (
        pl.Datetime("us", "UTC"),
        [
            datetime(1, 1, 1, 12, tzinfo=UTC),
            datetime(1582, 10, 15, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(2024, 3, 10, 7, 0, 0, 1, tzinfo=UTC),
            datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC),
            None,
        ],
    ),
    "naive": (
        pl.Datetime("us"),
        [
            datetime(1, 1, 1),  # noqa: DTZ001 -- a type without a zone
            datetime(1582, 10, 10),  # noqa: DTZ001 -- as above
            datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 -- as above
            datetime(2024, 3, 10, 2, 30, 0, 1),  # noqa: DTZ001 -- an hour that New York does not have
            datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 -- as above
            None,
        ],
    ),
    "small money": (pl.Decimal(5, 2), [*map(Decimal, ["-999.99", "-0.01", "0", "0.01", "999.99"]), None]),
    "money": (pl.Decimal(18, 4), [*map(Decimal, ["-1", "0", "0.0001", "99999999999999.9999", "7"]), None]),
    "wide money": (pl.Decimal(38, 10), [*map(Decimal, ["-1" + "0" * 27, "0", "1e-10", "3", "4"]), None]),
    "flag": (pl.Boolean(), [True, False, True, False, True, None]),
    "bytes": (pl.Binary(), [b"", b"\0", b"\xff\xfe", b"abc", b"x" * 99, None]),
    "list": (pl.List(pl.Int64()), [[], [1], [None], [1, None, 3], list(range(99)), None]),
    "struct": (
        pl.Struct({"n": pl.Int32(), "s": pl.String(), "t": pl.Struct({"d": pl.Date()})}),
        [
            {"n": 1, "s": "a", "t": {"d": date(2024, 1, 1)}},
            {"n": None, "s": None, "t": None},
            {"n": 2, "s": "", "t": {"d": None}},
            *[{"n": 3, "s": "b", "t": {"d": date(1, 1, 1)}}] * 2,
            None,
        ],
    ),
    "structs": (
        pl.List(pl.Struct({"k": pl.String(), "v": pl.List(pl.Float64())})),
        [[], [{"k": "a", "v": [1.5, None]}], [None], [{"k": None, "v": None}], [{"k": "", "v": []}], None],
    ),
    "map": (pl.Map(pl.String(), pl.Int64()), [{}, {"a": 1}, {"b": None}, {"c": 2, "d": 3}, {"": 0}, None]),
}
SPARK_TYPES = {
    "long": "bigint",
    "int": "int",
    "short": "smallint",
    "byte": "tinyint",
    "double": "double",
    "float": "float",
    "text": "string",
    "day": "date",
    "moment": "timestamp",
    "naive": "timestamp_ntz",
    "small money": "decimal(5,2)",
    "money": "decimal(18,4)",
    "wide money": "decimal(38,10)",
    "flag": "boolean",
    "bytes": "binary",
    "list": "array<bigint>",
    "struct": "struct<n:int,s:string,t:struct<d:date>>",
    "structs": "array<struct<k:string,v:array<double>>>",
    "map": "map<string,bigint>",
}


def every_type() -> pl.DataFrame:
    """Rows of every type in several orders, so that files have different bounds."""
    columns = [
        pl.Series(name, [values[row * step % 6] for row in range(120)], dtype=dtype)
        for step, (name, (dtype, values)) in zip([1, 5] * 20, EDGES.items(), strict=False)
    ]
    return pl.DataFrame(columns).with_row_index(ROW).cast({ROW: pl.Int64})


@pytest.mark.parametrize(
    "columns", [["long", "text", "double"], ["day", "moment", "money"], ["naive", "byte"]]
)
def test_every_type_and_its_limits(spark: SparkSession, tmp_path: Path, columns: list[str]) -> None:
    rows = every_type()
    table = Delta(spark, tmp_path)
    with small_files():
        qbeast.write_table(rows[:80], tmp_path, columns=columns, cube_size=7)
        qbeast.write_table(rows[80:], tmp_path, mode="append")
    actual = table.read()
    assert_same_rows(actual, rows)
    schema = spark.read.format("delta").load(str(tmp_path)).schema
    assert {field.name: field.dataType.simpleString() for field in schema} == {ROW: "bigint", **SPARK_TYPES}


@pytest.mark.parametrize(
    "condition",
    [
        "double > 1e300",
        "double = 'NaN'",
        "float >= 'Infinity'",
        "text >= 'z'",
        f"text = '{'日本' * 20}'",
        "naive = timestamp_ntz'1969-12-31 23:59:59.999999'",
        "moment > timestamp'1969-12-31 23:59:59.999998Z' and moment < timestamp'1970-01-01 00:00:00Z'",
        "day < date'1582-10-15'",
        "`money` > 99999999999999.9998",
        "`wide money` < -1",
        "long = 9223372036854775807",
        "struct.n = 2",
        "struct.t.d is null",
        "byte is null",
    ],
)
def test_spark_skips_only_files_without_matches(matrix: tuple[Delta, pl.DataFrame], condition: str) -> None:
    table, rows = matrix
    kept = rows_that_meet(table, condition)
    assert_same_rows(table.read(condition), kept)
    assert 0 < kept.height < rows.height


@pytest.fixture(scope="module")
def matrix(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Delta, pl.DataFrame]:
    """Every type, in many small files."""
    path = tmp_path_factory.mktemp("matrix") / "t"
    with small_files(file_rows=5):
        qbeast.write_table(every_type(), path, columns=["row"], cube_size=4)
    return Delta(spark, path), every_type()


def rows_that_meet(table: Delta, condition: str) -> pl.DataFrame:
    """Ask for the condition as a column, so that Spark can neither skip files nor pages by it."""
    frame = table.spark.read.format("delta").load(str(table.path)).selectExpr("*", f"({condition}) AS kept")
    return collected(frame).filter("kept").drop("kept")


@pytest.mark.timeout(1500)
@examples(1, sweep=8, parent=few)
@given(case=cases(most_frames=3, most_columns=6), data=st.data())
def test_filters_skip_no_row(spark: SparkSession, case: Case, data: st.DataObject) -> None:
    """Whatever the rows, Spark's Delta reads them; a condition skips no file with a match."""
    with folder() as path:
        with small_files(file_rows=12):
            write(path, case)
        table = Delta(spark, path)
        assert_same_rows(table.read(), case.rows)
        for expr in data.draw(st.lists(filters(case.rows), min_size=6, max_size=6)):
            try:
                condition = str(parse_where(expr, case.rows.schema)[0])
            except qbeast.InvalidInputError:
                continue  # not to be said in Spark's SQL
            assert_same_rows(table.read(condition), rows_that_meet(table, condition))


def test_spark_skips_files_by_our_statistics(spark: SparkSession, tmp_path: Path) -> None:
    with small_files(file_rows=50):
        qbeast.write_table(rows_from(0, 1000), tmp_path, columns=["row"], cube_size=40)
    frame = spark.read.format("delta").load(str(tmp_path))
    assert len(frame.where("row = 7").inputFiles()) < len(frame.inputFiles()) / 4


def test_history_and_detail_match_delta(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path)
    qbeast.write_table(rows_from(0), tmp_path, columns=["row", "a"], commit_metadata={"why": "so"})
    qbeast.write_table(rows_from(400), tmp_path, mode="append")
    opened = qbeast.open_table(tmp_path)
    assert opened.optimize(full=True).committed
    opened.set_properties({"owner": "us"})
    opened.restore(1)
    history = table.sql("describe history {t}")
    assert [(entry["version"], entry["operation"]) for entry in reversed(history)] == [
        (0, "CREATE TABLE AS SELECT"),
        (1, "WRITE"),
        (2, "OPTIMIZE"),
        (3, "SET TBLPROPERTIES"),
        (4, "RESTORE"),
    ]
    assert all(entry["engineInfo"].startswith("qbeast/") for entry in history)
    assert [entry["readVersion"] for entry in reversed(history)] == [None, 0, 1, 2, 3]
    assert history[3]["operationParameters"]["mode"] == "Append"
    assert history[3]["operationMetrics"]["numOutputRows"] == "400"
    assert opened.history()["version"].to_list() == [4, 3, 2, 1, 0]
    (detail,) = table.sql("describe detail {t}")
    files = opened.rows().files()
    assert (detail["format"], detail["partitionColumns"]) == ("delta", [])
    assert (detail["numFiles"], detail["sizeInBytes"]) == (files.height, files["size_bytes"].sum())
    assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)
    assert json.loads(detail["properties"]["qbeast.revision.1"])["revisionID"] == 1
    assert_right(table, rows_from(0, 800), ["row", "a"])


def test_registered_names_are_tables_of_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(500), "x": [n / 7 for n in range(500)]})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"])
    spark.sql("CREATE DATABASE IF NOT EXISTS named")
    name = bridge.register_table(spark, tmp_path / "t", "named.sales")
    assert name == "`named`.`sales`"
    assert spark.table("named.sales").where("id < 10").count() == 10
    spark.createDataFrame([(500, 1.0)], "id bigint, x double").writeTo("named.sales").append()
    table = bridge.QbeastTable.forName(spark, "named.sales")
    assert table.toDF().count() == 501
    assert table.optimize().committed
    assert bridge.read_table(spark, "named.sales").count() == 501
    assert bridge.open_table(spark, "named.sales").delete(where="id = 500").rows_deleted == 1
    assert bridge.register_table(spark, tmp_path / "t", "named.sales") == name
    assert spark.sql("SELECT max(id) FROM named.sales").first()[0] == 499
    qbeast.write_table(rows, tmp_path / "other", columns=["id"])
    with pytest.raises(qbeast.InvalidInputError, match="another table of the name"):
        bridge.register_table(spark, tmp_path / "other", "named.sales")
    with pytest.raises(qbeast.TableNotFoundError, match="register_table"):
        bridge.QbeastTable.forName(spark, "named.nothing")
    spark.sql("DROP TABLE named.sales")
    assert qbeast.read_table(tmp_path / "t").height == 500
