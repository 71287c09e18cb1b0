"""Killed at any step, an optimize has happened whole or not at all, and the next one succeeds."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from tests.helpers.invariants import check_invariants
from tests.helpers.killed_writer import rows
from tests.helpers.tables import assert_same_rows

ROOT = Path(__file__).parents[2]
STEPS = 9
"""Three data files are opened and renamed; the commit is opened, linked, and its first name removed."""


def run_killed(table: Path, step: int) -> int:
    program = [sys.executable, "-m", "tests.helpers.killed_optimize", str(table), str(step)]
    return subprocess.run(program, cwd=ROOT, check=False, timeout=120, capture_output=True).returncode


@pytest.mark.parametrize(
    "steps", [(1, 6, 8), pytest.param(tuple(range(STEPS + 1)), marks=pytest.mark.sweep)], ids=["some", "all"]
)
def test_killed_optimize_is_whole_or_absent(tmp_path: Path, steps: tuple[int, ...]) -> None:
    first = tmp_path / "t"
    for start in (0, 100):
        qbeast.write_table(rows(start), first, columns=["row", "a"], mode="append", cube_size=10)
    write_deltalake(first, rows(200), mode="append")
    everything = pl.concat([rows(0), rows(100), rows(200)])
    tables = [tmp_path / f"killed{step}" for step in steps]
    for table in tables:
        shutil.copytree(first, table)
    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(run_killed, tables, steps))
    assert codes == [0 if step == STEPS else -signal.SIGKILL for step in steps]
    seen = [survives(table, everything) for table in tables]
    assert seen == sorted(seen)  # first the old state, then the new one
    assert set(seen) == {False, True}


def survives(table: Path, everything: pl.DataFrame) -> bool:
    """Say whether the optimize is visible; the rows are there in any case, and the next one goes on."""
    opened = qbeast.open_table(table)
    assert_same_rows(opened.scan().collect(), everything)
    visible = opened.version == 3
    opened.optimize()
    assert_same_rows(opened.scan().collect(), everything)
    assert_same_rows(pl.scan_delta(table).collect(), everything)
    check_invariants(table)
    return visible
