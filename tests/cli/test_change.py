"""Commands that change rows, columns and properties do what the library does."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.cli.running import ROWS, run, run_error, run_json


def rows_of(path: Path) -> pl.DataFrame:
    return qbeast.read_table(path).sort("id")


def test_delete_removes_rows_its_dry_run_counted(mine: Path) -> None:
    planned = run_json("delete", mine, "--where", "price < 10 AND brand = 'brand 7'", "--dry-run")
    assert_frame_equal(rows_of(mine), ROWS)
    done = run_json(
        "delete", mine, "--where", "price < 10 AND brand = 'brand 7'", "--commit-metadata", "why=cheap"
    )
    gone = (pl.col("price") < 10) & (pl.col("brand") == "brand 7")
    assert planned["rows_deleted"] == done["rows_deleted"] == ROWS.filter(gone).height > 0
    assert_frame_equal(rows_of(mine), ROWS.remove(gone))
    assert qbeast.open_table(mine).history(1)["metadata"][0]["why"] == "cheap"
    assert "rows deleted" in run("delete", mine, "--all").stdout
    assert rows_of(mine).is_empty()


def test_update_sets_values_in_sql(mine: Path) -> None:
    done = run_json(
        "update", mine, "--where", "id < 5", "--set", "price=price * 2", "--set", "brand='other = own'"
    )
    low = pl.col("id") < 5
    expected = ROWS.with_columns(
        price=pl.when(low).then(pl.col("price") * 2).otherwise("price"),
        brand=pl.when(low).then(pl.lit("other = own")).otherwise("brand"),
    )
    assert done["rows_updated"] == 5
    assert_frame_equal(rows_of(mine), expected)


@pytest.mark.parametrize("arguments", [["delete"], ["update", "--set", "price=1"]])
def test_changes_need_where_or_all(mine: Path, arguments: list[str]) -> None:
    command, *rest = arguments
    assert "choose rows: --where SQL, or --all" in run_error(command, mine, *rest, code=2)
    assert "choose rows" in run_error(command, mine, *rest, "--where", "id = 1", "--all", code=2)
    assert_frame_equal(rows_of(mine), ROWS)


def test_merge_upserts_files_and_the_standard_input(mine: Path, tmp_path: Path) -> None:
    arrived = pl.DataFrame({"id": [1, 5000], "price": [0.5, 0.25], "brand": ["new", "new"]})
    arrived.write_csv(tmp_path / "arrived.csv")
    done = run_json("merge", tmp_path / "arrived.csv", mine, "--on", "id", "--txn", "load:1")
    assert (done["rows_updated"], done["rows_inserted"]) == (1, 1)
    expected = pl.concat([ROWS.filter(pl.col("id") != 1), arrived]).sort("id")
    assert_frame_equal(rows_of(mine), expected)
    again = run_json("merge", tmp_path / "arrived.csv", mine, "--on", "id", "--txn", "load:1")
    assert not again["committed"]
    given = b'{"id": 5000, "price": 1.0, "brand": "x"}\n'
    report = run_json(
        *("merge", "-", mine, "--on", "id", "--format", "jsonl", "--when-not-matched", "ignore"),
        *("--matched-if", "source.price > price", "--set", "price=source.price"),
        given=given,
    )
    assert report["rows_updated"] == 1
    assert rows_of(mine).row(-1) == (5000, 1.0, "new")


def test_columns_are_added_and_properties_set(mine: Path) -> None:
    assert run_json("add-columns", mine, "note=string", "paid=decimal(9,2)")["added"] == ["note", "paid"]
    assert qbeast.open_table(mine).schema["paid"] == pl.Decimal(9, 2)
    assert run("set-properties", mine, "owner=us").stdout.splitlines()[-1] == "owner=us"
    assert run_json("set-properties", mine)["properties"] == {"owner": "us"}
    assert "no properties" in run("set-properties", mine, "--unset", "owner").stdout
    assert "no such type" in run_error("add-columns", mine, "a=nothing", code=2)


def test_sql_queries_the_table(sales: Path, tmp_path: Path) -> None:
    query = (
        "SELECT brand, count(*) AS n FROM self WHERE price < 10 GROUP BY brand ORDER BY n DESC, brand LIMIT 3"
    )
    expected = qbeast.open_table(sales).sql(query).collect()
    assert run_json("sql", sales, query)["rows"] == expected.to_dicts()
    run("sql", sales, query, "--output", tmp_path / "answer.csv")
    assert_frame_equal(pl.read_csv(tmp_path / "answer.csv"), expected, check_dtypes=False)
    assert (
        run_json("sql", sales, "SELECT count(*) AS n FROM self", "--sample", "10%")["rows"][0]["n"]
        < ROWS.height / 4
    )
    refused = run_error("sql", sales, "SELECT nowhere FROM self", code=2)
    assert "no such column" in refused
    assert "Resolved plan" not in refused


def test_unquoted_text_error_explains_quoting(mine: Path) -> None:
    assert "quote it singly: 'us'" in run_error("delete", mine, "--where", 'brand = "us"', code=2)


def test_merge_inserts_computed_values(mine: Path, tmp_path: Path) -> None:
    pl.DataFrame({"id": [1, 5000], "price": [1.0, 2.0], "brand": ["x", "y"]}).write_parquet(
        tmp_path / "s.parquet"
    )
    options = ("--on", "id", "--insert", "id=source.id", "--insert", "brand='new'")
    run("merge", tmp_path / "s.parquet", mine, *options)
    rows = qbeast.read_table(mine).filter(pl.col("id").is_in([1, 5000])).sort("id")
    assert rows.rows() == [(1, 1.0, "x"), (5000, None, "new")]


def test_schema_merge_adds_columns(mine: Path, tmp_path: Path) -> None:
    arrived = pl.DataFrame({"id": [1, 5000], "note": ["known", "new"]})
    arrived.write_parquet(tmp_path / "s.parquet")
    arguments = ("merge", tmp_path / "s.parquet", mine, "--on", "id")
    assert "--schema-mode merge" in run_error(*arguments, code=3)
    run(*arguments, "--schema-mode", "merge")
    rows = qbeast.read_table(mine).filter(pl.col("note").is_not_null()).sort("id")
    assert rows.select("id", "note").equals(arrived)
    assert rows["price"].is_null().to_list() == [False, True]


def test_hint_names_the_command_that_copies_less(mine: Path) -> None:
    printed = run("delete", mine, "--where", "id = 5", "--dry-run").stdout
    assert "copied without deletion vectors: at least " in printed
    assert "copied with deletion vectors: at least 0 rows" in printed
    found = re.search(r"copied to change 1\. After `qbeast (set-properties) TABLE (\S+)`, ", printed)
    assert found
    assert run_json("delete", mine, "--where", "id = 5", "--dry-run")["hint"] in printed
    run(found[1], mine, found[2])
    done = run_json("delete", mine, "--where", "id = 5")
    assert (done["rows_deleted"], done["rows_copied"], done["hint"]) == (1, 0, None)


def test_overwrite_of_rows_prints_what_it_copies(mine: Path, tmp_path: Path) -> None:
    ROWS.filter(pl.col("id") == 5).write_csv(tmp_path / "new.csv")
    arguments = ("write", tmp_path / "new.csv", mine, "--mode", "overwrite", "--where", "id = 5")
    printed = run(*arguments, "--dry-run").stdout
    assert re.search(
        r"copies +at least [\d,]+ rows, [\d,]+ bytes without deletion vectors; 0 rows, ", printed
    )
    assert "`qbeast set-properties TABLE delta.enableDeletionVectors=true`" in printed
    done = run_json(*arguments)
    assert done["copies"][0]["rows"] == done["rows_copied"] > 0


def test_hint_of_a_new_table_is_a_command(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(20_000), "kind": [number % 3 for number in range(20_000)]})
    rows.write_parquet(tmp_path / "rows.parquet")
    printed = run("write", tmp_path / "rows.parquet", tmp_path / "t", "-c", "id,kind").stdout
    assert "open less without it: `qbeast reindex TABLE --columns id --full`" in printed


def test_errors_name_properties_as_options(mine: Path) -> None:
    run("set-properties", mine, "delta.appendOnly=true")
    refused = run_error("delete", mine, "--where", "id = 5", code=7)
    assert "`qbeast set-properties TABLE --unset delta.appendOnly`" in refused
