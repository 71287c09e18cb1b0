"""Operations mind no engine: rows come one by one, from the last file to the first, and are placed twice elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.pool import Pool
from pathlib import Path
from shutil import copytree
from typing import TypeAlias

import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast_core.table.dml.change import ChangeOptions, run_change
from qbeast_core.table.dml.delete import Delete
from qbeast_core.table.dml.merge.clauses import Clauses
from qbeast_core.table.dml.merge.merge import Merge
from qbeast_core.table.dml.merge.source import FrameMergeSource
from qbeast_core.table.dml.update import Update
from qbeast_core.table.engine.tasks.passes import PlaceTask
from qbeast_core.table.engine.tasks.placed_files import PlacedFile
from qbeast_core.table.maintenance.convert import convert
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.optimize import OptimizeOptions, optimize
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.options import WriteOptions
from tests.helpers.invariants import check_invariants
from tests.helpers.scattering import PartsEngine, scatter, write_parts
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"row": range(240), "a": np.random.default_rng(4).random(240), "b": [None, 1, 2, 3] * 60})
Place: TypeAlias = Callable[[PlaceTask, Sequence[pl.DataFrame]], Sequence[PlacedFile]]
ODD = PartsEngine(flush_rows=7, part_rows=1)


@pytest.fixture
def written_twice_elsewhere(two: Pool) -> Place:
    """Place all rows in another process, twice; the first answers are lost, their files are orphans."""

    def place(task: PlaceTask, parts: Sequence[pl.DataFrame]) -> Sequence[PlacedFile]:
        two.apply(write_parts, (task, parts))
        return two.apply(write_parts, (task, parts))

    return place


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of four appends, row by row, which is slow: tests change copies of it."""
    path = tmp_path_factory.mktemp("odd") / "t"
    for number in range(4):
        rows = ROWS[number * 60 : number * 60 + 60]
        scatter(
            path,
            list(rows.iter_slices(1)),
            flush_rows=7,
            columns=["a:linear", "b:linear"],
            mode="append",
            cube_size=10,
            column_stats={"a_min": 0, "a_max": 1, "b_min": 0, "b_max": 9},
        )
    assert_same_rows(qbeast.read_table(path), ROWS)
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return copytree(written, tmp_path / "t")


def read(path: Path) -> Reader:
    return Reader(load_snapshot(path))


def check(path: Path, wanted: pl.DataFrame) -> None:
    assert_same_rows(qbeast.read_table(path), wanted)
    check_invariants(path)
    assert qbeast.open_table(path).check().ok


def test_single_rows_are_written_and_optimized(path: Path) -> None:
    sample = qbeast.read_table(path, sample=0.3)
    result, _ = optimize(read(path), OptimizeOptions(full=True), engine=ODD)
    assert (result.committed, result.rows) == (True, 240)
    check(path, ROWS)
    assert_same_rows(qbeast.read_table(path, sample=0.3), sample)


@pytest.mark.parametrize("odd", [True, False])
def test_single_rows_are_changed(path: Path, written_twice_elsewhere: Place, *, odd: bool) -> None:
    engine = ODD if odd else PartsEngine(part_rows=50, place=written_twice_elsewhere)
    done, _ = run_change(read(path), Delete("a < 0.3"), ChangeOptions(), engine=engine)
    kept = ROWS.filter(pl.col("a") >= 0.3)
    assert done.rows_deleted == 240 - kept.height
    check(path, kept)
    update = Update(pl.col("b") == 2, {"a": "a / 2", "b": pl.lit(7)})
    run_change(read(path), update, ChangeOptions(), engine=engine)
    two = pl.col("b") == 2
    updated = kept.with_columns(
        a=pl.when(two).then(pl.col("a") / 2).otherwise("a"), b=pl.when(two).then(7).otherwise("b")
    )
    check(path, updated)
    rows = pl.DataFrame({"row": [*range(100, 140), 999]}).with_columns(
        a=pl.col("row") / 1000, b=pl.lit(5, dtype=pl.Int64)
    )
    merge = Merge(FrameMergeSource(rows), Clauses(on="row", matched_if="b = 7"))
    done, _ = run_change(read(path), merge, ChangeOptions(), engine=engine)
    old = updated.filter(pl.col("b") == 7, pl.col("row").is_in(rows["row"].implode()))
    assert (done.rows_updated, done.rows_inserted) == (
        old.height,
        41 - kept["row"].is_in(rows["row"].implode()).sum(),
    )
    changed = rows.filter(~pl.col("row").is_in(updated.join(old, on="row", how="anti")["row"].implode()))
    check(path, pl.concat([updated.join(changed, on="row", how="anti"), changed]))


def test_reader_reports_condition_errors(path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="nothing was changed"):
        run_change(
            read(path),
            Delete("CAST(CAST(row AS STRING) || 'x' AS INT) = 1"),
            ChangeOptions(),
            engine=ODD,
        )
    check(path, ROWS)


def test_engine_inspects_parquet_files(tmp_path: Path) -> None:
    for number in range(3):
        ROWS[number * 80 : number * 80 + 80].write_parquet(tmp_path / f"{number}.parquet")
    done = convert(str(tmp_path), WriteOptions(columns=["row", "a"]), engine=ODD)
    assert (done.files, done.rows, done.created_log) == (3, 240, True)
    assert_same_rows(qbeast.read_table(tmp_path), ROWS)


def test_engine_places_an_overwrite_twice(path: Path, written_twice_elsewhere: Place) -> None:
    parts = list(ROWS.reverse().iter_slices(100))
    result = scatter(path, parts, place=written_twice_elsewhere, columns=["b", "row"], mode="overwrite")
    assert (result.rows, result.committed) == (240, True)
    check(path, ROWS)
