"""Optimize a table with Spark: planned here, rewritten by its workers, committed once a revision."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qbeast_core.opened import open_reader
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.query.fractions import Share
from qbeast_core.table.rewrite.optimize import OptimizeOptions, OptimizeResult, optimize
from qbeast_core.table.write.options import metadata_of
from qbeast_spark_bridge.engine.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@shows_progress("optimizing")
def optimize_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    revision: int | None = None,
    files: Sequence[str | os.PathLike[str]] | None = None,
    fraction: Share | None = None,
    all_revisions: bool = False,
    full: bool = False,
    fold: bool = False,
    redraw: bool = False,
    dry_run: bool = False,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
) -> OptimizeResult:
    """Do what `Table.optimize` does, with Spark: choose files here, rewrite them on the executors, commit here.

    The same files are chosen, for the same reasons, and the rows get the same places: the tree is drawn from a
    sample of their indexed columns, a million rows at most, and of fewer rows it is that of `Table.optimize`.
    Failed, repeated and speculative tasks leave at worst files that no version names, which a vacuum removes.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table; executors and this process have to reach it under that name.
    revision, files, fraction, all_revisions, full, fold, redraw, dry_run, commit_metadata
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
    >>> result = bridge.optimize_table(spark, "sales", full=True)
    >>> result.committed, result.rows
    (True, 2000)
    """
    options = OptimizeOptions(
        revision=revision,
        files=files,
        fraction=fraction,
        all_revisions=all_revisions,
        full=full,
        fold=fold,
        redraw=redraw,
        dry_run=dry_run,
        commit_metadata=metadata_of(commit_metadata),
        progress=callback_of(progress),
    )
    reader = open_reader(path, None, storage_options)
    result, _ = optimize(reader, options, engine=SparkEngine(spark))
    return replace(result, engine="spark")
