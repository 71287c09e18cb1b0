"""A session of Spark with Delta's own reader and writer; run it as a module to download their jars."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from qbeast_spark_bridge.session import ensure_java
from tests.spark import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PACKAGE", "PYSPARK", "delta_session"]

# The newest PySpark that Delta exists for.
PYSPARK = "4.2"
PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Kept between runs: what Spark has resolved once needs no network again.
DOWNLOADS = Path(__file__).parents[3] / ".cache" / "ivy"
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


def delta_session(directory: Path) -> SparkSession:
    """Start a session that leaves nothing outside a directory but the jars that it downloads."""
    (directory / "local").mkdir()
    ensure_java()
    return sessions.classic(directory, SETTINGS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        delta_session(Path(name)).stop()
