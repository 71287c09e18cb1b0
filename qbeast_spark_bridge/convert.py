"""Convert a table with Spark: one commit by this process; where files must be read for it, workers read them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from qbeast_core.io.location import resolve_location
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.index.column_texts import IndexColumns
from qbeast_core.table.maintenance.convert import ConvertResult, convert
from qbeast_core.table.write.options import WriteOptions, metadata_of
from qbeast_spark_bridge.engine.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def convert_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    columns: IndexColumns,
    *,
    cube_size: int | None = None,
    dialect: BlocksDialect | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> ConvertResult:
    """Do what `qbeast.convert_table` does, with Spark: no data is moved, one commit makes it a table of qbeast's.

    For a Delta table that is the commit and no more. Of a folder of Parquet files, executors read the columns
    that the log has statistics of, each some of the files. The rows are indexed by the next optimize, say
    `qbeast_spark_bridge.optimize_table`: it learns the ranges and quantiles of the indexed columns.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table, or of the Parquet files; executors and this process have to reach it under
        that name.
    columns, cube_size, dialect, storage_options, commit_metadata, dry_run
        See `qbeast.convert_table`.

    Returns
    -------
    ConvertResult
        As of `qbeast.convert_table`.

    Raises
    ------
    QbeastError
        As `qbeast.convert_table`; what executors raised is raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast_spark_bridge as bridge
    >>> pl.DataFrame({"user": range(1000)}).write_delta("plain")
    >>> bridge.convert_table(spark, "plain", columns=["user"]).committed
    True
    """
    options = WriteOptions(
        columns=columns,
        cube_size=cube_size,
        dialect=dialect,
        storage_options=storage_options,
        commit_metadata=metadata_of(commit_metadata),
        dry_run=dry_run,
    )
    return convert(resolve_location(path), options, engine=SparkEngine(spark))
