"""Deletes, updates and merges make of rows what Polars and deltalake make of them; index, samples and feed follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from tests.helpers.change_feed import check_feed, enable_feed
from tests.helpers.examples import examples, is_sweep
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import ROW, VALUES, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, sampled, samples, small_files, write
from tests.helpers.vectors import enable_vectors

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
SMALL: dict[str, int] = {} if is_sweep() else {"most_frames": 2, "most_rows": 20}
Steps = list[tuple[str, pl.Expr, dict[str, pl.Expr]]]


@st.composite
def changes(draw: st.DrawFn) -> tuple[Case, Steps]:
    """A table, and changes: conditions, and constants or other columns to set columns to."""
    case = draw(cases(**SMALL))
    case = with_key_in_rows(case) if draw(st.booleans()) else case
    frame = case.rows
    names = [name for name in frame.columns if name != ROW]
    steps: Steps = []
    for _ in range(3 if is_sweep() else 2):
        kind = draw(st.sampled_from(["delete", "update", "merge"]))
        values = {}
        for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
            dtype = frame.schema[name]
            alike = [other for other in names if frame.schema[other] == dtype]
            if dtype.is_nested() or draw(st.booleans()):
                values[name] = pl.col(draw(st.sampled_from(alike)))
            else:
                values[name] = pl.lit(draw(st.none() | VALUES[dtype]), dtype=dtype)
        steps.append((kind, draw(filters(frame, 2 if kind == "delete" else 1)), values))
    return case, steps


@pytest.mark.timeout(3000)
@examples(2, sweep=100, parent=RELAXED)
@given(given_changes=changes(), feed=st.booleans(), vectors=st.booleans(), sample=samples())
def test_rows_samples_and_feed_equal_polars(
    given_changes: tuple[Case, Steps],
    feed: bool,  # noqa: FBT001 -- drawn
    vectors: bool,  # noqa: FBT001 -- drawn
    sample: Any,
) -> None:
    case, steps = given_changes
    with folder() as path, small_files():
        write(path, case)
        if feed:
            enable_feed(path)
        if vectors and case.dialect == "documented":
            enable_vectors(path)
        rows = case.rows
        for kind, condition, values in steps:
            if (matching := kept_rows(rows, condition)) is None:
                continue
            table = qbeast.open_table(path)
            rest, updated = rows.join(matching, on=ROW, how="anti"), matching.with_columns(**values)
            new = matching.with_columns(pl.col(ROW) + 1_000_000).join(rows, on=ROW, how="anti")
            is_deleted = pl.col(ROW) % 3 == 0
            try:
                if kind == "delete":
                    result, keys, after = table.delete(condition), {"delete": matching[ROW]}, rest
                elif kind == "update":
                    result, keys = table.update(condition, values), {"update": matching[ROW]}
                    after = pl.concat([rest, updated])
                else:
                    result = table.merge(pl.concat([updated, new]), on=ROW, delete_if=f"{ROW} % 3 = 0")
                    kept = updated.filter(~is_deleted)
                    keys = {
                        "delete": matching.filter(is_deleted)[ROW],
                        "update": kept[ROW],
                        "insert": new[ROW],
                    }
                    after = pl.concat([rest, kept, new])
            except qbeast.InvalidInputError as error:
                assert "looks at several columns" in str(error)  # noqa: PT017 -- a literal made of a Series
                continue
            counts = [result.rows_deleted, result.rows_updated, result.rows_inserted]
            assert counts == [len(keys.get(name, ())) for name in ("delete", "update", "insert")]
            assert result.committed == any(counts)
            assert_same_rows(table.read(), after)
            assert_same_rows(table.read(sample=sample), sampled(after, case.indexed, sample))
            if feed and result.committed:
                check_feed(path, result.version, rows, after, keys)
            rows = after
        check_invariants(path)


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("a > 200", None),
        ("a = 17 OR s = 'key 3'", None),
        ("NOT (a > 100)", None),
        ("a <> 5", None),
        ("a IS NULL", None),
        ("s IN ('key 1', 'key 2')", None),
        ("a NOT IN (1, 2, 3)", None),
        ("s LIKE 'key 1%' AND a BETWEEN 10 AND 300", None),
        ("d >= DATE '2024-02-01'", None),
        (f"{ROW} < 75", None),
        ("a + 1 > 300 AND s IS NOT NULL", None),
        ("a > 200", {"a": "a - 150"}),
        ("s = 'key 3' OR a < 9", {"s": "'other'", "a": "a * 100"}),
        ("a IS NULL", {"a": "7", "f": "f + a"}),
        (f"{ROW} BETWEEN 30 AND 60", {"a": "NULL", "s": "NULL"}),
        ("d < DATE '2024-01-20'", {"d": "DATE '2030-01-01'", "a": f"{ROW}"}),
        ("a > 100000", {"a": "1"}),
    ],
)
def test_sql_means_what_deltalake_means(
    path: Path, rows: pl.DataFrame, tmp_path: Path, condition: str, values: dict[str, str] | None
) -> None:
    write_deltalake(tmp_path / "plain", rows)
    plain = DeltaTable(tmp_path / "plain")
    table = qbeast.open_table(path)
    with small_files():
        if values is None:
            count = plain.delete(condition)["num_deleted_rows"]
            assert table.delete(condition).rows_deleted == count
        else:
            count = plain.update(predicate=condition, updates=values)["num_updated_rows"]
            assert table.update(condition, values).rows_updated == count
    expected = pl.DataFrame(plain.to_pyarrow_table())
    assert_same_rows(qbeast.read_table(path), expected)
    assert_same_rows(pl.DataFrame(DeltaTable(path).to_pyarrow_table()), expected)
    check_invariants(path)


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
def test_history_matches_delta(table: qbeast.Table, rows: pl.DataFrame, operation: str) -> None:
    options: dict[str, Any] = {"commit_metadata": {"why": "too small"}}
    if operation == "DELETE":
        result = table.delete("a < 40", **options)
        changed, name = result.rows_deleted, "numDeletedRows"
    else:
        result = table.update("a < 40", {"a": "0"}, **options)
        changed, name = result.rows_updated, "numUpdatedRows"
    entry = table.history(1).unnest("metadata").row(0, named=True)
    metrics = entry["metrics"]
    assert (entry["operation"], entry["why"], entry["is_blind_append"]) == (operation, "too small", False)
    assert json.loads(entry["parameters"]["predicate"]) == ["a < 40"]
    assert metrics[name] == changed == rows.filter(pl.col("a") < 40).height
    assert metrics["numCopiedRows"] == result.rows_copied
    assert metrics["numRemovedFiles"] == result.files_removed
    assert metrics["numAddedFiles"] == result.files
    assert metrics["executionTimeMs"] >= 0
    log = (Path(table.uri) / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    actions = [json.loads(line) for line in log]
    assert all(
        body["dataChange"] for action in actions for key, body in action.items() if key != "commitInfo"
    )


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("a = '\ud800'", "cannot be read as SQL"),
        ("CAST(a AS DECIMAL(99, 98)) > 1", "cannot be read as SQL"),
        ("a + 1", "neither true nor false"),
        ("max(a) = a", "several columns or rows"),
        (pl.col("a") == pl.col("a").max(), "several columns or rows"),
        (pl.col("a").is_duplicated(), "several columns or rows"),
        (pl.all().is_null(), "several columns or rows"),
        ("d > 'x'", "not a value of type DATE"),
        (False, "True for all rows"),
    ],
)
def test_invalid_conditions_raise(path: Path, table: qbeast.Table, condition: Any, message: str) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=message):
        table.delete(condition)
    assert read_log(path).version == 1
