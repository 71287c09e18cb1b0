"""Explain a read with Spark: the files and pages to open, and the conditions that skip nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Final

import polars as pl

from qbeast_core.opened import open_reader
from qbeast_core.query.plan.fractions import Sample
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.explain import explain as plan_read
from qbeast_spark_bridge.predicates.predicates import parse_where
from qbeast_spark_bridge.schema import collated_columns, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column

_BY_SPARK: Final = (
    "Spark applies it after the read, and it skips no files; give SQL text or a Polars expression that "
    "compares columns with constants"
)


def explain(
    path: str | os.PathLike[str],
    *,
    where: str | Column | pl.Expr | None = None,
    columns: Sequence[str] | None = None,
    sample: Sample | None = None,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Plan:
    """Plan a `read_table` without a session: the files and pages to open, and unused conditions.

    Spark finds the pages to read by their statistics, so it may read a few more bytes than planned.

    Parameters
    ----------
    path, where, columns, sample, version, storage_options, allow_absolute_paths
        See `read_table`.

    Returns
    -------
    Plan
        See `qbeast.Table.explain`. A Column is always one of the `unused_conditions`.

    Raises
    ------
    QbeastError
        As `read_table`.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"client": range(1000)}), "clients", columns=["client:hash"])
    >>> list(bridge.explain("clients", where="client < 10").unused_conditions.values())[0][:24]
    "'client' is indexed by h"
    """
    reader = open_reader(path, version, storage_options, allow_absolute_paths=allow_absolute_paths)
    collated = collated_columns(spark_schema(reader.snapshot.schema_json))
    predicate = parse_where(where, reader.snapshot.schema, collated).predicate
    plan = plan_read(reader, predicate, sample, None if columns is None else list(columns))
    return plan if where is None or predicate is not None else replace(plan, beside={str(where): _BY_SPARK})
