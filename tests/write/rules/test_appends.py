"""Rules of new rows: constraints, generated and default columns, in memory and in streams."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.write.by_tasks import begin_append, publish_parts
from tests.helpers.change_races import check_no_orphans
from tests.helpers.sources import KINDS, given_as
from tests.helpers.tables import MEMORY, SPILL
from tests.write.rules.tables import high_water_mark, ruled
from tests.write.rules.visits import CONSTRAINTS, NOTES, SCHEMA, complete, rows, table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("resources", [MEMORY, SPILL], ids=["memory", "spill"])
def test_streams_get_the_numbers_of_frames(kind: str, resources: qbeast.Resources, tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    qbeast.write_table(given_as(rows(100), kind, tmp_path, 7), path, mode="append", resources=resources)
    assert_frame_equal(qbeast.read_table(path).sort("id"), complete(rows(100)))
    assert high_water_mark(path, "id") == 100


BROKEN: dict[str, tuple[pl.Expr, str, str, int]] = {
    "false": (
        pl.when(pl.col("price") > 3).then(-1.0).otherwise("price").alias("price"),
        "positive",
        "-1.0",
        2,
    ),
    "null": (pl.when(pl.col("price") > 3).then("price").alias("price"), "positive", "None", 8),
    "generated": (pl.lit(7, pl.Int64).alias("double"), "double", "7", 9),
    "null generated": (pl.lit(None, pl.Date).alias("day"), "day", "None", 10),
    "default": (pl.lit("much too long").alias("kind"), "short", "much too long", 10),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_rows_that_break_rules_write_nothing(kind: str, tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    change, name, example, count = BROKEN[kind]
    with pytest.raises(qbeast.ConstraintViolationError, match=f"'{name}'.*Nothing was changed") as caught:
        qbeast.write_table(rows(10).with_columns(change), path, mode="append")
    error = caught.value
    assert (error.code, error.constraint, error.rows) == ("constraint-violation", name, count)
    assert example in str(error.example)
    assert error.example
    assert qbeast.read_table(path).is_empty()
    check_no_orphans(path)


def test_given_values_are_kept(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    wanted = complete(rows(10)).with_columns(kind=pl.when(pl.col("price") > 2).then(pl.lit("x")))
    qbeast.write_table(wanted.drop("id"), path, mode="append")
    assert_frame_equal(qbeast.read_table(path).sort("id"), wanted)  # an explicit null is not a missing value


def test_overwrite_computes_columns_too(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    qbeast.write_table(rows(5), path, mode="append")
    qbeast.write_table(rows(10), path, mode="overwrite")
    assert_frame_equal(qbeast.read_table(path).sort("id"), complete(rows(10), 6))


def test_other_missing_columns_stay_an_error(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    with pytest.raises(qbeast.SchemaMismatchError, match="'price' is missing"):
        qbeast.write_table(rows(5).drop("price"), path, mode="append")
    with pytest.raises(qbeast.ConstraintViolationError, match="positive"):
        qbeast.write_table(rows(5).drop("price"), path, mode="append", schema_mode="merge")


def test_new_columns_merge_with_computed_ones(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    qbeast.write_table(rows(5).with_columns(new=pl.lit(1)), path, mode="append", schema_mode="merge")
    actual = qbeast.read_table(path).sort("id")
    assert_frame_equal(actual.drop("new"), complete(rows(5)))
    assert actual["new"].to_list() == [1] * 5


def test_narrow_sources_are_widened_before_they_are_used(tmp_path: Path) -> None:
    path = ruled(
        tmp_path / "t",
        {"a": pl.Int64(), "b": pl.Int64()},
        {"b": {"delta.generationExpression": "a * 100"}},
        columns=["a", "b"],
    )
    narrow = pl.DataFrame({"a": pl.Series([100, 120], dtype=pl.Int8)})
    qbeast.write_table(narrow, path, mode="append")
    assert sorted(qbeast.read_table(path)["b"].to_list()) == [10_000, 12_000]


def test_generated_value_outside_its_type_is_refused(tmp_path: Path) -> None:
    path = ruled(
        tmp_path / "t",
        {"a": pl.Int32(), "b": pl.Int32()},
        {"b": {"delta.generationExpression": "a * 1000"}},
        columns=["a"],
    )
    big = pl.DataFrame({"a": pl.Series([2**30], dtype=pl.Int32)})
    with pytest.raises(qbeast.InvalidInputError, match="cannot be computed for every row"):
        qbeast.write_table(big, path, mode="append")


def test_nulls_in_required_computed_columns_are_refused(tmp_path: Path) -> None:
    schema = {"a": pl.Int64(), "b": pl.Int64()}
    notes = {"b": {"delta.generationExpression": "a + 1"}}
    path = ruled(tmp_path / "t", schema, notes, columns=["a"], required=("b",))
    with pytest.raises(qbeast.InvalidInputError, match="'b' may hold no nulls"):
        qbeast.write_table(pl.DataFrame({"a": [1, None]}), path, mode="append")
    qbeast.write_table(pl.DataFrame({"a": [1]}), path, mode="append")
    with pytest.raises(qbeast.ConstraintViolationError, match="b IS NOT NULL"):
        qbeast.open_table(path).update("a = 1", {"a": "NULL"})


def test_tasks_compute_and_check_rows(tmp_path: Path) -> None:
    path = ruled(
        tmp_path / "t",
        {name: dtype for name, dtype in SCHEMA.items() if name != "id"},
        {name: notes for name, notes in NOTES.items() if name != "id"},
        columns=["day", "double"],
        constraints=CONSTRAINTS,
    )
    task = pickle.loads(pickle.dumps(begin_append(str(path), rows(0))))  # noqa: S301 - our own bytes
    parts = [task.write(rows(60)[start : start + 20]) for start in (0, 20, 40)]
    with pytest.raises(qbeast.ConstraintViolationError, match="positive"):
        task.write(rows(5).with_columns(price=pl.lit(-1.0)))
    publish_parts(task, parts)
    assert_frame_equal(qbeast.read_table(path).sort("ts"), complete(rows(60)).drop("id"))
    check_no_orphans(path)


def test_tasks_draw_no_numbers(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    with pytest.raises(qbeast.UnsupportedTableError, match="draws the numbers") as caught:
        begin_append(str(path), rows(0))
    assert caught.value.feature == "identityColumns"


@pytest.mark.parametrize("columns", [["kind"], ["id"], ["kind", "double"]])
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_index_of_computed_columns_alone(columns: list[str], tmp_path: Path) -> None:
    path = table(tmp_path / "t", columns)
    qbeast.write_table(rows(90).select("price", "ts"), path, mode="append")
    early = qbeast.read_table(path, where="day < DATE '2026-01-10'").sort("id")
    assert_frame_equal(early, complete(rows(90)).filter(pl.col("day") < date(2026, 1, 10)))
    assert_frame_equal(qbeast.read_table(path).sort("id"), complete(rows(90)))
    assert qbeast.open_table(path).check().ok


def test_unsupported_default_matters_only_where_it_is_used(tmp_path: Path) -> None:
    schema = {"a": pl.Int64(), "b": pl.String()}
    path = ruled(tmp_path / "t", schema, {"b": {"CURRENT_DEFAULT": "current_user()"}}, columns=["a"])
    qbeast.write_table(pl.DataFrame({"a": [1], "b": ["x"]}), path, mode="append")
    qbeast.open_table(path).update("a = 1", {"a": "2"})
    with pytest.raises(qbeast.UnsupportedTableError, match="allowColumnDefaults"):
        qbeast.write_table(pl.DataFrame({"a": [1]}), path, mode="append")
    assert qbeast.read_table(path).rows() == [(2, "x")]
