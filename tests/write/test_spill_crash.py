"""Killed while rows lie in temporary files: the table is unharmed, and the next call takes away what was left."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.invariants import check_invariants
from tests.helpers.killed_spill import COLUMNS, OPERATIONS, more, rows, run
from tests.helpers.tables import small_files

ROOT = Path(__file__).parents[2]
MERGED = pl.concat([rows().head(100), more()])
AFTER = {"write": rows(), "append": pl.concat([rows(), more()]), "optimize": rows(), "merge": MERGED}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    with small_files(file_rows=20):
        qbeast.write_table(rows(), tmp_path / "first", columns=COLUMNS, cube_size=10)
    return tmp_path / "first"


def kill(first: Path, case: tuple[str, int]) -> int:
    """Kill an operation before a step; return how it ended: 0, or minus the signal."""
    operation, step = case
    table, spill = places(first, case)
    shutil.copytree(first, table)
    spill.mkdir()
    program = [sys.executable, "-m", "tests.helpers.killed_spill", *map(str, (table, spill, operation, step))]
    return subprocess.run(program, cwd=ROOT, check=False, timeout=240, capture_output=True).returncode


def places(first: Path, case: tuple[str, int]) -> tuple[Path, Path]:
    place = first.parent / f"{case[0]}-{case[1]}"
    return place / "table", place / "spilling"


def survives(first: Path, case: tuple[str, int]) -> None:
    """Look at what was left; the operation, or another one if it was done, takes away what lies about."""
    table, spill = places(first, case)
    assert len(list(spill.iterdir())) == 1  # nobody was there to remove it
    before = qbeast.open_table(table).version == 0
    same(table, rows() if before else AFTER[case[0]])
    run(case[0] if before else "optimize", table, spill)
    assert not list(spill.iterdir())
    same(table, AFTER[case[0]])
    check_invariants(table)


def same(table: Path, wanted: pl.DataFrame) -> None:
    assert_frame_equal(qbeast.read_table(table).sort(COLUMNS), wanted.sort(COLUMNS))


@pytest.mark.sweep
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_killed_operation_leaves_the_table_whole(first: Path, operation: str, sweep_seed: int) -> None:
    for step in range(1 + sweep_seed % 7, 1000, 7):
        code = kill(first, (operation, step))
        if code == 0:
            assert step > 7
            assert not list(places(first, (operation, step))[1].iterdir())
            return
        assert code == -signal.SIGKILL
        survives(first, (operation, step))
