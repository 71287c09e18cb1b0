"""What tests of several folders ask for, one for the whole run: an S3 server, processes that write at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator, Iterator
from multiprocessing.pool import Pool

import pytest

Collectors = list[pytest.Collector]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, Collectors, Collectors]:
    """Look for no doctests in tests: there are none, and to look takes as long as to find the tests themselves."""
    actual = yield
    return [item for item in actual if type(item) is pytest.Module]


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """The storage options of a server in this process; others' buckets are there too."""
    from tests.helpers.buckets import serving  # noqa: PLC0415 -- loading the server takes a second

    with serving() as options:
        yield options


@pytest.fixture
def bucket(s3_options: dict[str, str]) -> str:
    """A new bucket in that server, empty."""
    from tests.helpers.buckets import new_bucket  # noqa: PLC0415 -- as above

    return new_bucket(s3_options)


@pytest.fixture(scope="session")
def four() -> Iterator[Pool]:
    """Four other processes; they are kept, for each takes a second to load what it runs."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def two() -> Iterator[Pool]:
    """Two other processes, kept as well, for tests that are far from those that need four."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def sweep_seed(pytestconfig: pytest.Config) -> int:
    """The seed of `--hypothesis-seed` for tests that draw by themselves; without it, always the same."""
    seed = pytestconfig.getoption("--hypothesis-seed")
    return int(seed) if str(seed).isdecimal() else 1
