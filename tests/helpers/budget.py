"""A test may cost 0.25 s of processor time, and fails at twice that. Dearer tests carry the mark `sweep`.

A test that costs more runs twice more, and its lowest cost counts: a first run may load a library, and other processes
slow a test down. CI allows twice as much. Runs of a few tests have no budget, because there most tests load libraries.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from math import inf
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import pytest
from _pytest.runner import runtestprotocol

BUDGET_S = 0.25
LIMIT_S = 2 * BUDGET_S * (2 if "CI" in os.environ else 1)  # its machine does other work, too
RUNS = 3
MIN_TESTS = 1_000
QUIET_S = 0.016  # what the loop of `_slowdown` takes on the machine of the measured costs
_SPENT_S = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-budget", action="store_true", help="do not fail tests that cost too much")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    options = item.config.getoption
    if item.session.testscollected < MIN_TESTS or options("--sweep") or options("--no-budget"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    costs_s: list[float] = []
    passed = True
    while passed and len(costs_s) < RUNS and min(costs_s, default=inf) > LIMIT_S:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        passed = all(report.passed for report in reports)
        costs_s.append(_quiet_s(item.stash[_SPENT_S]))
    if passed and min(costs_s) > LIMIT_S:
        _fail(reports[1], min(costs_s))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_SPENT_S] = -_processor_s()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Leave out what the tests of a module or of the session share."""
    start_s = _processor_s()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            item = request._pyfuncitem  # noqa: SLF001 -- `request.node` is the module or the session
            item.stash[_SPENT_S] -= _processor_s() - start_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        item.stash[_SPENT_S] += _processor_s()


def _fail(report: pytest.TestReport, cost_s: float) -> None:
    report.outcome = "failed"
    report.longrepr = (
        f"the test cost {cost_s:.2f} s of processor time, its budget is {BUDGET_S} s: "
        "make it cheaper, or mark it `sweep` and leave a probe"
    )


def _quiet_s(spent_s: float) -> float:
    """Return what a test would cost on a machine that does nothing else, if it cost too much."""
    if spent_s <= LIMIT_S:
        return spent_s
    start_s = time.process_time()
    sum(number * number for number in range(200_000))
    return spent_s / max(1.0, (time.process_time() - start_s) / QUIET_S)


def _processor_s() -> float:
    return sum(usage.ru_utime + usage.ru_stime for usage in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))
