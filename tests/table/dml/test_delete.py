"""Rows are deleted as others delete them, and the index is kept: against plain Polars and deltalake's own delete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from tests.helpers.changes import spread, written
from tests.helpers.examples import examples
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, sampled, samples, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def deletes(draw: st.DrawFn, keyed: bool) -> tuple[Case, list[pl.Expr]]:  # noqa: FBT001 -- drawn from
    case = draw(cases().map(with_key_in_rows) if keyed else cases())
    return case, [draw(filters(case.rows)) for _ in range(2)]


def check_deletes(case: Case, conditions: list[pl.Expr], sample: Any) -> None:
    with folder() as path, small_files():
        write(path, case)
        left = case.rows
        for condition in conditions:
            if (kept := kept_rows(left, condition)) is None:
                continue
            table = qbeast.open_table(path)
            try:
                result = table.delete(condition)
            except qbeast.InvalidInputError as error:
                assert "looks at several columns" in str(error)  # noqa: PT017 -- a literal made of a Series
                continue
            left = left.join(kept, on=ROW, how="anti")
            assert result.rows_deleted == kept.height
            assert result.committed == bool(kept.height)
            assert_same_rows(table.scan().collect(), left)
            assert_same_rows(table.scan(sample=sample).collect(), sampled(left, case.indexed, sample))
        check_invariants(path)


@pytest.mark.timeout(3000)
@examples(2, sweep=100, parent=RELAXED)
@given(case=st.booleans().flatmap(deletes), sample=samples())
def test_delete_removes_rows_its_filter_matches(case: tuple[Case, list[pl.Expr]], sample: Any) -> None:
    check_deletes(*case, sample)


@pytest.mark.parametrize(
    "condition",
    [
        "a > 200",
        "a = 17 OR s = 'key 3'",
        "NOT (a > 100)",
        "a <> 5",
        "a IS NULL",
        "s IN ('key 1', 'key 2')",
        "a NOT IN (1, 2, 3)",
        "s LIKE 'key 1%' AND a BETWEEN 10 AND 300",
        "d >= DATE '2024-02-01'",
        f"{ROW} < 150",
        "a + 1 > 300 AND s IS NOT NULL",
    ],
)
def test_sql_delete_equals_deltalake(tmp_path: Path, condition: str) -> None:
    rows = written(tmp_path / "t")
    write_deltalake(tmp_path / "plain", rows)
    report = DeltaTable(tmp_path / "plain").delete(condition)
    with small_files():
        result = qbeast.open_table(tmp_path / "t").delete(condition)
    assert result.rows_deleted == report["num_deleted_rows"]
    expected = pl.DataFrame(DeltaTable(tmp_path / "plain").to_pyarrow_table())
    assert_same_rows(qbeast.read_table(tmp_path / "t"), expected)
    assert_same_rows(pl.DataFrame(DeltaTable(tmp_path / "t").to_pyarrow_table()), expected)
    check_invariants(tmp_path / "t")


def test_null_condition_deletes_nothing(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    for condition in (
        "NULL",
        "a = 1 AND NULL",
        "a NOT IN (1, NULL)",
        pl.lit(None),
        pl.lit(value=False),
        "1 = 2",
    ):
        assert not table.delete(condition).committed
    assert table.version == 1
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows)


def test_true_deletes_everything_without_reading(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()
    table = qbeast.open_table(tmp_path / "t")
    result = table.delete(where=True)
    assert (result.rows_deleted, result.files, result.new_revision) == (rows.height, 0, False)
    assert table.scan().collect().schema == rows.schema
    assert table.files().is_empty()
    assert not table.delete(where=True).committed
    qbeast.write_table(rows.head(10), tmp_path / "t", mode="append")
    check_invariants(tmp_path / "t")


def test_delete_drops_whole_files_and_keeps_others(tmp_path: Path) -> None:
    rows = spread(2000)
    with small_files(file_rows=50):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear"], cube_size=2000)
    table = qbeast.open_table(tmp_path / "t")
    weights = table.files()["path"].to_list()
    whole = pl.read_parquet(weights[0])[ROW]
    before = set(weights)
    part = pl.read_parquet(weights[1])[ROW].head(3)
    condition = pl.col(ROW).is_in([*whole, *part])
    request = table.delete(condition, dry_run=True)
    assert (request.committed, request.version, request.rows_deleted) == (False, 0, len(whole) + 3)
    assert dict(request.plan.select("action", "matched").iter_rows()) == {"drop": len(whole), "rewrite": 3}
    with small_files(file_rows=50):
        result = table.delete(condition)
    assert result.plan.filter(pl.col("action") != "order of weights").equals(request.plan)
    assert (result.rows_deleted, result.version) == (len(whole) + 3, 1)
    assert len(before - set(table.files()["path"])) == result.files_removed < len(before) / 2
    assert_same_rows(table.scan().collect(), rows.filter(~condition))
    check_invariants(tmp_path / "t")


def test_history_matches_delta(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    result = table.delete("a < 40", commit_metadata={"why": "too small"})
    entry = table.history(1).unnest("metadata").row(0, named=True)
    metrics = entry["metrics"]
    assert (entry["operation"], entry["why"], entry["is_blind_append"]) == ("DELETE", "too small", False)
    assert json.loads(entry["parameters"]["predicate"]) == ["a < 40"]
    assert metrics["numDeletedRows"] == result.rows_deleted == rows.filter(pl.col("a") < 40).height
    assert metrics["numCopiedRows"] == result.rows_copied
    assert metrics["numRemovedFiles"] == result.files_removed
    assert metrics["numAddedFiles"] == result.files
    assert metrics["executionTimeMs"] >= 0
    log = (tmp_path / "t" / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    changes = [json.loads(line) for line in log]
    assert all(
        body["dataChange"] for action in changes for key, body in action.items() if key != "commitInfo"
    )


def test_delete_includes_and_indexes_staged_rows(tmp_path: Path) -> None:
    rows, more = written(tmp_path / "t"), spread(100, 5000)
    write_deltalake(tmp_path / "t", more, mode="append")
    with small_files():
        qbeast.open_table(tmp_path / "t").delete(pl.col(ROW) > 5050)
    expected = pl.concat([rows, more]).filter(pl.col(ROW) <= 5050)
    assert_same_rows(qbeast.read_table(tmp_path / "t"), expected)
    check_invariants(tmp_path / "t")


def test_converted_table_can_lose_rows(tmp_path: Path) -> None:
    rows = spread(300)
    write_deltalake(tmp_path / "t", rows.head(200))
    write_deltalake(tmp_path / "t", rows.tail(100), mode="append")
    qbeast.convert_table(tmp_path / "t", columns=[ROW, "a"])
    table = qbeast.open_table(tmp_path / "t")
    assert table.delete(pl.col(ROW) >= 200).plan["action"].to_list() == ["drop"]
    assert [revision.revision_id for revision in table.revisions] == [0]
    assert table.delete(pl.col(ROW) < 20).new_revision
    assert_same_rows(table.scan().collect(), rows.filter(pl.col(ROW).is_between(20, 199)))
    check_invariants(tmp_path / "t")


def rows_with_large_keys() -> pl.DataFrame:
    return spread(200).with_columns(pl.col("a") * 1000)


def test_rows_of_older_revisions_move_to_newest(tmp_path: Path) -> None:
    first, second = spread(200), spread(200, 1000).with_columns(pl.col("a") * 1000)
    with small_files():
        for frame in (first, second):
            qbeast.write_table(frame, tmp_path / "t", columns=["a:linear", ROW], mode="append", cube_size=20)
        table = qbeast.open_table(tmp_path / "t")
        assert table.files()["revision_id"].unique().sort().to_list() == [1, 2]
        result = table.delete(pl.col(ROW) % 3 == 0)
    assert (result.revision_id, result.new_revision) == (2, False)
    assert_same_rows(table.scan().collect(), pl.concat([first, second]).filter(pl.col(ROW) % 3 != 0))
    check_invariants(tmp_path / "t")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("b > 1", "no such column"),
        ("a +", "cannot be read as SQL"),
        ("a = '\ud800'", "cannot be read as SQL"),
        ("CAST(a AS DECIMAL(99, 98)) > 1", "cannot be read as SQL"),
        ("a + 1", "neither true nor false"),
        ("max(a) = a", "several columns or rows"),
        (pl.col("a") == pl.col("a").max(), "several columns or rows"),
        (pl.col("a").is_duplicated(), "several columns or rows"),
        (pl.all().is_null(), "several columns or rows"),
        ("d > 'x'", "not a value of type DATE"),
        ("a IN (SELECT 1)", "uses QUERY"),
        (False, "True for all rows"),
        (7, "Polars expression or SQL"),
    ],
)
def test_invalid_conditions_raise(tmp_path: Path, condition: Any, message: str) -> None:
    written(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    with pytest.raises(qbeast.InvalidInputError, match=message):
        table.delete(condition)
    assert read_log(tmp_path / "t").version == 1


def test_tables_that_forbid_deletes_raise(tmp_path: Path) -> None:
    rows, path = spread(100), tmp_path / "t"
    write_deltalake(path, rows, configuration={"delta.appendOnly": "true"})
    qbeast.convert_table(path, columns=[ROW])
    with pytest.raises(qbeast.UnsupportedTableError, match=r"delta\.appendOnly"):
        qbeast.open_table(path).delete("a > 5")
    assert_same_rows(qbeast.read_table(path), rows)


def test_sample_after_delete_is_the_remaining_sample(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = pl.DataFrame({ROW: range(20_000), "a": rng.random(20_000)})
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW, "a"], cube_size=500)
    table = qbeast.open_table(tmp_path / "t")
    before = table.scan(sample=0.1).collect()
    table.delete(pl.col("a") < 0.3)
    small, large = (table.scan(sample=share).collect() for share in (0.1, 0.4))
    assert_same_rows(small, before.filter(pl.col("a") >= 0.3))
    assert small.join(large, on=ROW, how="anti").is_empty()
    check_invariants(tmp_path / "t")


def test_changes_need_a_condition(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    table: Any = qbeast.open_table(tmp_path / "t")
    with pytest.raises(TypeError, match="where"):
        table.delete()
    with pytest.raises(TypeError, match="where"):
        table.update(set={"a": 1})
    for nothing in (None, False):
        for change in (table.delete, lambda where: table.update(where, {"a": 1})):
            with pytest.raises(qbeast.InvalidInputError, match="True for all rows") as refused:
                change(nothing)
            assert refused.value.argument == "where"
    assert_same_rows(qbeast.read_table(tmp_path / "t"), rows)
    assert table.delete(pl.lit(value=True), dry_run=True).rows_deleted == rows.height
    assert table.update(where=True, set={"a": 1}, dry_run=True).rows_updated == rows.height
