"""Rows changed by Spark are those that this process changes: the same files go, the same blocks come."""

from __future__ import annotations

import math
import shutil
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.predicates.given import ColumnTranslator
from tests.helpers.changes import written
from tests.helpers.strategies import ROW
from tests.spark.twins import assert_same_change, small_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def test_rows_change_as_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    path, twin = tmp_path / "t", tmp_path / "u"
    written(path)
    shutil.copytree(path, twin)
    s, f, d = (F.col(name) for name in "sfd")
    deletes: list[tuple[Any, Any]] = [
        ((F.col(ROW) > 350) & ~s.isNull(), (pl.col(ROW) > 350) & pl.col("s").is_not_null()),
        (pl.col("a") % 5 == 0, pl.col("a") % 5 == 0),
    ]
    for condition, here in deletes:
        with small_tasks():
            result = bridge.delete(spark, path, condition)
            expected = qbeast.open_table(twin).delete(here)
        assert_same_change(path, result, twin, expected)
    planned = bridge.delete(spark, path, "a IN (3, 7, 11) OR s LIKE 'key 1%'", dry_run=True)
    here = pl.col("a").is_in([3, 7, 11]) | pl.col("s").str.starts_with("key 1")
    assert (planned.rows_deleted, planned.committed) == (qbeast.read_table(path).filter(here).height, False)
    # Values of columns that are not indexed, and of an indexed one beyond its space.
    updates: list[tuple[Any, Any, dict[str, Any], dict[str, Any]]] = [
        ("a < 50", pl.col("a") < 50, {"f": F.lit(0.5), "s": "'new'"}, {"f": 0.5, "s": "'new'"}),
        (
            (d >= date(2024, 2, 1)) & (f > 20),
            (pl.col("d") >= date(2024, 2, 1)) & (pl.col("f") > 20),
            {ROW: pl.col(ROW) + 10_000},
            {ROW: pl.col(ROW) + 10_000},
        ),
    ]
    computed = {"f": "f * 2 + a // 7", "s": "upper(s) || 'x'"}
    updates.insert(1, ("a % 7 = 3 AND s IS NOT NULL",) * 2 + (computed, computed))
    results: list[qbeast.ChangeResult] = []
    for condition, here, values, values_here in updates:
        with small_tasks():
            result = bridge.update(spark, path, condition, values)
            expected = qbeast.open_table(twin).update(here, values_here)
        assert_same_change(path, result, twin, expected)
        results.append(result)
    assert results[-1].new_revision
    report: list[qbeast.Progress] = []
    with small_tasks():
        result = bridge.delete(
            spark, path, where=True, commit_metadata={"who": "nightly"}, progress=report.append
        )
        expected = qbeast.open_table(twin).delete(where=True)
    assert_same_change(path, result, twin, expected)
    assert (report[0].stage, report[-1].stage) == ("read", "done")
    assert qbeast.open_table(path).history(1)["metadata"][0]["who"] == "nightly"


@pytest.mark.connect
def test_inexact_conditions_raise_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path)
    frame = bridge.read_table(spark, path)
    a = F.col("a")
    refused: list[tuple[Any, str]] = [
        ("missing > 1", "no such column"),
        ("a = 1 XOR a = 2", "XOR"),
        (F.expr("a = 1"), "Give SQL text"),
        (F.col("missing") > 1, "no such column: 'missing'"),
        (frame["a"] > 1, "of a DataFrame"),
        (F.rand() > 0.5, r"rand\("),
        (F.sum("a") > 1, r"sum\(a\)"),
        (F.row_number().over(Window.orderBy("a")) == 1, "OVER|Window"),
        (a.cast("string") == "1", "no equivalent in Polars"),
        (a == "5", "no equivalent in Polars"),
        (5, "must be a Polars expression or SQL text"),
        (pl.col("a").sum() > 3, "from that row alone"),
    ]
    for condition, said in refused:
        with pytest.raises(qbeast.InvalidInputError, match=said):
            bridge.delete(spark, path, condition)
    for value, said in (
        (F.upper("s"), "Polars expression"),
        (frame["a"], "DataFrame"),
    ):
        with pytest.raises(qbeast.InvalidInputError, match=said):
            bridge.update(spark, path, "a = 1", {"a": value})
    odd: list[Any] = [{}, 5, {"missing": 1}]
    for values in odd:
        with pytest.raises(qbeast.InvalidInputError, match=r"othing was changed"):
            bridge.update(spark, path, "a = 1", values)
    with pytest.raises(qbeast.InvalidInputError, match="cannot be"):  # found in a worker
        bridge.update(spark, path, where=True, set={"a": pl.col("s").cast(pl.Int64)})
    assert qbeast.open_table(path).version == 1


def test_conditions_mean_what_spark_means(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "t")
    rows = qbeast.read_table(tmp_path / "t")
    columns: list[Any] = [F.col(name) for name in ("a", "s", "f", "d", ROW)]
    a, s, f, d, row = columns
    nan = math.nan
    conditions: list[Any] = [
        *(a == 3, a != 3, ~(a > 3), a.isin(1, 2, None), ~a.isin(1, 2), a.between(5, 90), F.lit(7) >= a),
        *(
            a.isNull() | (s == "key 3"),
            a.eqNullSafe(None),
            ~a.eqNullSafe(8),
            a < row,
            ~(a <= row),
            a.eqNullSafe(row),
        ),
        *(s.startswith("key 1"), ~s.endswith("2"), s.contains("y 1"), s.like("key 1%"), ~s.like("key%")),
        *(f > 10, f == nan, ~(f < 20.5), f.isin(1.0, 2.5)),
        *(d == date(2024, 1, 5), d > F.lit(date(2024, 2, 1))),
        *(F.lit(True), (a > 1).alias("x") & (f > 3.0)),  # noqa: FBT003 -- of Spark
    ]
    options = ColumnTranslator.of(rows.schema)
    counted = [F.count(F.when(item, 1)).alias(str(number)) for number, item in enumerate(conditions)]
    expected = bridge.read_table(spark, tmp_path / "t").select(*counted).collect()[0]
    for number, condition in enumerate(conditions):
        actual = options.condition(condition, "where")
        assert actual is not None
        assert rows.filter(actual).height == expected[number], str(condition)


@pytest.mark.connect
def test_closed_session_is_reported_as_lost(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    if not request.config.getoption("--connect"):
        pytest.skip("sessions of one process end together: tests/spark/test_failures.py")
    written(tmp_path / "t")
    session: Any = spark.newSession()
    session.client.release_session()
    with pytest.raises(qbeast.SessionLostError, match="nothing was committed"):
        bridge.delete(session, tmp_path / "t", "a < 50")
    assert qbeast.open_table(tmp_path / "t").version == 1
