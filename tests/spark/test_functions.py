"""The table functions of SQL return what Python returns, of every type, in the columns that are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from polars.testing import assert_frame_equal
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.datasource.functions import PlannedRead, ReadsBatches, ReadsTasks
from qbeast_spark_bridge.worker.read_task import ReadTask, SentPart
from tests.helpers.examples import examples
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, small_files, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def append(path: Path, first: int, count: int = 50) -> None:
    rows = pl.DataFrame({"id": range(first, first + count), "x": [n / 7 for n in range(count)]})
    qbeast.write_table(rows, path, columns=["id"], mode="append")


def sample_of(spark: SparkSession, path: Path, rest: str) -> DataFrame:
    bridge.register(spark)
    return spark.sql(f"SELECT * FROM qbeast_sample(:path, {rest})", args={"path": str(path)})  # noqa: S608


@examples(2, sweep=20, parent=settings(suppress_health_check=list(HealthCheck)))
@given(case=cases(most_columns=9))
def test_function_returns_values_of_every_type(spark: SparkSession, case: Case) -> None:
    with folder() as place, small_files():
        write(place, case)
        expected = qbeast.read_table(place)
        actual = pl.DataFrame(sample_of(spark, place, "1.0").toArrow())
        zoned = [name for name, dtype in expected.schema.items() if dtype == pl.Datetime("us", "UTC")]
        actual = actual.with_columns(pl.col(zoned).dt.convert_time_zone("UTC")) if zoned else actual
        assert_same_rows(actual.cast(dict(expected.schema)), expected, key=ROW)


def test_columns_of_a_sample_are_chosen(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t", 0, 2_000)
    expected = qbeast.read_table(tmp_path / "t", sample=0.2).sort("id")
    actual = sample_of(spark, tmp_path / "t", "0.2, columns => 'x, id'")
    assert actual.columns == ["x", "id"]
    assert pl.DataFrame(actual.toArrow()).sort("id").equals(expected.select("x", "id"))
    with pytest.raises(PySparkException) as caught:
        sample_of(spark, tmp_path / "t", "0.2, 'y'").collect()
    text = "`columns` must be different names of ['id', 'x'], at least one, in a list, not ['y']"
    assert bridge.explain_error(caught.value) == text


def test_tuples_are_the_rows_of_batches() -> None:
    """Before Spark 4.1 functions return tuples."""
    frame = pl.DataFrame({"id": [1, 2], "s": ["a", None], "l": [[1], []]})
    schema = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    planned = PlannedRead.of(StructType(), [ReadTask(SentPart(frame), schema)] * 2)
    assert list(ReadsTasks(planned).eval("/t", 0.1)) == frame.rows() * 2
    batches = [pl.DataFrame(batch) for batch in ReadsBatches(planned).eval("/t", fraction=0.1)]
    assert pl.concat(batches).equals(pl.concat([frame, frame]))


def test_functions_return_arrow_where_spark_takes_it(spark: SparkSession) -> None:
    """PySpark has no public way to it, so another release may end it: then drop the attribute."""
    assert hasattr(PythonEvalType, "SQL_ARROW_UDTF") == (
        tuple(map(int, spark.version.split(".")[:2])) >= (4, 1)
    )


def test_history_of_sql_equals_that_of_python(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t", 0)
    append(tmp_path / "t", 50)
    qbeast.open_table(tmp_path / "t").delete("id < 7")
    bridge.register(spark)
    actual = spark.sql("SELECT * FROM qbeast_history(:path)", args={"path": str(tmp_path / "t")})
    expected = qbeast.open_table(tmp_path / "t").history()
    assert actual.columns == expected.columns
    names = ["version", "operation", "summary", "rows_deleted"]
    assert [tuple(row) for row in actual.select(names).collect()] == expected.select(names).rows()
    metrics = actual.select("version", "metrics.numOutputRows").collect()
    assert [tuple(row) for row in metrics][1:] == [(1, 50), (0, 50)]


def test_functions_of_sql_read_samples_and_changes(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, 0, 2_000)
    append(path, 2_000)
    bridge.register(spark)
    place = {"path": str(path)}
    sample = spark.sql("SELECT id FROM qbeast_sample(:path, 0.2) WHERE id < 1000", args=place).collect()
    expected = qbeast.read_table(path, sample=0.2, where="id < 1000")
    assert sorted(row.id for row in sample) == sorted(expected["id"])
    changed = spark.sql("SELECT id, _change_type FROM qbeast_changes(:path, 0)", args=place).collect()
    assert {row["_change_type"] for row in changed} == {"insert"}
    assert sorted(row.id for row in changed) == list(range(2_000, 2_050))
    with pytest.raises(PySparkException, match="constant"):
        spark.sql("SELECT * FROM VALUES (0.1) AS v(f), LATERAL qbeast_sample(:path, f)", args=place).collect()


def test_estimate_of_sql_equals_that_of_python(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, 0, 2_000)
    bridge.register(spark)
    text = "SELECT * FROM qbeast_estimate(:path, 'avg(x) AS mean', :by, 0.05)"
    for by in ("", "id % 3 AS third"):
        answer = spark.sql(text, args={"path": str(path), "by": by})
        rows = [tuple(row) for row in answer.collect()]
        expected = qbeast.estimate(path, "avg(x) AS mean", by=by or None, error=0.05).frame
        expected = expected.with_columns(pl.col(pl.Int128).cast(pl.Int64))
        assert answer.columns == expected.columns
        actual = pl.DataFrame(rows, schema=expected.schema, orient="row")
        assert_frame_equal(actual, expected, check_row_order=False)
    shortest = spark.sql("SELECT * FROM qbeast_estimate(:path, 'avg(x) AS mean')", args={"path": str(path)})
    assert shortest.collect()[0].mean == qbeast.estimate(path, "avg(x) AS mean").frame["mean"].item()
    with pytest.raises(PySparkException, match="Max depends on single rows"):
        spark.sql("SELECT * FROM qbeast_estimate(:path, 'max(x)', '', 0.05)", args={"path": str(path)})
