"""Files whose rows keep their places are written again with the blocks they had; others go the long way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.table.dml.change import Change, ChangeOptions, Delete, run_change
from qbeast_core.table.dml.merge import Merge
from qbeast_core.table.dml.merge_rules import Clauses
from qbeast_core.table.dml.merge_sources import FrameMergeSource
from qbeast_core.table.engine.local import MemoryEngine
from qbeast_core.table.engine.row_change import ChangeFile
from tests.helpers.invariants import check_invariants
from tests.helpers.stores import failing_puts, nth
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


class TryingEngine(MemoryEngine):
    """An engine that counts the files that it is to change in place."""

    tried = 0

    def map(self, call: Callable[[Any], Any], items: Sequence[Any], *, at_once: int) -> Sequence[Any]:
        self.tried += len(items) * isinstance(call, ChangeFile)
        return super().map(call, items, at_once=at_once)


def changed(table: qbeast.Table, change: Change) -> tuple[qbeast.ChangeResult, int]:
    """Change a table. Return the result, and how many files were tried to be changed in place."""
    engine = TryingEngine()
    result, _ = run_change(table.snapshot, change, ChangeOptions(), engine=engine)
    table.refresh()
    return result, engine.tried


def test_update_of_other_columns_keeps_blocks(table: qbeast.Table) -> None:
    before, files = blocks(table), names(table)
    sample = table.read(sample=0.3)
    with small_files():
        result = table.update(pl.col("row") % 50 == 3, {"note": pl.lit("changed")})
    assert (result.rows_updated, result.rows_copied) == (6, sum(result.plan["rows"]) - 6)
    assert result.files == result.plan.height > 1
    assert len(names(table) - files) == result.files
    assert blocks(table) == before
    note = pl.when(pl.col("row") % 50 == 3).then(pl.lit("changed")).otherwise(pl.col("note"))
    assert_same_rows(table.read(), ROWS.with_columns(note.alias("note")), "row")
    assert_same_rows(table.read(sample=0.3), sample.with_columns(note.alias("note")), "row")
    check_invariants(Path(table.uri))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in (1, 2, 3))])
def test_deletes_keep_the_other_rows_in_their_cubes(table: qbeast.Table, seed: int) -> None:
    before = {cube: top for cube, _, top, _ in blocks(table)}
    sample = table.read(sample=0.3)
    gone = pl.col("row").hash(seed) % 5 == 0 if seed else pl.col("key") < 100  # everywhere, or whole cubes
    with small_files():
        result, tried = changed(table, Delete(gone))
    assert tried == result.plan.filter(action="rewrite").height > 1
    assert result.rows_deleted == ROWS.filter(gone).height
    after = blocks(table)
    assert {cube: top for cube, _, top, _ in after}.items() <= before.items()
    assert_same_rows(table.read(), ROWS.filter(~gone), "row")
    assert_same_rows(table.read(sample=0.3), sample.filter(~gone), "row")
    assert (
        table.rows(sample=0.3).lazy().filter(pl.col("key") > 200).collect().height
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
    with small_files():
        result, tried = changed(table, Merge(FrameMergeSource(pl.concat([source, added])), Clauses(on="row")))
    assert tried == result.plan.filter(action="rewrite").height > 1
    assert (result.rows_updated, result.rows_inserted) == (source.height, new)
    rows = pl.concat([ROWS.join(source, on="row", how="anti"), source, added])
    assert_same_rows(table.read(), rows, "row")
    check_invariants(Path(table.uri))


def test_failed_changes_leave_no_file(table: qbeast.Table) -> None:
    before = names(table)
    with (
        small_files(),
        failing_puts(nth(3), qbeast.StorageError("the disk is full", path="")) as put,
        pytest.raises(qbeast.StorageError),
    ):
        table.update(pl.col("row") % 50 == 3, {"note": pl.lit("changed")})
    assert len(put) >= 3
    assert names(table) == before


def test_change_joins_files_of_few_rows(table: qbeast.Table) -> None:
    result = table.update(pl.col("row") % 50 == 3, {"note": pl.lit("changed")})
    assert result.plan.height > result.files == 1
    note = pl.when(pl.col("row") % 50 == 3).then(pl.lit("changed")).otherwise(pl.col("note"))
    assert_same_rows(table.read(), ROWS.with_columns(note.alias("note")), "row")
    check_invariants(Path(table.uri))
