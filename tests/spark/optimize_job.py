"""An optimize whose tasks all fail once, as a process of its own: `python -m tests.spark.optimize_job PATH`.

Prints one line of JSON last: what the job saw.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import qbeast_spark_bridge as bridge
from qbeast_spark_bridge import engine as rewrite_tasks
from qbeast_spark_bridge.worker import rewrite as rewrite_work
from tests.helpers.tables import small_files
from tests.spark import sessions
from tests.spark.write_job import fail_first, failing_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_summarise, _pack = rewrite_work.summarise_files, rewrite_work.pack_files


def failing_summaries(argument: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from _summarise(argument, batches)
    fail_first()


def failing_packs(argument: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from _pack(argument, batches)
    fail_first()


def main(path: str) -> None:
    rewrite_tasks.summarise_files, rewrite_tasks.pack_files = failing_summaries, failing_packs
    rewrite_tasks.write_partition = failing_files  # writes all files before it fails: they are orphans
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "local").mkdir()
        conf = sessions.settings(Path(directory))
        spark = SparkSession.builder.master("local[2,2]").config(map=conf).getOrCreate()
        try:
            with small_files(file_rows=500):
                result = bridge.optimize_table(spark, path, full=True)
            print(json.dumps({"rows": result.rows, "files": result.files}))
        finally:
            spark.stop()


if __name__ == "__main__":
    # Workers find the functions by the name of this module, which is another one here.
    from tests.spark import optimize_job

    optimize_job.main(*sys.argv[1:])
