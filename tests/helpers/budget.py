"""A test may cost 0.25 s of processor time, and fails at four times that. Dearer tests carry the mark `sweep`.

Other processes slow a test down, up to twice, so tests that cost twice the budget are only listed. Runs of a few tests
have no budget, because there the first tests load the libraries.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import pytest

BUDGET_S = 0.25
MIN_TESTS = 1_000
QUIET_S = 0.016  # what the loop of `_slowdown` takes on the machine of the measured costs
_SPENT_S = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-budget", action="store_true", help="do not fail tests that cost too much")


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
    result = yield
    spent_s = item.stash[_SPENT_S] + _processor_s()
    if spent_s <= 2 * BUDGET_S or item.session.testscollected < MIN_TESTS or item.config.getoption("--sweep"):
        return result
    spent_s /= _slowdown()
    advice = f"cost {spent_s:.2f} s of processor time, its budget is {BUDGET_S} s"
    if spent_s > 4 * BUDGET_S and not item.config.getoption("--no-budget"):
        pytest.fail(
            f"the test {advice}: make it cheaper, or mark it `sweep` and leave a probe", pytrace=False
        )
    if spent_s > 2 * BUDGET_S:
        item.user_properties.append(("budget", advice))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List tests that cost more than twice their budget."""
    for report in terminalreporter.stats.get("passed", []):
        for text in (text for name, text in report.user_properties if name == "budget"):
            terminalreporter.write_line(f"DEAR {report.nodeid} {text}")


def _slowdown() -> float:
    """Return how much slower the processor is now than one that does nothing else, at least 1."""
    start_s = time.process_time()
    sum(number * number for number in range(200_000))
    return max(1.0, (time.process_time() - start_s) / QUIET_S)


def _processor_s() -> float:
    return sum(usage.ru_utime + usage.ru_stime for usage in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))
