"""What a user's job does on a cluster, as a process of its own: `python -m tests.spark.cluster_job ADDRESS STEP PATH`.

Prints one line of JSON last: what the job saw.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

import qbeast_spark_bridge as bridge
from tests.spark import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

COLUMNS = ["key", "x:quantiles", "name:hash"]
SAMPLE = 0.1


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    x, name = "cast(id * 7919 % 10007 AS double) / 7 AS x", "concat('name ', id % 40) AS name"
    return spark.range(first, first + count, 1, 4).selectExpr("id AS key", x, name)


def workers(spark: SparkSession, _path: str) -> dict[str, Any]:
    """Say which folders Python ran in: one for each executor."""
    actual = spark.range(8, numPartitions=8).mapInArrow(_where, "folder string").distinct().collect()
    return {"folders": sorted(row["folder"] for row in actual)}


def write(spark: SparkSession, path: str) -> dict[str, Any]:
    bridge.write_table(rows(spark, 0, 50_000), path, columns=COLUMNS)
    return read(spark, path)


def append(spark: SparkSession, path: str) -> dict[str, Any]:
    bridge.write_table(rows(spark, 50_000, 50_000), path, mode="append")
    return read(spark, path)


def change(spark: SparkSession, path: str) -> dict[str, Any]:
    """Delete, update and merge some rows."""
    table = bridge.open_table(spark, path)
    table.delete("x < 700 AND name = 'name 3'")
    table.update("name = 'name 5'", {"x": 1.5})
    source = rows(spark, 95_000, 10_000).selectExpr("key", "cast(key AS double) AS x", "name")
    table.merge(source, "key", delete_if="name = 'name 7'")
    return read(spark, path) | {"ok": table.check().ok}


def read(spark: SparkSession, path: str) -> dict[str, Any]:
    def keys(**options: Any) -> list[int]:
        return _keys(bridge.read_table(spark, path, **options))

    return {
        "rows": len(keys()),
        "sample": keys(sample=SAMPLE),
        "source": _keys(spark.read.format("qbeast").option("sample", str(SAMPLE)).load(path)),
        "filter": keys(where="x < 100 AND name = 'name 7'"),
    }


def _keys(frame: DataFrame) -> list[int]:
    return sorted(row["key"] for row in frame.select("key").collect())


def _where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"folder": [str(Path.cwd())] * batch.num_rows})


def _session(address: str, directory: Path) -> SparkSession:
    if address.startswith("sc://"):
        return SparkSession.builder.remote(address).getOrCreate()
    return SparkSession.builder.master(address).config(map=cluster.settings(directory)).getOrCreate()


STEPS = {step.__name__: step for step in (workers, write, append, change, read)}


def main(address: str, step: str, path: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "local").mkdir()
        session = _session(address, Path(directory))
        try:
            print(json.dumps(STEPS[step](session, path)))
        finally:
            session.stop()


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "2")
    main(*sys.argv[1:])
