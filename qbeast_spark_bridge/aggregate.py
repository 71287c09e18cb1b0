"""Estimate aggregates with Spark: the driver plans and computes statistics, executors add up rows by key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

from qbeast_core.errors import hints_keywords
from qbeast_core.query.plan.weight_range import Sample, Share
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.estimate.join import Joins
from qbeast_core.table.estimate.question import Limits, question_of
from qbeast_core.table.estimate.question_expressions import Expressions
from qbeast_core.table.estimate.result import Estimate
from qbeast_core.table.estimate.rounds import rounds
from qbeast_core.table.read.planner import planner_of_estimate
from qbeast_core.table.table import open_version
from qbeast_spark_bridge.catalog import located
from qbeast_spark_bridge.engine.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hints_keywords
def estimate(
    spark: SparkSession,
    path: str | os.PathLike[str],
    aggregates: Expressions,
    *,
    per: Expressions | None = None,
    by: Expressions | None = None,
    where: Predicate | None = None,
    join: Joins | None = None,
    error: Share | None = None,
    absolute: Mapping[str, float] | None = None,
    confidence: Share = 0.95,
    sample: Sample | None = None,
    sample_by: Sequence[str] | None = None,
    simultaneous: bool = False,
    max_fraction: Share = 1.0,
    max_bytes: int | None = None,
    min_group_rows: int = 0,
    memory_bytes: int | None = None,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Estimate:
    """Estimate aggregates like `qbeast.estimate`: each round is a job, whose tasks sum up their rows by key.

    Results equal those of `qbeast.estimate`, except for the last digits of floating point. Sums by sampled key are
    sent to the driver: about ten bytes per key and aggregate.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process.
    aggregates, per, by : str or polars.Expr, or a sequence or mapping of these
        Aggregates to estimate, values per key, and groups: SQL such as ``"avg(delay)"``, or Polars expressions; a
        mapping names them. See `Table.estimate`.
    where, join, error, absolute, confidence, sample, sample_by, simultaneous, max_fraction, max_bytes, \
    min_group_rows, memory_bytes
        See `Table.estimate`; the memory is the driver's. With `per`, a task reads all rows of a range of keys, which
        may need a quarter of it.
    version, storage_options, allow_absolute_paths
        See `qbeast.open_table`; storage options are sent to the tasks.

    Returns
    -------
    Estimate
        See `Table.estimate`.

    Raises
    ------
    QbeastError
        As `qbeast.estimate`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> rows = pl.DataFrame({"user": range(1000), "price": [user * 37 % 101 for user in range(1000)]})
    >>> written = qbeast.write_table(rows, "sales", columns=["user"])
    >>> result = bridge.estimate(spark, "sales", {"total": "sum(price)"}, where="price < 50", error=0.05)
    >>> result.met, result.frame["total"].item() == rows.filter(pl.col("price") < 50)["price"].sum()
    (True, True)
    """
    location = located(spark, path, storage_options, allow_absolute_paths=allow_absolute_paths)
    planner = open_version(location, version, None).planner
    limits = Limits.of(
        error=error,
        absolute=absolute,
        confidence=confidence,
        sample=sample,
        simultaneous=simultaneous,
        max_fraction=max_fraction,
        max_bytes=max_bytes,
        min_group_rows=min_group_rows,
        memory_bytes=memory_bytes,
    )
    planner = planner_of_estimate(planner, sample_by, sample)
    question = question_of(planner, aggregates, limits, per=per, by=by, where=where, join=join)
    return list(rounds(planner, question, engine=SparkEngine(spark)))[-1]
