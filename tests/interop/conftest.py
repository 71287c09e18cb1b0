"""A Spark session with Delta's own reader and writer, of the newest PySpark that they exist for; `make interop`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from qbeast_spark_bridge.session import ensure_java
from tests.spark import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PYSPARK = "4.2"
PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Kept between runs: what Spark has resolved once needs no network again.
DOWNLOADS = Path(__file__).parents[2] / ".cache" / "ivy"
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.jars.packages": PACKAGE,
    "spark.jars.ivy": str(DOWNLOADS),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM lists folders by 10,000 tasks else
    # The log on disk is what is tested, not what the session remembers of it.
    "spark.databricks.delta.stalenessLimit": "0",
}


def pytest_report_header() -> str:
    return f"pyspark: {pyspark.__version__}, {PACKAGE}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the session that all tests share; it stops with them."""
    if not pyspark.__version__.startswith(PYSPARK):
        expected = os.environ.get("EXPECTED_PYSPARK")
        assert expected is None, f"PySpark {pyspark.__version__} was found, {expected} was asked for"
        pytest.skip(f"{PACKAGE} runs on PySpark {PYSPARK}: make interop")
    directory = tmp_path_factory.mktemp("delta")
    (directory / "local").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            patch.delenv(name)
        for name, value in sessions.environment().items():
            patch.setenv(name, value)
        ensure_java()
        session = sessions.classic(directory, SETTINGS)
        yield session
        session.stop()
