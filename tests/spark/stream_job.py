"""A stream from a table into a table, in a process that a test kills: `python -m tests.spark.stream_job FROM INTO`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import qbeast_spark_bridge as bridge
from tests.spark import sessions


def main(source: str, into: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "local").mkdir()
        spark = sessions.classic(Path(directory))
        bridge.register(spark)
        rows = spark.readStream.format("qbeast").option("maxFilesPerTrigger", 1).load(source)
        writer = rows.writeStream.format("qbeast").option("checkpointLocation", f"{into}.checkpoint")
        writer.trigger(availableNow=True).start(into).awaitTermination()
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
