"""Killed at any step of any operation, a table reads as before or after a commit, and the next operation works."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import qbeast
from tests.helpers.examples import is_sweep
from tests.helpers.killing import killed_before
from tests.helpers.operations import (
    OPERATIONS,
    Content,
    check_sound,
    content,
    contents_between,
    version_of,
)
from tests.helpers.plan_files import planned
from tests.helpers.tables import small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")

PROBES = ("append", "delete", "hide by an update", "convert")
"""With each change; sweeps kill all operations at each of their steps."""


@pytest.fixture(
    autouse=True,
    params=[False, pytest.param(True, marks=pytest.mark.sweep)],
    ids=["by the log", "by plan files"],
)
def opened_by(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Open the tables, which have checkpoints, by their log or by plan files."""
    with planned(tmp_path / "temporary") if request.param else nullcontext():
        yield


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


@pytest.fixture(scope="module")
def whole(tables: Path) -> Callable[[str], Whole]:
    """Do an operation to its end, once."""

    @cache
    def done(name: str) -> Whole:
        first, last = beginning(name, tables), tables / f"done-{name}".replace(" ", "-")
        shutil.copytree(first, last)
        steps = run(name, last, None)
        assert steps > 0
        between = contents_between(last, version_of(first))
        return Whole(first, steps, [content(str(first), {}), *between, content(str(last), {})])

    for name in PROBES:
        done(name)
    return done


@dataclass(frozen=True)
class Whole:
    """Where an operation begins, its number of steps, and what the table holds before it and after each commit."""

    first: Path
    steps: int
    contents: list[Content | None]


def check_killed(name: str, whole: Whole, tmp_path: Path, chosen: slice) -> None:
    seen = []
    for step in range(whole.steps)[chosen]:
        table = tmp_path / f"killed-{step}"
        shutil.copytree(whole.first, table)
        assert run(name, table, step) == step
        actual = content(str(table), {})
        assert actual in whole.contents
        seen.append(whole.contents.index(actual))
        go_on(name, table, actual, whole.contents)
        shutil.rmtree(table)
    assert seen == sorted(seen)  # first the old state, then the new one


def go_on(name: str, table: Path, found: Content | None, contents: list[Content | None]) -> None:
    """Do it again if it did not happen to the end; then use the table."""
    after = contents[-1]
    if found in contents[:-1]:
        if name == "create" and any(table.glob("*.parquet")):
            with pytest.raises(qbeast.TableExistsError, match="an interrupted write left them"):
                run(name, table, None)
            shutil.rmtree(table)
        run(name, table, None)
    assert content(str(table), {}) == after
    assert after is not None
    if is_sweep():
        check_sound(str(table), {}, after)


@pytest.mark.parametrize("name", PROBES)
def test_operation_killed_at_commit_is_whole_or_absent(
    name: str, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    check_killed(name, whole(name), tmp_path, slice(-4, -3))


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_killed_anywhere_is_whole_or_absent(
    name: str, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    check_killed(name, whole(name), tmp_path, slice(None))
