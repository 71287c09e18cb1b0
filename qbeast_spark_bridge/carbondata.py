"""Read and import Apache CarbonData tables with Spark: executors read the files without CarbonData's library."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import polars as pl

from qbeast_carbondata.metadata.open_table import Segment
from qbeast_carbondata.reader import TableReader, carbon_tasks
from qbeast_carbondata.tables.importing import ImportResult, WhichSegments, import_table
from qbeast_carbondata.tables.table import CarbonTable, OnUnreadable, open_carbondata
from qbeast_core.api.keywords import CommitKeywords
from qbeast_core.errors import changing, hints_keywords, unknown_columns
from qbeast_core.io.location import Location
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.support.process import callback_of, shows_progress
from qbeast_core.table.engine.engine import Source
from qbeast_core.table.read.planner import TASK_BYTES
from qbeast_core.table.write.options import Mode, WriteOptions, metadata_of
from qbeast_spark_bridge.catalog import plan_views
from qbeast_spark_bridge.engine.engine import SparkEngine, SparkSource, arrow_schema, rows_of_tasks
from qbeast_spark_bridge.predicates.columns import is_column
from qbeast_spark_bridge.predicates.conditions import polars_filter
from qbeast_spark_bridge.spark_types import nullable_schema, quoted, spark_schema
from qbeast_spark_bridge.worker.read_task import ReadTask

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@hints_keywords
def read_carbondata(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    where: str | Column | pl.Expr | None = None,
    columns: Sequence[str] | None = None,
    segments: Sequence[str] | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a CarbonData table as a Spark DataFrame, one task for each data file or part of it.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table, the same for executors and this process.
    where : str, Column or polars.Expr, optional
        Rows to keep, as for `read_table`; conditions that are supported also skip files, blocklets and pages.
    columns : sequence of str, optional
        Columns to return, in order; all by default.
    segments, on_unreadable, storage_options, external_paths, allow_absolute_paths, writer_settings
        See `qbeast.open_carbondata`.

    Returns
    -------
    DataFrame
        All columns are nullable; rows are in no particular order.

    Raises
    ------
    QbeastError
        As `qbeast.open_carbondata`; errors of executors are raised when the rows are read.
    InvalidInputError
        If a column is not in the table, or the condition is invalid.

    Examples
    --------
    ``old_sales`` is the folder of a CarbonData table.

    >>> import qbeast_spark_bridge as bridge
    >>> rows = bridge.read_carbondata(spark, "old_sales", where="id < 10", columns=["id", "name"])
    >>> rows.columns, rows.count()
    (['id', 'name'], 10)
    """
    table = open_carbondata(
        path,
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    )
    unknown = [name for name in columns or () if name not in table.schema]
    if unknown:
        unknown_columns("columns", unknown, table.schema)
    names = list(table.schema) if columns is None else list(columns)
    if is_column(where):  # Spark applies it, and it may use any column
        condition: Any = where
        rows = _frame(spark, table.reader, list(table.schema), None).where(condition)
    else:
        to_read = list(dict.fromkeys(names)) or list(table.schema)
        rows = _frame(spark, table.reader, to_read, polars_filter(where, table.schema))
    return rows if columns is None else rows.select([quoted(name) for name in names])


@changing
@shows_progress("importing")
def import_carbondata(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    segments: WhichSegments = "current",
    mode: Mode = "error",
    cube_size: int | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
    dialect: BlocksDialect | None = None,
    dry_run: bool = False,
    **keywords: Unpack[CommitKeywords],
) -> ImportResult:
    """Import a CarbonData table like `qbeast.import_carbondata`, on the executors.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path, target : str or path-like
        The CarbonData table, and the table to create; the same for executors and this process.
    columns, segments, mode, cube_size, on_unreadable, storage_options, external_paths, allow_absolute_paths, \
    writer_settings, dialect, dry_run, **keywords
        See `qbeast.import_carbondata`.

    Returns
    -------
    ImportResult
        See `qbeast.import_carbondata`.

    Raises
    ------
    QbeastError
        As `qbeast.import_carbondata`; errors of executors are raised here.

    Examples
    --------
    ``old_sales`` is the folder of a CarbonData table.

    >>> import qbeast_spark_bridge as bridge
    >>> result = bridge.import_carbondata(spark, "old_sales", "sales", columns=["id", "name"])
    >>> result.rows
    60
    """
    opened = open_carbondata(
        path,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    )
    options = WriteOptions(
        columns=columns,
        mode=mode,
        cube_size=cube_size,
        storage_options=storage_options,
        commit_metadata=metadata_of(keywords.get("commit_metadata")),
        dialect=dialect,
        dry_run=dry_run,
        progress=callback_of(keywords.get("progress")),
    )

    def source_of(table: CarbonTable, segments: tuple[Segment, ...]) -> Source:
        reader = replace(table.reader, segments=segments)
        return SparkSource(_frame(spark, reader, list(reader.schema), None))

    engine, location = SparkEngine(spark), Location.of(target, storage_options)
    result = import_table(opened, location, options, segments=segments, engine=engine, source_of=source_of)
    plan_views(spark, location.uri)
    return replace(result, engine="spark")


def _frame(
    spark: SparkSession, reader: TableReader, columns: Sequence[str], predicate: pl.Expr | None
) -> DataFrame:
    """Return columns of the rows that a filter keeps, read by executors."""
    selected = pl.Schema({name: reader.schema[name] for name in columns})
    schema = nullable_schema(spark_schema(schema_to_delta(selected)))
    types = arrow_schema(schema)
    tasks = carbon_tasks(reader, columns, predicate, task_bytes=TASK_BYTES)
    return rows_of_tasks(spark, [ReadTask(task, types) for task in tasks], schema)
