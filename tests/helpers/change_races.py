"""A table of several appends, and changes of its rows that race with other writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import qbeast
from tests.helpers.invariants import check_invariants
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows

BOUNDS = {"a_min": 0.0, "a_max": 1.0}


def rows(start: int, count: int = 200) -> pl.DataFrame:
    rng = np.random.default_rng(start)
    return pl.DataFrame({"row": range(start, start + count), "a": rng.random(count)})


def grown(path: Path, *, appends: int = 5) -> pl.DataFrame:
    frames = [rows(number * 200) for number in range(appends + 1)]
    for frame in frames:
        qbeast.write_table(
            frame, path, columns=["row:hash", "a:linear"], mode="append", cube_size=20, column_stats=BOUNDS
        )
    return pl.concat(frames)


def check_no_orphans(path: Path) -> None:
    """Assert that every data file is in a version."""
    log = [line for file in (path / "_delta_log").glob("*.json") for line in file.read_text().splitlines()]
    lines = map(json.loads, log)
    paths = {line["add"]["path"] for line in lines if "add" in line}
    assert {file.name for file in path.glob("*.parquet")} == paths


CONDITION = pl.col("a") < 0.4


def delete(opened: qbeast.Table) -> qbeast.ChangeResult:
    return opened.delete(CONDITION)


def beside(
    path: Path,
    other: Callable[[], Any],
    change: Callable[[qbeast.Table], qbeast.ChangeResult] = delete,
    *,
    times: int = 1,
) -> qbeast.ChangeResult:
    """Change a table; another writer commits after our data files, and before our commit."""
    with landing_first(other, times=times):
        return change(qbeast.open_table(path))


def check(path: Path, expected: pl.DataFrame, *, may_stage: bool = False) -> None:
    assert_same_rows(qbeast.read_table(path), expected)
    check_invariants(path, may_stage=may_stage)
    check_no_orphans(path)
