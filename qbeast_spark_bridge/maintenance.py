"""Operations on a whole table with Spark: planned and committed here, files read and written by its workers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from qbeast_core.io.stores.location import resolve_location
from qbeast_core.opened import open_reader
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.query.plan.fractions import Share
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.index.column_texts import IndexColumns
from qbeast_core.table.maintenance.convert import ConvertResult
from qbeast_core.table.maintenance.convert import convert as converted
from qbeast_core.table.maintenance.upgrade import Copies, UpgradeResult
from qbeast_core.table.maintenance.upgrade import upgrade as upgraded
from qbeast_core.table.rewrite.optimize import Into, OptimizeOptions, OptimizeResult
from qbeast_core.table.rewrite.optimize import optimize as rewritten
from qbeast_core.table.write.options import WriteOptions, metadata_of
from qbeast_spark_bridge.engine.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    dry_run: bool = False,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
) -> OptimizeResult:
    """Optimize a table like `Table.optimize`: the driver chooses files and commits, executors rewrite them.

    The same files are chosen, for the same reasons, and the rows get the same places: the tree is drawn from a
    sample of their indexed columns, a million rows at most, and of fewer rows it is that of `Table.optimize`.
    Failed, repeated and speculative tasks leave at worst files that no version names, which a vacuum removes.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table; executors and this process have to reach it under that name.
    files, revision, fraction, full, into, dry_run, commit_metadata
        See `Table.optimize`.
    progress : callable or bool, optional
        Called with a `Progress` at every step; files are counted once all of them are written.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them; sent along with the tasks.

    Returns
    -------
    OptimizeResult
        As of `Table.optimize`.

    Raises
    ------
    QbeastError
        As `qbeast.open_table` and `Table.optimize`; what executors raised is raised here.

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
        dry_run=dry_run,
        commit_metadata=metadata_of(commit_metadata),
        progress=callback_of(progress),
    )
    reader = open_reader(path, None, storage_options)
    result, _ = rewritten(reader, options, engine=SparkEngine(spark))
    return replace(result, engine="spark")


def convert(
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
    """Convert a Delta table, or a folder of Parquet files, like `qbeast.convert_table`: no data is moved.

    For a Delta table that is the commit and no more. Of a folder of Parquet files, executors read the columns
    that the log has statistics of, each some of the files. The next `qbeast_spark_bridge.optimize` indexes the rows: it
    learns the ranges and quantiles of the indexed columns.

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
    >>> bridge.convert(spark, "plain", columns=["user"]).committed
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
    return converted(resolve_location(path), options, engine=SparkEngine(spark))


def upgrade(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    replicated: Copies | None = None,
    storage_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> UpgradeResult:
    """Update a table that qbeast-spark wrote before its version 0.6.0: `qbeast.upgrade_table`, without executors.

    Parameters
    ----------
    spark : SparkSession
        Not used: one commit of the log needs no executors. It is here because all operations of the bridge take it.
    path, replicated, storage_options, dry_run
        See `qbeast.upgrade_table`.

    Returns
    -------
    UpgradeResult
        As of `qbeast.upgrade_table`.

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
    del spark
    return upgraded(
        resolve_location(path), replicated=replicated, storage_options=storage_options, dry_run=dry_run
    )
