"""Split reads into Spark tasks of about equal bytes."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.frames import SparkFrame, is_spark_frame
from qbeast_core.table.engine.sources import RowsLike, open_source
from qbeast_core.table.read.planner import TASK_BYTES, Planner, ScanPlan, scan_tasks
from qbeast_spark_bridge.engine.workers import ready_workers
from qbeast_spark_bridge.spark_schema import nullable_schema, schema_of_frame, spark_schema
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.read_task import ReadTask, SentRows, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMN: Final = "task"


def tasks_of(
    planner: Planner,
    job: ScanPlan,
    *,
    columns: Sequence[str] | None = None,
    task_bytes: int = TASK_BYTES,
    schema: StructType | None = None,
    weight_column: str | None = None,
) -> list[ReadTask]:
    """Split a planned read into tasks of about equal bytes.

    `weight_column` adds a column with the weights of rows; `schema` has it too.
    """
    whole = schema or nullable_schema(spark_schema(planner.snapshot.schema_json))
    added = [] if weight_column is None else [weight_column]
    types = arrow_schema(StructType([whole[name] for name in [*planner.names_of(columns), *added]]))
    tasks = scan_tasks(planner, job, columns, task_bytes=task_bytes, weight_column=weight_column)
    special = planner.snapshot.columns.special_types
    special = {name: dtype for name, dtype in special.items() if name in types.names}
    return [ReadTask(task, types, special) for task in tasks]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types of rows from and to Spark; timestamps are in UTC."""
    has_zone = "timezone" in inspect.signature(to_arrow_schema).parameters  # from Spark 4.2 on; UTC before
    options: dict[str, Any] = {"timezone": "UTC"} if has_zone else {}
    return to_arrow_schema(schema, **options)


def rows_of_tasks(spark: SparkSession, tasks: Sequence[ReadTask], schema: StructType) -> DataFrame:
    """Return the rows of tasks; each runs as a separate Spark task."""
    if not tasks:
        return spark.createDataFrame([], schema)
    ready_workers(spark)
    rows = [(bytearray(pickle.dumps(task, protocol=5)),) for task in tasks]
    spread = spark.createDataFrame(rows, f"{_COLUMN} binary").repartition(len(rows))
    return spread.mapInArrow(WorkerCall.of(run_tasks, None), schema)


def frame_of_rows(spark: SparkSession, rows: RowsLike | SparkFrame) -> DataFrame:
    """Return rows as a DataFrame. Those of this process are sent with the tasks, in pieces of limited size."""
    if is_spark_frame(rows):
        return cast("DataFrame", rows)
    with open_source(rows) as source:
        schema = schema_of_frame(source.empty.schema)
        types = arrow_schema(schema)
        pieces = source.batches(None, size_bytes=sizing().source_batch_bytes)
        tasks = [ReadTask(SentRows(piece), types) for piece in pieces]
    return rows_of_tasks(spark, tasks, schema)
