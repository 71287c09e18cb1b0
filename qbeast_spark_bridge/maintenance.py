"""Optimize, convert, upgrade and check tables with Spark: the driver plans and commits, executors use files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Literal

from qbeast_core.errors import changing, hints_keywords
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.query.plan.weight_range import Share
from qbeast_core.results import MetadataResult
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.check.check import check_table
from qbeast_core.table.check.faults import CheckReport
from qbeast_core.table.index.column_choice import IndexColumns
from qbeast_core.table.maintenance.column_changes import add_sample_column as add_column
from qbeast_core.table.maintenance.convert import ConvertResult
from qbeast_core.table.maintenance.convert import convert as convert_table
from qbeast_core.table.maintenance.reindex import ReindexOptions, ReindexResult
from qbeast_core.table.maintenance.reindex import reindex as reindex_table
from qbeast_core.table.maintenance.upgrade import Copies, UpgradeResult
from qbeast_core.table.maintenance.upgrade import upgrade as upgrade_table
from qbeast_core.table.rewrite.optimize import Into, OptimizeOptions, OptimizeResult
from qbeast_core.table.rewrite.optimize import optimize as optimize_table
from qbeast_core.table.table import open_version
from qbeast_core.table.write.key_columns import SampleBy
from qbeast_core.table.write.options import WriteOptions, metadata_of
from qbeast_spark_bridge.catalog import located, plan_views, table_to_change
from qbeast_spark_bridge.engine.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@changing
@shows_progress("optimizing")
def optimize(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    files: Sequence[str | os.PathLike[str]] | None = None,
    revision: int | Literal["all"] | None = None,
    fraction: Share | None = None,
    full: bool = False,
    into: Into | None = None,
    purge: bool = False,
    dry_run: bool = False,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
) -> OptimizeResult:
    """Optimize a table like `Table.optimize`: the driver selects files and commits, executors rewrite them.

    The selected files and the layout of rows are those of `Table.optimize`; for more than a million rows, the tree
    is built from a sample of the indexed columns. Failed, repeated and speculative tasks leave at worst files that
    are in no version, which a vacuum removes.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process.
    files, revision, fraction, full, into, purge, dry_run, commit_metadata
        See `Table.optimize`.
    progress : callable or bool, optional
        Called with a `Progress` at every step; files are counted once all of them are written.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`; sent to the tasks.

    Returns
    -------
    OptimizeResult
        See `Table.optimize`.

    Raises
    ------
    QbeastError
        As `qbeast.open_table` and `Table.optimize`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> for first in (0, 1000):
    ...     sales = pl.DataFrame({"user": range(first, first + 1000)})
    ...     written = qbeast.write_table(sales, "sales", columns=["user"], mode="append")
    >>> result = bridge.optimize(spark, "sales", full=True)
    >>> result.committed, result.rows
    (True, 2000)
    """
    options = OptimizeOptions(
        files=files,
        revision=revision,
        fraction=fraction,
        full=full,
        into=into,
        purge=purge,
        dry_run=dry_run,
        commit_metadata=metadata_of(commit_metadata),
        progress=callback_of(progress),
    )
    with table_to_change(spark, path, storage_options) as snapshot:
        result, _ = optimize_table(snapshot, options, engine=SparkEngine(spark))
        return replace(result, engine="spark")


@changing
@shows_progress("reindexing")
def reindex(
    spark: SparkSession,
    path: str | os.PathLike[str],
    columns: IndexColumns | None = None,
    *,
    cube_size: int | None = None,
    importance: Mapping[str, float] | None = None,
    full: bool = False,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
) -> ReindexResult:
    """Index a table by other columns like `Table.reindex`: executors read the columns, and move the rows.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process.
    columns, cube_size, importance, full, commit_metadata
        See `Table.reindex`.
    progress : callable or bool, optional
        Called with a `Progress` at every step; files are counted once all of them are written.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`; sent to the tasks.

    Returns
    -------
    ReindexResult
        See `Table.reindex`.

    Raises
    ------
    QbeastError
        As `qbeast.open_table` and `Table.reindex`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> sales = pl.DataFrame({"user": range(1000), "price": [37 * i % 997 for i in range(1000)]})
    >>> written = qbeast.write_table(sales, "sales", columns=["user"])
    >>> bridge.reindex(spark, "sales", ["price"]).rows_left
    1000
    >>> bridge.reindex(spark, "sales", full=True).rows
    1000
    """
    options = ReindexOptions(
        columns=columns,
        cube_size=cube_size,
        importance=importance,
        full=full,
        commit_metadata=metadata_of(commit_metadata),
        progress=callback_of(progress),
    )
    with table_to_change(spark, path, storage_options) as snapshot:
        return reindex_table(snapshot, options, engine=SparkEngine(spark))[0]


@changing
def add_sample_column(
    spark: SparkSession,
    path: str | os.PathLike[str],
    name: str = "sample",
    *,
    storage_options: Mapping[str, str] | None = None,
) -> MetadataResult:
    """Add a sample column to a table like `Table.add_sample_column`: executors rewrite the files.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process.
    name : str, default "sample"
        Name of the column.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`; sent to the tasks.

    Returns
    -------
    MetadataResult
        See `Table.add_sample_column`.

    Raises
    ------
    QbeastError
        As `qbeast.open_table` and `Table.add_sample_column`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "sales", columns=["user"])
    >>> bridge.add_sample_column(spark, "sales").changed
    ('sample',)
    >>> bridge.read_table(spark, "sales").where("sample < 0.25").count()
    234
    """
    with table_to_change(spark, path, storage_options) as snapshot:
        return add_column(snapshot, name, engine=SparkEngine(spark))[0]


@changing
def convert(
    spark: SparkSession,
    path: str | os.PathLike[str],
    columns: IndexColumns,
    *,
    cube_size: int | None = None,
    dialect: BlocksDialect | None = None,
    sample_by: SampleBy | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> ConvertResult:
    """Convert a Delta table, or a folder of Parquet files, like `qbeast.convert_table`, without moving data.

    A Delta table only needs a commit. For a folder of Parquet files, executors read the columns that get statistics
    in the log. The next `qbeast_spark_bridge.optimize` computes the ranges and quantiles of the indexed columns, and
    indexes the rows.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, or folder of the Parquet files, the same for executors and this process.
    columns, cube_size, dialect, sample_by, storage_options, commit_metadata, dry_run
        See `qbeast.convert_table`.

    Returns
    -------
    ConvertResult
        See `qbeast.convert_table`.

    Raises
    ------
    QbeastError
        As `qbeast.convert_table`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast_spark_bridge as bridge
    >>> pl.DataFrame({"user": range(1000)}).write_delta("plain")
    >>> bridge.convert(spark, "plain", columns=["user"]).committed
    True
    """
    options = WriteOptions(
        columns=columns,
        cube_size=cube_size,
        dialect=dialect,
        sample_by=sample_by,
        commit_metadata=metadata_of(commit_metadata),
        dry_run=dry_run,
    )
    location = located(spark, path, storage_options)
    result = convert_table(location, options, engine=SparkEngine(spark))
    plan_views(spark, location.uri)
    return result


@changing
def upgrade(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    replicated: Copies | None = None,
    storage_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> UpgradeResult:
    """Upgrade a table of qbeast-spark before version 0.6.0, like `qbeast.upgrade_table`.

    Parameters
    ----------
    spark : SparkSession
        Finds a table by its name. The upgrade is a single commit and needs no job.
    path, replicated, storage_options, dry_run
        See `qbeast.upgrade_table`.

    Returns
    -------
    UpgradeResult
        See `qbeast.upgrade_table`.

    Raises
    ------
    QbeastError
        As `qbeast.upgrade_table`.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "sales", columns=["user"])
    >>> bridge.upgrade(spark, "sales").committed
    False
    """
    location = located(spark, path, storage_options)
    result = upgrade_table(location, replicated=replicated, dry_run=dry_run)
    plan_views(spark, location.uri)
    return result


@hints_keywords
@shows_progress("checking")
def check(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    data: bool = True,
    version: int | str | date | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> CheckReport:
    """Check a table like `Table.check`: executors read the data files.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process.
    data : bool, default True
        Whether to read the data files. If False, only the log is checked, without Spark.
    version : int, date, datetime or str, optional
        See `qbeast.open_table`.
    progress : callable or bool, optional
        Called with a `Progress` once all files are read.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`; sent to the tasks.
    allow_absolute_paths : bool, default False
        See `qbeast.open_table`.

    Returns
    -------
    CheckReport
        See `Table.check`.

    Raises
    ------
    QbeastError
        As `qbeast.open_table` and `Table.check`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "sales", columns=["user"])
    >>> report = bridge.check(spark, "sales")
    >>> report.ok, report.rows
    (True, 1000)
    """
    location = located(spark, path, storage_options, allow_absolute_paths=allow_absolute_paths)
    snapshot = open_version(location, version, None).snapshot
    return check_table(snapshot, data=data, progress=callback_of(progress), engine=SparkEngine(spark))
