"""Rows get other values as they do elsewhere, and move to their cubes: against Polars and deltalake's own update."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from tests.helpers.change_races import beside, grown
from tests.helpers.change_races import check as check_beside
from tests.helpers.change_races import rows as more_rows
from tests.helpers.changes import spread, written
from tests.helpers.examples import examples
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import ROW, VALUES, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, sampled, samples, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
Updates = list[tuple[pl.Expr, dict[str, pl.Expr]]]


@st.composite
def updates(draw: st.DrawFn, keyed: bool) -> tuple[Case, Updates]:  # noqa: FBT001 -- drawn from
    """Conditions, and constants or other columns to set columns to."""
    case = draw(cases().map(with_key_in_rows) if keyed else cases())
    frame = case.rows
    names = [name for name in frame.columns if name != ROW]
    actual: Updates = []
    for _ in range(2):
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        values = {}
        for name in chosen:
            dtype = frame.schema[name]
            alike = [other for other in names if frame.schema[other] == dtype]
            if dtype.is_nested() or draw(st.booleans()):
                values[name] = pl.col(draw(st.sampled_from(alike)))
            else:
                values[name] = pl.lit(draw(st.none() | VALUES[dtype]), dtype=dtype)
        actual.append((draw(filters(frame, 1)), values))
    return case, actual


def check_updates(case: Case, asked: Updates, sample: Any) -> None:
    with folder() as path, small_files():
        write(path, case)
        rows = case.rows
        for condition, values in asked:
            if (kept := kept_rows(rows, condition)) is None:
                continue
            table = qbeast.open_table(path)
            try:
                result = table.update(condition, values)
            except qbeast.InvalidInputError as error:
                assert "looks at several columns" in str(error)  # noqa: PT017 -- a literal made of a Series
                continue
            rest = rows.join(kept, on=ROW, how="anti")
            rows = pl.concat([rest, kept.with_columns(**values)])
            assert (result.rows_updated, result.committed) == (kept.height, bool(kept.height))
            assert_same_rows(table.scan().collect(), rows)
            assert_same_rows(table.scan(sample=sample).collect(), sampled(rows, case.indexed, sample))
        check_invariants(path)


@pytest.mark.timeout(3000)
@examples(2, sweep=100, parent=RELAXED)
@given(case=st.booleans().flatmap(updates), sample=samples())
def test_update_changes_rows_its_filter_matches(case: tuple[Case, Updates], sample: Any) -> None:
    check_updates(*case, sample)


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("a > 200", {"a": "a - 150"}),
        ("s = 'key 3' OR a < 9", {"s": "'other'", "a": "a * 100"}),
        ("a IS NULL", {"a": "7", "f": "f + a"}),
        (f"{ROW} BETWEEN 30 AND 60", {"a": "NULL", "s": "NULL"}),
        ("d < DATE '2024-01-20'", {"d": "DATE '2030-01-01'", "a": f"{ROW}"}),
        ("a > 100000", {"a": "1"}),
    ],
)
def test_sql_update_equals_deltalake(tmp_path: Path, condition: str, values: dict[str, str]) -> None:
    rows = written(tmp_path / "t")
    write_deltalake(tmp_path / "plain", rows)
    report = DeltaTable(tmp_path / "plain").update(predicate=condition, updates=values)
    with small_files():
        result = qbeast.open_table(tmp_path / "t").update(condition, values)
    assert result.rows_updated == report["num_updated_rows"]
    expected = pl.DataFrame(DeltaTable(tmp_path / "plain").to_pyarrow_table())
    assert_same_rows(qbeast.read_table(tmp_path / "t"), expected)
    check_invariants(tmp_path / "t")


def test_update_keeps_files_without_matches(tmp_path: Path) -> None:
    rows = spread(2000)
    with small_files(file_rows=50):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear", "a"], cube_size=200)
        table = qbeast.open_table(tmp_path / "t")
        before = set(table.files()["path"])
        request = table.update(f"{ROW} < 40", {"f": "0.5"}, dry_run=True)
        assert (request.committed, request.rows_updated, table.version) == (False, 40, 0)
        result = table.update(f"{ROW} < 40", {"f": "0.5"})
    assert result.plan.filter(pl.col("action") == "rewrite").equals(request.plan)
    assert request.plan["matched"].sum() == 40
    assert request.rows_copied <= result.rows_copied
    assert len(before & set(table.files()["path"])) == len(before) - result.files_removed > len(before) / 2
    assert "a dry run: 40 rows updated" in repr(request)
    assert "40 rows updated" in repr(result)
    check_invariants(tmp_path / "t")


def test_value_beyond_space_moves_only_its_row(tmp_path: Path) -> None:
    rows = spread(2_000)
    with small_files(file_rows=100):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear"], cube_size=50)
        table = qbeast.open_table(tmp_path / "t")
        result = table.update(pl.col(ROW) == 1_000, {ROW: pl.lit(10**6)})
    assert (result.new_revision, result.revision_id, result.rows_updated) == (True, 2, 1)
    assert result.files_removed < 10
    files = table.files()
    assert files.filter(pl.col("revision_id") == 2)["num_records"].to_list() == [1]
    assert files["revision_id"].unique().sort().to_list() == [1, 2]
    assert_same_rows(table.scan().collect(), rows.with_columns(pl.col(ROW).replace(1_000, 10**6)))
    assert table.explain(pl.col(ROW) > 5_000).rows_opened == 1
    check_invariants(tmp_path / "t")
    assert table.check().faults.is_empty()


def test_values_beyond_space_begin_new_revision(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    with small_files():
        qbeast.write_table(rows, tmp_path / "u", columns=[f"{ROW}:linear", "a:linear"], cube_size=30)
        table = qbeast.open_table(tmp_path / "u")
        result = table.update("a > 350", {"a": "a * 1000"})
    assert (result.new_revision, result.revision_id) == (True, 2)
    actual = table.scan().filter(pl.col("a") > 350_000).collect()
    assert actual.height == result.rows_updated
    assert table.explain(pl.col("a") > 350_000).share < 1
    check_invariants(tmp_path / "u")


def test_unindexed_values_keep_rows_in_their_cubes(tmp_path: Path) -> None:
    written(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    before, revisions = table.scan(sample=0.3).select(ROW).collect(), len(table.revisions)
    with small_files():
        table.update(where=True, set={"f": pl.col("f") + 1, "d": date(2020, 1, 1)})
    assert_same_rows(table.scan(sample=0.3).select(ROW).collect(), before)
    assert len(table.revisions) == revisions
    assert table.scan().select("d").unique().collect()["d"].to_list() == [date(2020, 1, 1)]
    check_invariants(tmp_path / "t")


def test_values_are_computed_only_for_matching_rows(tmp_path: Path) -> None:
    rows = pl.DataFrame({ROW: range(100), "s": [str(i) if i % 2 else "no number" for i in range(100)]})
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    table = qbeast.open_table(tmp_path / "t")
    digits = pl.col("s").str.contains(r"^\d+$")
    table.update(digits, {ROW: pl.col("s").cast(pl.Int64) + 1000})
    assert table.scan().filter(pl.col(ROW) >= 1000).collect().height == 50
    with pytest.raises(qbeast.InvalidInputError, match="cannot be computed"):
        table.update(~digits, {ROW: pl.col("s").cast(pl.Int64)})
    assert table.version == 1
    check_invariants(tmp_path / "t")


def test_history_matches_delta(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    result = table.update("a < 40", {"a": "0"})
    entry = table.history(1).row(0, named=True)
    metrics = entry["metrics"]
    assert entry["operation"] == "UPDATE"
    assert json.loads(entry["parameters"]["predicate"]) == ["a < 40"]
    assert metrics["numUpdatedRows"] == result.rows_updated == rows.filter(pl.col("a") < 40).height
    assert metrics["numCopiedRows"] == result.rows_copied
    assert {"numAddedFiles", "numRemovedFiles", "executionTimeMs"} <= set(metrics)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({}, qbeast.InvalidInputError, "at least one"),
        ({"b": "1"}, qbeast.InvalidInputError, "no such column"),
        ({"a": "b"}, qbeast.InvalidInputError, "no such column"),
        ({"a": "1.5"}, qbeast.SchemaMismatchError, "Cast it"),
        ({"a": pl.lit("x")}, qbeast.SchemaMismatchError, "Cast it"),
        ({"a": pl.col("a").sum()}, qbeast.InvalidInputError, "several columns or rows"),
        ({"d": datetime(2024, 1, 1, tzinfo=UTC)}, qbeast.SchemaMismatchError, "Cast it"),
        ({"a": object()}, qbeast.InvalidInputError, "object"),
        ({"small": "a * 1000"}, qbeast.InvalidInputError, "cannot be computed"),
        ("a = 1", qbeast.InvalidInputError, "must map"),
    ],
)
def test_invalid_values_raise(tmp_path: Path, values: Any, error: type[Exception], message: str) -> None:
    rows = spread(100).with_columns(small=pl.lit(1, pl.Int8))
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    with pytest.raises(error, match=message):
        qbeast.open_table(tmp_path / "t").update("a > 3", values)
    assert read_log(tmp_path / "t").version == 0
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows)


def test_numbers_are_cast_to_the_column_type(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {ROW: [1], "tiny": [1], "half": [0.5], "exact": [Decimal("1.25")]},
        schema={ROW: pl.Int64, "tiny": pl.Int8, "half": pl.Float32, "exact": pl.Decimal(10, 2)},
    )
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    table = qbeast.open_table(tmp_path / "t")
    table.update(where=True, set={ROW: pl.col("tiny"), "tiny": 7, "half": "1.5", "exact": Decimal("3.5")})
    assert table.scan().collect().rows() == [(1, 7, 1.5, Decimal("3.50"))]
    assert table.scan().collect().schema == rows.schema


def test_required_column_stays_without_nulls(tmp_path: Path) -> None:
    fields = [Field("id", PrimitiveType("long"), nullable=False), Field("x", PrimitiveType("long"))]
    DeltaTable.create(tmp_path / "t", Schema(fields))
    write_deltalake(tmp_path / "t", pl.DataFrame({"id": [1, 2, 3], "x": [1, None, 3]}), mode="append")
    qbeast.convert_table(tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t")
    with pytest.raises(qbeast.SchemaMismatchError, match="may hold no nulls"):
        table.update(where=True, set={"id": "x"})
    assert table.update("x IS NOT NULL", {"id": "x + 1"}).rows_updated == 2
    assert sorted(table.scan().collect()["id"]) == [2, 2, 4]


def test_concurrently_added_rows_are_updated(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything, more = grown(path), more_rows(5000)

    def change(opened: qbeast.Table) -> qbeast.ChangeResult:
        return opened.update(pl.col("a") < 0.4, {"a": pl.col("a") + 0.5})

    result = beside(path, lambda: qbeast.write_table(more, path, mode="append"), change)
    rows = pl.concat([everything, more])
    assert result.rows_updated == rows.filter(pl.col("a") < 0.4).height
    low = pl.col("a") < 0.4
    check_beside(path, rows.with_columns(pl.when(low).then(pl.col("a") + 0.5).otherwise("a")))
