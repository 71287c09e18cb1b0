"""Read the changes of a table as a Spark DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from qbeast_core.errors import hints_keywords
from qbeast_core.table.data.schema import FEED_COLUMNS
from qbeast_core.table.read.changed_files import ChangeTask
from qbeast_core.table.read.changes import change_reader, commits_between
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.table import open_version
from qbeast_spark_bridge.catalog import located
from qbeast_spark_bridge.engine.tasks import arrow_schema, rows_of_tasks
from qbeast_spark_bridge.spark_schema import nullable_schema, spark_schema
from qbeast_spark_bridge.worker.read_task import ReadTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@hints_keywords
def read_changes(
    spark: SparkSession,
    path: str | os.PathLike[str],
    since: int | str | date,
    until: int | str | date | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows that commits inserted, deleted and updated, read by the executors.

    The driver reads the log. A task reads a file of the change data feed, or a file that a commit added or removed. A
    commit whose removed and added rows are compared is one task.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for driver and executors.
    since, until
        See `qbeast.Table.changes`. `since` is one less than the ``startingVersion`` of Spark's feed.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`, for driver and executors.

    Returns
    -------
    DataFrame
        The rows of `qbeast.Table.changes`, in no particular order. All columns are nullable.

    Raises
    ------
    QbeastError
        As `qbeast.open_table` and `qbeast.Table.changes`.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"id": [1, 2]}), "ids", columns=["id"])
    >>> deleted = bridge.delete(spark, "ids", "id = 1")
    >>> bridge.read_changes(spark, "ids", since=0).select("id", "_change_type").collect()
    [Row(id=1, _change_type='delete')]
    """
    snapshot = open_version(located(spark, path, storage_options), None, None).snapshot
    schema, tasks = change_tasks(snapshot, since, until)
    return rows_of_tasks(spark, tasks, schema)


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
