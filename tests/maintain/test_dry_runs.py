"""A dry run says what the real one does afterwards, and leaves every file as it was."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.format.appends import copy_of
from tests.format.collection import find

ROWS = pl.DataFrame({"id": range(900), "x": [i / 7 for i in range(900)]})
SAID_OTHERWISE = {"version", "dry_run", "committed"}


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(item.relative_to(path)): item.read_bytes() for item in sorted(path.rglob("*")) if item.is_file()
    }


def facts(result: Any) -> dict[str, Any]:
    return {key: value for key, value in asdict(result).items() if key not in SAID_OTHERWISE}


def delta(path: Path) -> None:
    ROWS.write_delta(path)


def parquet(path: Path) -> None:
    path.mkdir()
    for number, part in enumerate(ROWS.iter_slices(500)):
        part.write_parquet(path / f"{number}.parquet")


@pytest.mark.parametrize(("make", "version"), [(delta, 0), (parquet, -1)], ids=["delta", "parquet"])
def test_dry_run_predicts_a_conversion(tmp_path: Path, make: Any, version: int) -> None:
    path = tmp_path / "t"
    make(path)
    before = contents(path)
    planned = qbeast.convert_table(path, ["id", "x"], dry_run=True)
    assert contents(path) == before
    assert (planned.version, planned.committed, planned.dry_run) == (version, False, True)
    done = qbeast.convert_table(path, ["id", "x"])
    assert facts(planned) == facts(done)
    assert (done.committed, done.dry_run) == (True, False)
    again = qbeast.convert_table(path, ["id", "x"], dry_run=True)
    assert (again.version, again.committed, again.dry_run) == (done.version, False, True)


@pytest.mark.parametrize("replicated", ["keep", "drop"])
def test_dry_run_predicts_an_upgrade(tmp_path: Path, replicated: Any) -> None:
    path = copy_of(find("legacy/v050_mixed_states"), tmp_path)
    before = contents(path)
    planned = qbeast.open_table(path).upgrade(replicated=replicated, dry_run=True)
    assert contents(path) == before
    assert (planned.committed, planned.dry_run) == (False, True)
    assert planned.version == qbeast.open_table(path).version
    assert facts(planned) == facts(qbeast.open_table(path).upgrade(replicated=replicated))


def test_dry_run_predicts_a_restore(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for part in ROWS.iter_slices(300):
        qbeast.write_table(part, path, columns=["id"], mode="append")
    table, before = qbeast.open_table(path), contents(path)
    planned = table.restore(0, dry_run=True)
    assert contents(path) == before
    assert (planned.version, planned.dry_run, table.version) == (2, True, 2)
    done = table.restore(0)
    assert facts(planned) == facts(done)
    assert (done.version, done.files_removed) == (3, 2)
