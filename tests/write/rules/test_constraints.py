"""Constraints that are added and dropped here, and races with other writers."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import qbeast
from tests.helpers.change_races import check_no_orphans
from tests.helpers.handmade_log import features, metadata, write_log
from tests.helpers.races import landing_first

ROWS = pl.DataFrame({"id": range(200), "x": [n / 7 for n in range(200)]})


@pytest.fixture
def table(tmp_path: Path) -> qbeast.Table:
    """A table of ours."""
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    return qbeast.open_table(tmp_path / "t")


def test_added_constraint_binds_deltalake_and_us(table: qbeast.Table) -> None:
    assert table.add_constraint("Positive", "id >= 0").changed == ("delta.constraints.positive",)
    assert DeltaTable(table.uri).protocol().min_writer_version == 3
    bad = ROWS.with_columns(id=-pl.col("id") - 1)
    with pytest.raises(DeltaError):
        write_deltalake(table.uri, bad, mode="append")
    with pytest.raises(qbeast.ConstraintViolationError, match=r"200 row.*'positive', id >= 0"):
        qbeast.write_table(bad, table.uri, mode="append")
    write_deltalake(table.uri, ROWS, mode="append")
    qbeast.write_table(ROWS, table.uri, mode="append")
    assert table.drop_constraint("POSITIVE").changed == ("delta.constraints.positive",)
    qbeast.write_table(bad, table.uri, mode="append")
    assert qbeast.read_table(table.uri).height == 800
    assert table.history()["operation"].to_list().count("ADD CONSTRAINT") == 1


def test_constraint_of_deltalake_is_dropped(table: qbeast.Table) -> None:
    DeltaTable(table.uri).alter.add_constraint({"Mine": "id >= 0"})
    table.refresh().drop_constraint("mine")
    assert not DeltaTable(table.uri).metadata().configuration.keys() & {"delta.constraints.Mine"}


def test_tables_with_named_features_get_the_feature(tmp_path: Path) -> None:
    rows = ROWS.with_columns(at=pl.lit(0).cast(pl.Datetime("us")))  # timestamp_ntz: version 7
    qbeast.write_table(rows, tmp_path / "t", columns=["id"])
    qbeast.open_table(tmp_path / "t").add_constraint("c", "id >= 0")
    protocol = DeltaTable(tmp_path / "t").protocol()
    assert "checkConstraints" in (protocol.writer_features or [])
    assert "checkConstraints" not in (protocol.reader_features or [])


def test_rows_that_break_a_constraint_refuse_it(table: qbeast.Table) -> None:
    with pytest.raises(qbeast.ConstraintViolationError, match="50 row") as caught:
        table.add_constraint("small", "id < 150")
    assert caught.value.rows == 50
    assert caught.value.example["id"] >= 150  # type: ignore[operator]
    assert caught.value.argument == "expression"
    assert table.refresh().version == 0


@pytest.mark.parametrize(
    ("name", "expression", "argument", "report"),
    [
        ("c", "no_such > 1", "expression", "no_such"),
        ("c", "id +", "expression", "too early"),
        ("c", "id + 1", "expression", "neither true nor false"),
        ("c", "uuid() <> ''", "expression", "uuid"),
        ("c", "sum(id) > 1", "expression", "rows at once"),
        ("c", 5, "expression", "SQL"),
        ("", "id > 0", "name", "name of a constraint"),
        ("Taken", "id > 0", "name", "Drop it first"),
    ],
)
def test_invalid_constraints_are_refused(
    table: qbeast.Table, name: str, expression: str, argument: str, report: str
) -> None:
    table.add_constraint("taken", "id >= 0")
    with pytest.raises(qbeast.InvalidInputError, match=report) as caught:
        table.add_constraint(name, expression)
    assert caught.value.argument == argument
    assert table.refresh().version == 1


def test_unknown_constraint_is_not_dropped(table: qbeast.Table) -> None:
    table.add_constraint("positive", "id >= 0")
    with pytest.raises(qbeast.InvalidInputError, match="Did you mean 'positive'"):
        table.drop_constraint("positiv")


def test_rows_that_come_meanwhile_are_checked(table: qbeast.Table) -> None:
    bad = ROWS.with_columns(id=-pl.col("id") - 1)
    with (
        landing_first(lambda: qbeast.write_table(bad, table.uri, mode="append")),
        pytest.raises(qbeast.CommitConflictError, match=r"200 row.s. break"),
    ):
        table.add_constraint("positive", "id >= 0")
    assert not DeltaTable(table.uri).metadata().configuration.keys() & {"delta.constraints.positive"}


def test_good_rows_that_come_meanwhile_are_no_conflict(table: qbeast.Table) -> None:
    with landing_first(lambda: qbeast.write_table(ROWS, table.uri, mode="append")):
        assert table.add_constraint("positive", "id >= 0").version == 2


@pytest.mark.parametrize("change", ["append", "merge"])
def test_constraint_that_comes_meanwhile_stops_new_rows(table: qbeast.Table, change: str) -> None:
    path = Path(table.uri)
    bad = ROWS.with_columns(id=-pl.col("id") - 1)
    other = qbeast.open_table(path)
    with landing_first(lambda: other.add_constraint("positive", "id >= 0")):
        if change == "append":
            with pytest.raises(qbeast.CommitConflictError, match="changed the rules"):
                qbeast.write_table(bad, path, mode="append")
        else:  # planned again, and checked
            with pytest.raises(qbeast.ConstraintViolationError):
                table.merge(bad, on="id")
    assert qbeast.read_table(path).height == ROWS.height
    check_no_orphans(path)


def test_fields_without_nulls_are_checked(tmp_path: Path) -> None:
    field = pa.field("a", pa.struct([pa.field("b", pa.int64(), nullable=False)]))
    schema = pa.schema([pa.field("id", pa.int64()), field])
    DeltaTable.create(tmp_path / "t", schema=schema)
    qbeast.convert_table(tmp_path / "t", columns=["id"])
    good = pl.DataFrame({"id": [1, 2], "a": [{"b": 1}, None]})
    qbeast.write_table(good, tmp_path / "t", mode="append")
    with pytest.raises(qbeast.ConstraintViolationError, match=r"'a.b'.*a.b IS NOT NULL"):
        qbeast.write_table(
            good.with_columns(a=pl.struct(b=pl.lit(None, pl.Int64))), tmp_path / "t", mode="append"
        )
    assert qbeast.read_table(tmp_path / "t").height == 2


def test_invariants_of_column_and_field_both_bind(tmp_path: Path) -> None:
    def rule(text: str) -> dict[str, str]:
        return {"delta.invariants": json.dumps({"expression": {"expression": text}})}

    inner = {"name": "b", "type": "long", "nullable": True, "metadata": rule("a.b > 0")}
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "a", "type": {"type": "struct", "fields": [inner]}, "nullable": True, "metadata": {}},
        {"name": "a.b", "type": "long", "nullable": True, "metadata": rule("`a.b` < 0")},
    ]
    write_log(tmp_path, [features("invariants"), metadata({"type": "struct", "fields": fields}, {})])
    qbeast.convert_table(tmp_path, columns=["id"])
    for whole, field, names in ((-1, -1, "a.b"), (1, 1, "`a.b`"), (-1, 1, None)):
        rows = pl.DataFrame({"id": [1], "a": [{"b": field}], "a.b": [whole]})
        if names is None:
            qbeast.write_table(rows, tmp_path, mode="append")
        else:
            with pytest.raises(qbeast.ConstraintViolationError, match=rf"'{names}'"):
                qbeast.write_table(rows, tmp_path, mode="append")
    assert qbeast.read_table(tmp_path).height == 1
