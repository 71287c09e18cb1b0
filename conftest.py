"""What tests and doctests run under: `--slow`, `--connect`, Hypothesis profiles, no fork, no disk to wait for."""

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

# No deadline: the first call of a lazily loaded engine is slow, and machines are shared. Half of Hypothesis' own number
# of examples with every change, four times as many with --slow.
settings.register_profile(
    "default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# CI repeats itself: a new counterexample is found by whoever runs the tests next, not by chance in a landing.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
# --slow: many more examples; how many where it matters, a test says itself (tests/helpers/examples.py).
settings.register_profile(
    "slow", settings.get_profile("ci" if os.environ.get("CI") else "default"), max_examples=200
)


def _no_fork() -> NoReturn:
    message = "os.fork() in a test: Polars and obstore hold threads and deadlock after a fork; use spawn"
    raise AssertionError(message)


def _no_fsync(file: int) -> None:
    """Wait for no disk: tests end processes, but no machines. That a store waits, tests/io/test_local_store.py asks."""
    os.fstat(file)  # no file is an error still


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--connect", action="store_true", help="run the tests of Spark through Spark Connect")
    said = "share a JVM: the classic session leaves its server's port in this file, and --connect takes it from there"
    parser.addoption("--server", type=Path, help=said)


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
    """Spare the garbage collector what is loaded to find the tests, now and whenever it runs later: all of it stays.

    It runs seldom, too: what tests leave in circles is little, and to look for it is a twentieth of their time.
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
    if slow:  # not skipped one by one: there are a thousand
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let docstrings write tables with plain names ("sales") and leave nothing behind."""
    if not isinstance(item, pytest.DoctestItem):
        return (yield)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        return (yield)
