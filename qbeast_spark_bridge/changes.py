"""Tasks that read the changes of a table for Spark."""

from __future__ import annotations

from datetime import date

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from qbeast_core.table.data.schema import FEED_COLUMNS
from qbeast_core.table.read.changes import ChangeTask, change_reader, commits_between
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_spark_bridge.engine.tasks import arrow_schema
from qbeast_spark_bridge.spark_schema import nullable_schema, spark_schema
from qbeast_spark_bridge.worker.read_task import ReadTask


def change_tasks(
    snapshot: Snapshot, since: int | str | date, until: int | str | date | None
) -> tuple[StructType, list[ReadTask]]:
    """Return the columns of changed rows, and the tasks that read them."""
    reader, commits = change_reader(snapshot), commits_between(snapshot, since, until)
    schema = with_feed_columns(nullable_schema(spark_schema(snapshot.schema_json)))
    special = {name: dtype for name, dtype in snapshot.columns.special_types.items() if name in schema.names}
    types = arrow_schema(schema)
    return schema, [
        ReadTask(ChangeTask(reader, part), types, special) for commit in commits for part in commit.split()
    ]


def with_feed_columns(schema: StructType) -> StructType:
    """Return the columns of a table and those that changes add."""
    types = (StringType(), LongType(), TimestampType())
    added = [StructField(name, dtype) for name, dtype in zip(FEED_COLUMNS, types, strict=True)]
    return StructType([*schema.fields, *added])
