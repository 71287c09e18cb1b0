"""Files that a delete drops, rewrites and keeps, on tables of any age; `test_changes` covers its rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from tests.helpers.changes import spread
from tests.helpers.invariants import check_invariants
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def test_null_condition_deletes_nothing(table: qbeast.Table, rows: pl.DataFrame) -> None:
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
    assert_same_rows(table.refresh().read(), rows)


def test_true_deletes_everything_without_reading(path: Path, table: qbeast.Table, rows: pl.DataFrame) -> None:
    for file in path.glob("*.parquet"):
        file.unlink()
    result = table.delete(where=True)
    assert (result.rows_deleted, result.files, result.new_revision) == (rows.height, 0, False)
    assert table.read().schema == rows.schema
    assert table.rows().files().is_empty()
    assert not table.delete(where=True).committed
    qbeast.write_table(rows.head(10), path, mode="append")
    check_invariants(path)


def test_delete_drops_whole_files_and_keeps_others(tmp_path: Path) -> None:
    rows = spread(200)
    with small_files(file_rows=20, page_rows=20):
        qbeast.write_table(rows, tmp_path / "t", columns=[f"{ROW}:linear"], cube_size=200)
    table = qbeast.open_table(tmp_path / "t")
    weights = table.rows().files()["path"].to_list()
    whole = pl.read_parquet(weights[0])[ROW]
    before = set(weights)
    part = pl.read_parquet(weights[1])[ROW].head(3)
    condition = pl.col(ROW).is_in([*whole, *part])
    request = table.delete(condition, dry_run=True)
    assert (request.committed, request.version, request.rows_deleted) == (False, 0, len(whole) + 3)
    assert dict(request.plan.select("action", "matched").iter_rows()) == {"drop": len(whole), "rewrite": 3}
    with small_files(file_rows=20, page_rows=20):
        result = table.delete(condition)
    assert result.plan.filter(pl.col("action") != "order of weights").equals(request.plan)
    assert (result.rows_deleted, result.version) == (len(whole) + 3, 1)
    assert len(before - set(table.rows().files()["path"])) == result.files_removed < len(before) / 2
    assert_same_rows(table.read(), rows.filter(~condition))
    check_invariants(tmp_path / "t")


def test_delete_includes_and_indexes_staged_rows(path: Path, rows: pl.DataFrame) -> None:
    more = spread(100, 5000)
    write_deltalake(path, more, mode="append")
    with small_files():
        qbeast.open_table(path).delete(pl.col(ROW) > 5050)
    expected = pl.concat([rows, more]).filter(pl.col(ROW) <= 5050)
    assert_same_rows(qbeast.read_table(path), expected)
    check_invariants(path)


def test_converted_table_can_lose_rows(tmp_path: Path) -> None:
    rows = spread(300)
    write_deltalake(tmp_path / "t", rows.head(200))
    write_deltalake(tmp_path / "t", rows.tail(100), mode="append")
    qbeast.convert_table(tmp_path / "t", columns=[ROW, "a"])
    table = qbeast.open_table(tmp_path / "t")
    assert table.delete(pl.col(ROW) >= 200).plan["action"].to_list() == ["drop"]
    assert [revision.revision_id for revision in table.revisions] == [0]
    assert table.delete(pl.col(ROW) < 20).new_revision
    assert_same_rows(table.read(), rows.filter(pl.col(ROW).is_between(20, 199)))
    check_invariants(tmp_path / "t")


def test_rows_of_older_revisions_move_to_newest(tmp_path: Path) -> None:
    first, second = spread(40), spread(40, 1000).with_columns(pl.col("a") * 1000)
    with small_files():
        for frame in (first, second):
            qbeast.write_table(frame, tmp_path / "t", columns=["a:linear", ROW], mode="append", cube_size=20)
        table = qbeast.open_table(tmp_path / "t")
        assert table.rows().files()["revision_id"].unique().sort().to_list() == [1, 2]
        result = table.delete(pl.col(ROW) % 3 == 0)
    assert (result.revision_id, result.new_revision) == (2, False)
    assert_same_rows(table.read(), pl.concat([first, second]).filter(pl.col(ROW) % 3 != 0))
    check_invariants(tmp_path / "t")
