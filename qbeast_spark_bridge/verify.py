"""Check a table with Spark: the driver checks the log, executors read the files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from qbeast_core.opened import open_reader
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.table.check.check import check_table
from qbeast_core.table.check.faults import CheckReport
from qbeast_spark_bridge.engine.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        Folder or address of the table, the same for executors and this process.
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
    reader = open_reader(path, version, storage_options, allow_absolute_paths=allow_absolute_paths)
    return check_table(reader, data=data, progress=callback_of(progress), engine=SparkEngine(spark))
