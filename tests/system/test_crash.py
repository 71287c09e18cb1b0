"""Killed at any step, or run twice: a write happens once and whole, or not at all."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.killed_writer import rows
from tests.helpers.tables import assert_same_rows

ROOT = Path(__file__).parents[2]
STEPS = 9
"""Three data files are opened and renamed; the commit is opened, linked, and its first name removed."""


def run_killed(table: Path, mode: str, step: int) -> int:
    """Return how the writer ended: 0, or minus the signal."""
    program = [sys.executable, "-m", "tests.helpers.killed_writer", str(table), mode, str(step)]
    return subprocess.run(program, cwd=ROOT, check=False, timeout=120, capture_output=True).returncode


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["append", "error", "overwrite"])
def test_killed_write_is_whole_or_absent(tmp_path: Path, mode: str) -> None:
    """By the system; tests/system/test_crash_sweep.py does it in one process, to every operation."""
    before, steps = None if mode == "error" else rows(0), range(STEPS + 1)
    tables = [tmp_path / f"t{step}" for step in steps]
    for table in tables if before is not None else []:
        qbeast.write_table(before, table, columns=["row", "a"], cube_size=10)
    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(lambda table, step: run_killed(table, mode, step), tables, steps))
    assert codes == [0 if step == STEPS else -signal.SIGKILL for step in steps]
    after = rows(100) if before is None or mode == "overwrite" else pl.concat([before, rows(100)])
    seen = [check_survivor(table, before, after) for table in tables]
    assert seen == sorted(seen)  # first the old state, then the new one
    assert set(seen) == {False, True}


def check_survivor(table: Path, before: pl.DataFrame | None, after: pl.DataFrame) -> bool:
    """Say whether the write is visible; it is wholly or not at all, and the table can be written on."""
    try:
        actual = qbeast.read_table(table)
    except qbeast.TableNotFoundError:
        assert before is None
        actual = None
    visible = (
        actual is not None and actual.height == after.height and actual["row"].max() == after["row"].max()
    )
    expected = after if visible else before
    if actual is not None and expected is not None:
        assert_same_rows(actual, expected)
        assert_same_rows(pl.scan_delta(table).collect(), expected)
    more = rows(1000)
    if actual is None and any(table.glob("*.parquet")):
        with pytest.raises(qbeast.TableExistsError, match="an interrupted write left them"):
            qbeast.write_table(more, table, columns=["row"], mode="append")
        shutil.rmtree(table)
    qbeast.write_table(more, table, columns=["row", "a"], mode="append")
    written = [expected, more] if expected is not None else [more]
    assert_same_rows(qbeast.read_table(table), pl.concat(written))
    return visible


def test_write_with_transaction_happens_once(tmp_path: Path) -> None:
    def write(version: int, application: str = "app") -> Any:
        frame = pl.DataFrame({"row": [version]})
        txn = (application, version)
        return qbeast.write_table(frame, tmp_path / "t", columns=["row"], mode="append", txn=txn)

    results = [write(3), write(3), write(2), write(4), write(4), write(3, "other")]
    assert [result.committed for result in results] == [True, False, False, True, False, True]
    assert [result.version for result in results] == [0, 0, 0, 1, 1, 2]
    assert sorted(qbeast.read_table(tmp_path / "t")["row"]) == [3, 3, 4]
    assert results[1].rows == results[1].files == 0
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 3
