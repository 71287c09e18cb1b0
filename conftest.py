"""Settings of tests and doctests: `--slow`, `--connect`, Hypothesis profiles, no fork, no fsync."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the first call of a lazily loaded engine is slow, and machines are shared. A quarter of Hypothesis' own
# number of examples with every change, eight times as many with --slow.
settings.register_profile(
    "default", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# CI draws the same examples each time, so that it does not fail by chance.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
# --slow: many more examples. Some tests set their number themselves (tests/helpers/examples.py).
settings.register_profile(
    "slow", settings.get_profile("ci" if os.environ.get("CI") else "default"), max_examples=200
)


def _no_fork() -> NoReturn:
    message = "os.fork() in a test: Polars and obstore hold threads and deadlock after a fork; use spawn"
    raise AssertionError(message)


def _no_fsync(file: int) -> None:
    """Do not wait for the disk, as tests kill processes, not machines. tests/io/test_local_store.py tests fsync."""
    os.fstat(file)  # still raises if there is no file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--connect", action="store_true", help="run the tests of Spark through Spark Connect")
    share = (
        "share a JVM: the classic session writes the port of its server to this file, and --connect reads it"
    )
    parser.addoption("--server", type=Path, help=share)


def pytest_configure(config: pytest.Config) -> None:
    usual = "ci" if os.environ.get("CI") else "default"
    settings.load_profile("slow" if config.getoption("--slow") else usual)
    multiprocessing.set_start_method("spawn", force=True)
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fork", _no_fork)
    patch.setattr(os, "fsync", _no_fsync)
    config.add_cleanup(patch.undo)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude modules from garbage collection, because they are never freed.

    Collect less often: tests leave few cycles, and looking for them takes a twentieth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:  # not skipped one by one, because there are a thousand
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let docstrings write tables with plain names ("sales") and leave nothing behind."""
    if not isinstance(item, pytest.DoctestItem):
        return (yield)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        return (yield)
