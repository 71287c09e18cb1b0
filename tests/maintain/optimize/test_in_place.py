"""Files whose rows keep their places are written again with the blocks they had; others go the long way."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import polars as pl
import pytest

import qbeast
from qbeast_core.table.engine import row_change
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, small_files

ROWS = pl.DataFrame({"row": range(300)}).with_columns(
    key=pl.col("row") * 7919 % 300, price=(pl.col("row") % 97).cast(pl.Float64), note=pl.lit("as it was")
)
BLOCKS = ["cube", "min_weight", "max_weight", "element_count"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in place")
    with small_files():
        qbeast.write_table(ROWS, path, columns=["key", "price"], cube_size=30)
    return path


@pytest.fixture
def table(written: Path, tmp_path: Path) -> qbeast.Table:
    return qbeast.open_table(shutil.copytree(written, tmp_path / "t"))


def blocks(table: qbeast.Table) -> list[tuple[object, ...]]:
    return sorted(table.blocks().select(BLOCKS).rows())


def names(table: qbeast.Table) -> set[str]:
    return {file.name for file in Path(table.uri).glob("*.parquet")}


def test_update_of_other_columns_keeps_blocks(table: qbeast.Table) -> None:
    before, files = blocks(table), names(table)
    sample = table.scan(sample=0.3).collect()
    with small_files():
        result = table.update(pl.col("row") % 50 == 3, {"note": pl.lit("changed")})
    assert (result.rows_updated, result.rows_copied) == (6, sum(result.plan["rows"]) - 6)
    assert result.files == result.plan.height > 1
    assert len(names(table) - files) == result.files
    assert blocks(table) == before
    note = pl.when(pl.col("row") % 50 == 3).then(pl.lit("changed")).otherwise(pl.col("note"))
    assert_same_rows(table.scan().collect(), ROWS.with_columns(note.alias("note")), "row")
    assert_same_rows(table.scan(sample=0.3).collect(), sample.with_columns(note.alias("note")), "row")
    check_invariants(Path(table.uri))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in (1, 2, 3))])
def test_deletes_keep_the_other_rows_in_their_cubes(table: qbeast.Table, seed: int) -> None:
    before = {cube: top for cube, _, top, _ in blocks(table)}
    sample = table.scan(sample=0.3).collect()
    gone = pl.col("row").hash(seed) % 5 == 0 if seed else pl.col("key") < 100  # everywhere, or whole cubes
    with (
        small_files(),
        mock.patch.object(
            row_change.ChangeFile, "__call__", autospec=True, side_effect=row_change.ChangeFile.__call__
        ) as tried,
    ):
        result = table.delete(gone)
    assert tried.call_count == result.plan.filter(action="rewrite").height > 1
    assert result.rows_deleted == ROWS.filter(gone).height
    after = blocks(table)
    assert {cube: top for cube, _, top, _ in after}.items() <= before.items()
    assert_same_rows(table.scan().collect(), ROWS.filter(~gone), "row")
    assert_same_rows(table.scan(sample=0.3).collect(), sample.filter(~gone), "row")
    assert (
        table.scan(sample=0.3).filter(pl.col("key") > 200).collect().height
        == sample.filter(~gone, pl.col("key") > 200).height
    )
    check_invariants(Path(table.uri))
    assert table.check().ok


@pytest.mark.parametrize("new", [0, 40])
def test_merge_moves_only_rows_with_changed_keys(table: qbeast.Table, new: int) -> None:
    source = ROWS.filter(pl.col("row") % 40 == 7).with_columns(note=pl.lit("merged"))
    moved = pl.col("row") == source["row"][0]
    source = source.with_columns(price=pl.when(moved).then(-1.0).otherwise(pl.col("price")))
    added = ROWS.head(new).with_columns(row=pl.col("row") + 10_000, note=pl.lit("new"))
    with (
        small_files(),
        mock.patch.object(
            row_change.ChangeFile, "__call__", autospec=True, side_effect=row_change.ChangeFile.__call__
        ) as tried,
    ):
        result = table.merge(pl.concat([source, added]), "row")
    assert tried.call_count == result.plan.filter(action="rewrite").height > 1
    assert (result.rows_updated, result.rows_inserted) == (source.height, new)
    rows = pl.concat([ROWS.join(source, on="row", how="anti"), source, added])
    assert_same_rows(table.scan().collect(), rows, "row")
    check_invariants(Path(table.uri))


def test_failed_changes_leave_no_file(table: qbeast.Table) -> None:
    before = names(table)
    seen: list[str] = []
    store = row_change.store_arranged

    def failing(*options: object, path: str, **others: object) -> object:
        seen.append(path)
        if len(seen) == 3:
            msg = "the disk is full"
            raise qbeast.StorageError(msg, path=path)
        return store(*options, path=path, **others)  # type: ignore[arg-type] # as they came

    with (
        small_files(),
        mock.patch.object(row_change, "store_arranged", failing),
        pytest.raises(qbeast.StorageError),
    ):
        table.update(pl.col("row") % 50 == 3, {"note": pl.lit("changed")})
    assert len(seen) >= 3
    assert names(table) == before


def test_change_joins_files_of_few_rows(table: qbeast.Table) -> None:
    result = table.update(pl.col("row") % 50 == 3, {"note": pl.lit("changed")})
    assert result.plan.height > result.files == 1
    note = pl.when(pl.col("row") % 50 == 3).then(pl.lit("changed")).otherwise(pl.col("note"))
    assert_same_rows(table.scan().collect(), ROWS.with_columns(note.alias("note")), "row")
    check_invariants(Path(table.uri))
