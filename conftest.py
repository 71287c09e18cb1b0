"""Settings of tests and doctests: `--sweep`, `--connect`, Hypothesis profiles, no fork, no fsync."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Generator
from importlib.util import find_spec
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# No deadline: the first call of a lazily loaded engine is slow, and machines are shared. No database: a seed alone
# decides what is drawn.
_COMMON = settings(
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=25,
)
# A change is tested with the same examples each time, so that it does not fail by chance. Sweeps find new ones.
settings.register_profile("change", _COMMON, derandomize=True)
settings.register_profile("sweep", _COMMON, max_examples=200)

pytest_plugins = ["tests.helpers.budget"]

# What needs a package that only a sweep installs has no doctests elsewhere.
collect_ignore = [] if find_spec("torch") else ["qbeast_core/table/read/torch_dataset.py"]


def _no_fork() -> NoReturn:
    message = "os.fork() in a test: Polars and obstore hold threads and deadlock after a fork; use spawn"
    raise AssertionError(message)


def _no_fsync(file: int) -> None:
    """Do not wait for the disk, as tests kill processes, not machines. tests/io/test_local_store.py tests fsync."""
    os.fstat(file)  # still raises if there is no file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sweep", action="store_true", help="run what `make test` leaves out")
    parser.addoption("--connect", action="store_true", help="run the tests of Spark through Spark Connect")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("sweep" if config.getoption("--sweep") else "change")
    multiprocessing.set_start_method("spawn", force=True)
    _use_own_temporary_folder(config)
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fork", _no_fork)
    patch.setattr(os, "fsync", _no_fsync)
    config.add_cleanup(patch.undo)


def _use_own_temporary_folder(config: pytest.Config) -> None:
    """Keep caches and temporary files of tests, and of their processes, apart from those of the user."""
    folder, before = tempfile.mkdtemp(prefix="qbeast-tests-"), os.environ.get("TMPDIR")
    os.environ.setdefault(
        "PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()
    )  # the folders of `tmp_path` stay there

    def restore() -> None:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)

    os.environ["TMPDIR"], tempfile.tempdir = folder, folder
    config.add_cleanup(restore)


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
    """Select the tests of a ring: those that a change has to pass, or with `--sweep` what they leave out."""
    sweep = config.getoption("--sweep")
    # On Spark Connect and on older PySparks nothing runs with each change, so a sweep runs all.
    elsewhere = config.getoption("--connect") or "EXPECTED_PYSPARK" in os.environ
    chosen = [
        item
        for item in items
        if (_is_sweep(item) or elsewhere if sweep else not item.get_closest_marker("sweep"))
    ]
    left_out = set(items) - set(chosen)
    if left_out:  # not skipped one by one, because there are a thousand
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = chosen


def _is_sweep(item: pytest.Item) -> bool:
    """Return whether sweeps run a test: it is marked, or draws other examples."""
    return bool(item.get_closest_marker("sweep")) or is_hypothesis_test(getattr(item, "obj", None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let docstrings write tables with plain names ("sales") and leave nothing behind."""
    if not isinstance(item, pytest.DoctestItem):
        return (yield)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        return (yield)
