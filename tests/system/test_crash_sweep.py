"""Killed at any step of any operation, a table reads as before or as after, and whoever comes next goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import qbeast
from tests.helpers.killing import killed_before
from tests.helpers.operations import OPERATIONS, Content, check_sound, content
from tests.helpers.tables import small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def beginning(name: str, tables: Path) -> Path:
    """Return the table an operation begins with, made once."""
    begin = OPERATIONS[name].begin
    path = tables / begin.__name__
    if not path.exists():
        begin(path)
    return path


def run(name: str, table: Path, step: int | None) -> int:
    """Return the steps done before the process died."""
    with killed_before(step, table) as killer, small_files(file_rows=20):
        OPERATIONS[name].change(str(table), {})
    return killer.steps


def sweep(name: str, tables: Path, tmp_path: Path, choose: slice) -> None:
    first, whole = beginning(name, tables), tmp_path / "whole"
    shutil.copytree(first, whole)
    steps = run(name, whole, None)
    before, after = content(str(first), {}), content(str(whole), {})
    assert steps > 0
    seen = []
    for step in range(steps)[choose]:
        table = tmp_path / f"killed-{step}"
        shutil.copytree(first, table)
        assert run(name, table, step) == step
        actual = content(str(table), {})
        assert actual in (before, after)
        seen.append(actual == after != before)
        go_on(name, table, actual, before, after)
        shutil.rmtree(table)
    assert seen == sorted(seen)  # first the old state, then the new one


def go_on(
    name: str, table: Path, found: Content | None, before: Content | None, after: Content | None
) -> None:
    """Do it again if it did not happen; then use the table."""
    if found == before:
        if name == "create" and any(table.glob("*.parquet")):
            with pytest.raises(qbeast.TableExistsError, match="an interrupted write left them"):
                run(name, table, None)
            shutil.rmtree(table)
        run(name, table, None)
    assert content(str(table), {}) == after
    assert after is not None
    check_sound(str(table), {}, after)


@pytest.mark.parametrize(
    "name",
    [
        "append",
        "overwrite",
        "optimize",
        "delete",
        "merge",
        "merge with a feed",
        "merge into partitions",
        "convert",
    ],
)
def test_operation_killed_at_commit_is_whole_or_absent(name: str, tables: Path, tmp_path: Path) -> None:
    sweep(name, tables, tmp_path, slice(-4, -3))


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_killed_anywhere_is_whole_or_absent(name: str, tables: Path, tmp_path: Path) -> None:
    sweep(name, tables, tmp_path, slice(None))
