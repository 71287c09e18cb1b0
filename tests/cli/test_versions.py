"""`qbeast changes`, `diff`, `split`, `copy` and `constraints` beside Polars, deltalake and the rows themselves."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from tests.cli.running import ROWS, run, run_error, run_json


@pytest.fixture
def changed(mine: Path) -> Path:
    """The table after a delete and an update: versions 2 and 3."""
    table = qbeast.open_table(mine)
    table.delete("id < 3")
    table.update("id = 10", {"price": "-1.0"})
    return mine


def test_changes_are_those_of_last_commit(changed: Path) -> None:
    rows = run_json("changes", changed)["rows"]
    old = ROWS["price"][10]
    assert sorted((r["id"], r["price"], r["_change_type"], r["_commit_version"]) for r in rows) == sorted(
        [(10, old, "delete", 3), (10, -1.0, "insert", 3)]
    )
    deleted = run_json("changes", changed, "--since", "1", "--until", "2", "--select", "id,_change_type")[
        "rows"
    ]
    assert sorted(row["id"] for row in deleted) == [0, 1, 2]
    assert {row["_change_type"] for row in deleted} == {"delete"}


def test_changes_of_first_version_are_its_rows(changed: Path, tmp_path: Path) -> None:
    file = tmp_path / "first.parquet"
    assert run_json("changes", changed, "--since", "-1", "--until", "0", "-o", file)["rows"] == 1500
    rows = pl.read_parquet(file)
    assert set(rows["_change_type"]) == {"insert"}
    assert_frame_equal(rows.select(ROWS.columns).sort("id"), ROWS.head(1500))


def test_conditions_on_changes_use_added_columns(changed: Path) -> None:
    where = "_change_type = 'delete' AND id > 5"
    lines = run("changes", changed, "--since", "1", "--where", where, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [10]
    assert "'nothing'" in run_error("changes", changed, "--where", "nothing = 1", code=2)
    assert "--since" in run_error("changes", changed, "--since", "9", code=2)


def test_diff_joins_all_commits_between(changed: Path) -> None:
    qbeast.open_table(changed).update("id = 10", {"price": "-2.0"})
    rows = run_json("diff", changed, "1", "--key", "id", "-n", "20")["rows"]
    kinds = sorted((row["id"], row["_change_type"], row["price"]) for row in rows)
    assert kinds == [
        *((number, "delete", ROWS["price"][number]) for number in range(3)),
        (10, "update_postimage", -2.0),
        (10, "update_preimage", ROWS["price"][10]),
    ]
    earlier = run_json("diff", changed, "1", "--key", "id", "--version", "2")["rows"]
    assert sorted(row["id"] for row in earlier) == [0, 1, 2]
    assert "--key" in run_error("diff", changed, "1", code=2)


@pytest.mark.parametrize("shares", [("train=0.8", "test=0.2"), ("train=80%", "test=20%")])
def test_split_writes_each_row_once(sales: Path, tmp_path: Path, shares: tuple[str, ...]) -> None:
    folder = tmp_path / "new" / "parts"
    data = run_json("split", sales, *shares, "-o", folder)
    parts = {name: pl.read_parquet(folder / f"{name}.parquet") for name in ("train", "test")}
    assert_frame_equal(pl.concat(parts.values()).sort("id"), ROWS)
    assert {part["name"]: part["rows"] for part in data["parts"]} == {k: v.height for k, v in parts.items()}
    expected = qbeast.open_table(sales).rows().split({"train": 0.8, "test": 0.2})
    assert_frame_equal(parts["test"].sort("id"), expected["test"].collect().sort("id"))


def test_split_replaces_no_file_and_no_folder(sales: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("mine")
    command = ("split", sales, "a=0.5", "b=0.5", "-o", tmp_path, "--format", "csv")
    assert "--overwrite" in run_error(*command, code=2)
    assert [file.name for file in tmp_path.iterdir()] == ["b.csv"]
    run(*command, "--overwrite")
    assert sum(pl.read_csv(file).height for file in tmp_path.iterdir()) == ROWS.height
    assert "folder" in run_error("split", sales, "../a=0.5", code=2)
    assert "shares above 0" in run_error("split", sales, "train=most", code=2)


def test_copy_keeps_rows_and_index(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    rows = ROWS.with_columns(half=pl.col("id") % 2)
    options = {"sample_by": "brand", "importance": {"id": 2.0}, "partition_by": ["half"]}
    qbeast.write_table(rows, old, ["id", "price"], deletion_vectors=True, change_feed=False, **options)
    qbeast.open_table(old).delete("id < 100")
    run("copy", old, new)
    assert_frame_equal(pl.scan_delta(str(new)).collect().sort("id"), rows[100:])
    tables = [qbeast.open_table(path) for path in (old, new)]
    kept = [(t.indexed_columns, t.sample_by, t.importance, t.properties) for t in tables]
    assert kept[0] == kept[1]
    assert DeltaTable(new).metadata().partition_columns == ["half"]
    assert "already" in run_error("copy", old, new, code=5)


def test_copy_takes_some_rows_and_columns(sales: Path, tmp_path: Path) -> None:
    run("copy", sales, tmp_path / "some", "--where", "id < 50", "--select", "id,brand", "--version", "0")
    copied = pl.scan_delta(str(tmp_path / "some")).collect().sort("id")
    assert_frame_equal(copied, ROWS.head(50).select("id", "brand"))
    assert qbeast.open_table(tmp_path / "some").indexed_columns == ("id",)
    run("copy", sales, tmp_path / "dry", "--dry-run")
    assert not (tmp_path / "dry").exists()


def test_constraints_are_added_listed_and_dropped(mine: Path) -> None:
    assert run("constraints", mine).stdout == "no constraints\n"
    shown = run("constraints", mine, "--add", "positive=price >= 0", "--add", "known=id IS NOT NULL").stdout
    assert shown == "version 3:\nknown: id IS NOT NULL\npositive: price >= 0\n"
    stored = DeltaTable(mine).metadata().configuration
    assert stored["delta.constraints.positive"] == "price >= 0"
    assert stored["delta.constraints.known"] == "id IS NOT NULL"
    assert "Nothing was changed" in run_error("constraints", mine, "--add", "low=price < 50", code=3)
    assert run_json("constraints", mine, "--drop", "known")["constraints"] == {"positive": "price >= 0"}
