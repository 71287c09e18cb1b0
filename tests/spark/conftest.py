"""One Spark session per test process: classic `local[2]`, or Spark Connect with `--connect`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyspark
import pytest

from qbeast_spark_bridge.session import ensure_java
from tests.spark import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_report_header(config: pytest.Config) -> str:
    return f"pyspark: {pyspark.__version__}, {'Spark Connect' if config.getoption('--connect') else 'classic session'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--connect"):
        return
    skip = pytest.mark.skip(reason="a property of classic sessions")
    done = pytest.mark.skip(reason="needs no session: run without --connect")
    for item in items:
        if item.get_closest_marker("classic"):
            item.add_marker(skip)
        elif "spark" not in getattr(item, "fixturenames", ()):
            item.add_marker(done)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the session that all tests of this process share; it stops with them."""
    directory = tmp_path_factory.mktemp("spark")
    (directory / "local").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # Another Spark of this machine, its settings and its servers are not what is tested.
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            patch.delenv(name)
        for name, value in sessions.environment().items():
            patch.setenv(name, value)
        if "EXPECTED_PYSPARK" not in os.environ:  # other versions run as they are installed
            patch.setenv("SPARK_HOME", str(sessions.home(directory)))
        ensure_java()
        start = sessions.connect if request.config.getoption("--connect") else sessions.classic
        session = start(directory)
        yield session
        session.stop()


@pytest.fixture
def other_session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session with its own views and settings.

    A client of Connect that stays open waits for the stopped server when the process ends, for minutes.
    """
    session = spark.newSession()
    yield session
    if request.config.getoption("--connect"):
        session.client.close()
