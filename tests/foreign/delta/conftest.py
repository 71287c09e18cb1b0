"""A session of Spark with Delta's own reader and writer; a sweep."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.foreign.delta.session import PACKAGE, PYSPARK, delta_session
from tests.spark import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_report_header() -> str:
    return f"pyspark: {pyspark.__version__}, {PACKAGE}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the session that all tests share; it stops with them."""
    if not pyspark.__version__.startswith(PYSPARK):
        expected = os.environ.get("EXPECTED_PYSPARK")
        assert expected is None, f"PySpark {pyspark.__version__} was found, {expected} was asked for"
        pytest.skip(f"{PACKAGE} runs on PySpark {PYSPARK}: make sweep SHARD=16")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            patch.delenv(name)
        for name, value in sessions.environment().items():
            patch.setenv(name, value)
        session = delta_session(tmp_path_factory.mktemp("delta"))
        yield session
        session.stop()
