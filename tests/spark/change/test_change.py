"""Conditions and values as Spark gives them change the rows that they mean, or raise and change nothing."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.predicates.columns import ColumnTranslator
from tests.helpers.changes import written
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows
from tests.spark.twins import small_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def test_columns_of_spark_choose_and_set_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path)
    rows = qbeast.read_table(path)
    s, f, d = (F.col(name) for name in "sfd")
    condition = (d >= date(2024, 2, 1)) & (f > 20) & ~s.isNull()
    values = {"f": F.lit(0.5), ROW: pl.col(ROW) + 10_000}
    report: list[qbeast.Progress] = []
    with small_tasks():
        bridge.open_table(spark, path).update(
            condition, values, commit_metadata={"who": "nightly"}, progress=report.append
        )
    assert (report[0].stage, report[-1].stage) == ("read", "done")
    assert qbeast.open_table(path).history(1)["metadata"][0]["who"] == "nightly"
    chosen = (pl.col("d") >= date(2024, 2, 1)) & (pl.col("f") > 20) & pl.col("s").is_not_null()
    expected = rows.with_columns(
        pl.when(chosen).then(0.5).otherwise("f").alias("f"),
        pl.when(chosen).then(pl.col(ROW) + 10_000).otherwise(ROW).alias(ROW),
    )
    assert_same_rows(qbeast.read_table(path), expected)


def test_inexact_conditions_raise_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path)
    table = bridge.open_table(spark, path)
    frame, a = table.read(), F.col("a")
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
            table.delete(condition)
    for value, said in (
        (F.upper("s"), "Polars expression"),
        (frame["a"], "DataFrame"),
    ):
        with pytest.raises(qbeast.InvalidInputError, match=said):
            table.update("a = 1", {"a": value})
    odd: list[Any] = [{}, 5, {"missing": 1}]
    for values in odd:
        with pytest.raises(qbeast.InvalidInputError, match="Nothing was changed"):
            table.update("a = 1", values)
    with pytest.raises(qbeast.InvalidInputError, match="cannot be"):  # found in a worker
        table.update(where=True, set={"a": pl.col("s").cast(pl.Int64)})
    assert table.version == qbeast.open_table(path).version == 1


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
        *(
            a > 2.5,
            ~(a <= Decimal("3.5")),
            a.isin(Decimal(3), Decimal("2.5")),
            f > 2**60,
            f == Decimal("20.5"),
        ),
        *(F.lit(True), (a > 1).alias("x") & (f > 3.0)),  # noqa: FBT003 -- of Spark
    ]
    options = ColumnTranslator.of(rows.schema)
    counted = [F.count(F.when(item, 1)).alias(str(number)) for number, item in enumerate(conditions)]
    expected = bridge.read_table(spark, tmp_path / "t").select(*counted).collect()[0]
    for number, condition in enumerate(conditions):
        actual = options.condition(condition, "where")
        assert actual is not None
        assert rows.filter(actual).height == expected[number], str(condition)


def test_closed_session_is_reported_as_lost(
    request: pytest.FixtureRequest, other_session: Any, tmp_path: Path
) -> None:
    if not request.config.getoption("--connect"):
        pytest.skip("sessions of one process end together: tests/spark/change/test_failures.py")
    written(tmp_path / "t")
    other_session.client.release_session()
    with pytest.raises(qbeast.SessionLostError, match="Nothing was changed"):
        bridge.open_table(other_session, tmp_path / "t").delete("a < 50")
    assert qbeast.open_table(tmp_path / "t").version == 1
