"""A replacement that also changes rows keeps the invariants of the blocks it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.log.intent import WriteIntent
from qbeast_core.table.engine.tasks.added_rows import FrameRows
from qbeast_core.table.engine.tasks.row_change import RowImages, UniformChange
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.publish import publish_replaced
from qbeast_core.table.rewrite.replace import Placement, Replaced, Replacement, replace_rows
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True, eq=False)
class Changed(UniformChange):
    """A change by a function."""

    function: Callable[[pl.DataFrame], pl.DataFrame]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self.function(rows)

    def images(self, rows: pl.DataFrame) -> RowImages:
        raise NotImplementedError


def replaced_in(
    reader: Reader, replacement: Replacement, placement: Placement = "fresh", operation: str = "DELETE"
) -> Replaced:
    """Replace rows, and commit that."""
    replaced = replace_rows(reader, replacement, placement)
    publish_replaced(reader, replaced, WriteIntent(mode="append", operation=operation), data_change=True)
    return replaced


def keeping(share: float, seed: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Delete all but a share of the rows, drawn by their numbers; nothing depends on which file they are in."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        numbers = np.random.default_rng(seed).random(1000)
        return rows.filter(pl.Series(numbers[rows[ROW].to_numpy()] < share, dtype=pl.Boolean))

    return change


def check_change(case: Case, share: float, of_files: float, seed: int) -> None:
    change = keeping(share, seed)
    with folder() as path, small_files():
        write(path, case)
        for turn in range(2):
            reader = Reader(load_snapshot(path))
            drawn = np.random.default_rng(seed + turn).random(len(reader.paths)) < of_files
            before = qbeast.open_table(path).scan().collect()
            replaced_in(reader, Replacement(files=np.flatnonzero(drawn), change=Changed(change)))
            now = qbeast.open_table(path).scan().collect()
            gone = before.join(now, on=ROW, how="anti")
            assert change(gone).is_empty()
            assert_same_rows(pl.concat([gone, now]), before)
            if of_files == 1.0:
                assert_same_rows(now, change(before))
            check_invariants(path)


@pytest.mark.timeout(3000)
@examples(2, sweep=100, parent=RELAXED)
@given(
    case=cases().map(with_key_in_rows) | cases(),
    share=st.sampled_from([0.0, 0.1, 0.7, 1.0]) | st.floats(0.0, 1.0),
    of_files=st.sampled_from([0.2, 0.5, 1.0]) | st.floats(0.05, 1.0),
    seed=st.integers(0, 9999),
)
def test_deleted_rows_leave_the_rest_in_order(case: Case, share: float, of_files: float, seed: int) -> None:
    check_change(case, share, of_files, seed)


def test_changed_rows_move_and_new_rows_join(tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pl.DataFrame({ROW: range(300)}).with_columns(a=pl.col(ROW) * 7919 % 307)
    with small_files():
        qbeast.write_table(rows, path, columns=[f"{ROW}:linear", "a:linear"], cube_size=20)
        reader = Reader(load_snapshot(path))
        some = np.array([0, 2, 3])
        changed = pl.when(pl.col("a") < 100).then(pl.col("a") * 90).otherwise("a")
        job = Replacement(
            files=some,
            change=Changed(lambda rows: rows.with_columns(a=changed)),
            added=FrameRows(pl.DataFrame({"a": [5, 999_999], ROW: [300, 301]})),
        )
        replaced = replaced_in(reader, job, operation="MERGE")
    assert replaced.is_new  # values beyond the space that they were indexed in
    moved = pl.concat(
        [pl.read_parquet(path / reader.paths[number]) for number in np.flatnonzero(replaced.gone)]
    )
    left = rows.join(moved, on=ROW, how="anti")
    expected = [left, moved.select(ROW, a=changed), pl.DataFrame({ROW: [300, 301], "a": [5, 999_999]})]
    table = qbeast.open_table(path)
    assert_same_rows(table.scan().collect(), pl.concat(expected))
    assert table.history(1)["operation"][0] == "MERGE"
    check_invariants(path)


def test_rows_can_be_added_without_removes(tmp_path: Path) -> None:
    rows = pl.DataFrame({ROW: range(100)})
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW], cube_size=20)
    reader = Reader(load_snapshot(tmp_path / "t"))
    replaced_in(reader, Replacement(added=FrameRows(rows.select(pl.col(ROW) % 50))))
    assert qbeast.read_table(tmp_path / "t").height == 200
    check_invariants(tmp_path / "t")
