"""On an object store that loses replies, refuses or hangs, an operation has happened or not, and says which."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import get_args

import pytest

import qbeast
from tests.helpers.flaky_s3 import PATIENCE, Fault, FlakyS3
from tests.helpers.operations import (
    OPERATIONS,
    Content,
    Options,
    check_sound,
    content,
    contents_between,
    version_of,
)
from tests.helpers.tables import small_files

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")]

FAULTS = get_args(Fault)
COMMITS = "_delta_log/0"
LONG = range(1000)
NUMBERS = count()


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyS3]:
    running = FlakyS3()
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


class Trial:
    """One operation on copies of one table."""

    def __init__(self, name: str, tables: Path, server: FlakyS3) -> None:
        self.server = server
        self.change = OPERATIONS[name].change
        self.first = tables / OPERATIONS[name].begin.__name__
        if not self.first.exists():
            OPERATIONS[name].begin(self.first)
        uri = self.copy()
        server.fail(None)
        self.run(uri, server.options)
        self.writes = server.writes
        self.after = content(uri, server.options)
        local = tables / f"done-{next(NUMBERS)}"
        shutil.copytree(self.first, local)
        self.run(str(local), {})
        self.earlier = [content(str(self.first), {}), *contents_between(local, version_of(self.first))]

    def copy(self) -> str:
        return self.server.upload(self.first, f"t{next(NUMBERS)}")

    def run(self, uri: str, options: Options) -> None:
        with small_files(file_rows=20):
            self.change(uri, options)

    def fail(self, fault: Fault, at: range, *, path: str = "") -> bool:
        """Fail, see that what was said is true, and do it again if it did not happen; return whether it had."""
        uri, error = self.copy(), None
        self.server.fail(fault, at, path=path)
        try:
            self.run(uri, self.server.hasty if fault == "slow" else self.server.options)
        except qbeast.QbeastError as raised:
            error = raised
        self.server.fail(None)
        if fault == "slow" and error is not None:
            time.sleep(3 * PATIENCE)  # what nobody waited for may land yet
        actual = content(uri, self.server.options)
        self.judge(error, actual)
        if actual != self.after:
            self.run(uri, self.server.options)
            assert content(uri, self.server.options) == self.after
        assert self.after is not None
        check_sound(uri, self.server.options, self.after)
        return actual == self.after

    def judge(self, error: qbeast.QbeastError | None, found: Content | None) -> None:
        if error is None:
            assert found == self.after
        elif isinstance(error, qbeast.CommitUnknownError):
            assert found in [*self.earlier, self.after]
        else:
            assert found in self.earlier


@pytest.mark.parametrize("name", ["append", "delete", "convert"])
def test_failing_commit_is_found_or_reported_unknown(name: str, tables: Path, server: FlakyS3) -> None:
    trial = Trial(name, tables, server)
    assert trial.fail("lost", range(1), path=COMMITS)
    assert not trial.fail("503", LONG, path=COMMITS)
    assert trial.fail("lost", LONG, path=COMMITS)


TRIALS = 3
"""Of an operation in one sweep: to try all takes hours, so each sweep draws others."""


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_with_write_fault_is_whole_or_absent(
    name: str, tables: Path, server: FlakyS3, sweep_seed: int
) -> None:
    trial = Trial(name, tables, server)
    assert trial.writes > 0
    every = [
        (fault, number, end)
        for number in range(trial.writes)
        for fault, end in (*((fault, number + 1) for fault in FAULTS), ("503", 1000), ("lost", 1000))
    ]
    for fault, number, end in Random(f"{sweep_seed} {name}").sample(every, min(TRIALS, len(every))):  # noqa: S311
        happened = trial.fail(fault, range(number, end))
        assert happened or fault == "slow" or end == 1000, (fault, number)  # the others are tried again
