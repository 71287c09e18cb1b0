"""Read a table with Spark's own Parquet reader: planned here, moved by Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
from pyspark.sql.types import IntegerType, StructField, StructType

from qbeast_core.api import open_table
from qbeast_core.errors import InvalidInputError
from qbeast_core.query.weights import WeightRange
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT
from qbeast_core.table.empty_sample import warn_if_empty
from qbeast_core.table.foreign_schema import taken_name
from qbeast_core.table.frames import WEIGHT_COLUMN
from qbeast_core.table.reader import Job, Reader, Sample
from qbeast_spark_bridge.odd_files import read_by_tasks
from qbeast_spark_bridge.paths import can_read, list_on_driver, spark_path
from qbeast_spark_bridge.schema import collated_columns, nullable_schema, quoted, spark_schema
from qbeast_spark_bridge.where import understand
from qbeast_spark_bridge.where_names import keep_where

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["read_table"]

_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED",  # the calendar of Delta, whatever the session says
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # folders named a=1 are no columns
}


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    sample: Sample | None = None,
    where: str | Column | pl.Expr | None = None,
    columns: Sequence[str] | None = None,
    version: int | str | datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> DataFrame:
    """Read a table as a Spark DataFrame.

    The driver reads the table's log and chooses files; Spark reads them with its own Parquet reader, which skips
    pages by their statistics, and filters exactly. The version is fixed now, not when the rows are asked for.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table; driver and executors must find it under the same name.
    sample : float or tuple of float, optional
        A fraction in [0, 1] of the rows, or ``(from, to)``: the same rows as `qbeast.scan_table` returns.
    where : str, Column or polars.Expr, optional
        Rows to keep: a condition in Spark's SQL, a Column, or a Polars expression that means the same in Spark.
        It also chooses files as far as it is understood; of a Column nothing is.
    columns : sequence of str, optional
        Columns to return, in order; all by default.
    version : int, datetime or str, optional
        See `qbeast.open_table`.
    storage_options : mapping of str to str, optional
        For the driver's look at the log in object stores, as `deltalake` takes them. Spark's own access to the
        store is set in Spark.
    allow_absolute_paths : bool, default False
        See `qbeast.open_table`.

    Returns
    -------
    DataFrame
        All columns nullable, in no particular order of rows.

    Raises
    ------
    InvalidInputError
        If the sample is no fraction or pair of fractions, a column is not in the table, or a Polars expression
        cannot be said in Spark.
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError, VersionNotFoundError
        See `qbeast.open_table`.

    Warns
    -----
    EmptySampleWarning
        If the sample holds no row where many were to be expected.
    """
    table = open_table(
        path,
        version=version,
        storage_options=storage_options,
        allow_absolute_paths=allow_absolute_paths,
    )
    reader = table.explain().reader
    schema = nullable_schema(spark_schema(reader.snapshot.schema_json))
    chosen = None if columns is None else _checked(columns, schema)
    collated = collated_columns(schema)  # compared in Spark's way, of which the index knows nothing
    condition = understand(
        where, pl.Schema({n: t for n, t in reader.snapshot.schema.items() if n not in collated})
    )
    job = reader.plan(condition.predicate, sample)
    warn_if_empty(reader, sample, job if condition.predicate is None else None)
    rows = _rows(spark, reader, job, schema)
    if isinstance(where, pl.Expr):
        rows = keep_where(rows, str(condition.condition))
    elif condition.condition is not None:
        rows = rows.where(condition.condition)  # the caller's own, to mean what it means to Spark
    return rows if chosen is None else rows.select([quoted(name) for name in chosen])


def _checked(columns: Sequence[str], schema: StructType) -> list[str]:
    unknown = [name for name in columns if name not in schema.names]
    if isinstance(columns, str) or unknown or not columns or len(set(columns)) < len(columns):
        msg = f"columns must be different names of {schema.names}, at least one, not {columns!r}"
        raise InvalidInputError(msg, argument="columns")
    return list(columns)


def _rows(spark: SparkSession, reader: Reader, job: Job, schema: StructType) -> DataFrame:
    """Return the rows of the sample, in full."""
    numbers = np.flatnonzero(job.selection.opened).tolist()
    locations = {number: reader.store.locate(reader.paths[number]) for number in numbers}
    plain = [
        number
        for number in numbers
        if can_read(locations[number]) and reader.hidden_rows(job.selection, number) is None
    ]
    parts: list[DataFrame] = []
    if plain:
        # What another writer put into a column of the hidden one's name says nothing of weights.
        hidden = taken_name(reader.snapshot.schema_json) is None and not job.weights.is_full
        files = _files(spark, [locations[number] for number in plain], schema, hidden=hidden)
        parts.append(_sampled(files, job.weights, reader.indexed, hidden=hidden))
    if len(plain) < len(numbers):
        opened = job.selection.opened.copy()
        opened[plain] = False
        rest = replace(job, selection=replace(job.selection, opened=opened), predicate=None)
        parts.append(read_by_tasks(spark, reader, rest, schema))
    if not parts:
        return spark.createDataFrame([], schema)
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def _files(spark: SparkSession, locations: list[str], schema: StructType, *, hidden: bool) -> DataFrame:
    physical = schema
    if hidden:
        physical = StructType([*schema.fields, StructField(WEIGHT_COLUMN, IntegerType(), nullable=True)])
    with list_on_driver(spark, locations):
        files = spark.read.schema(physical).options(**_OPTIONS).parquet(*map(spark_path, locations))
        if len(locations) > 1:
            files.schema  # noqa: B018 -- a Connect server lists the files now, and remembers it
    return files


def _sampled(files: DataFrame, weights: WeightRange, indexed: tuple[str, ...], *, hidden: bool) -> DataFrame:
    """Keep the rows whose hash is in range; the hidden column lets Spark skip pages before."""
    if weights.is_full:
        return files
    high, weight = quoted(WEIGHT_COLUMN), f"hash({', '.join(map(quoted, indexed))})"
    coarse, exact = [], []
    if weights.from_ > MIN_WEIGHT:
        coarse.append(f"{high} >= {weights.from_ >> 16}")
        exact.append(f"{weight} >= {weights.from_}")
    if weights.last < MAX_WEIGHT:
        coarse.append(f"{high} <= {weights.last >> 16}")
        exact.append(f"{weight} <= {weights.last}")
    if not hidden:
        return keep_where(files, " AND ".join(exact))
    condition = f"({high} IS NULL OR ({' AND '.join(coarse)})) AND {' AND '.join(exact)}"
    return keep_where(files, condition).drop(WEIGHT_COLUMN)
