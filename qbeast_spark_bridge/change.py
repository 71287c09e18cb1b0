"""Delete, update and merge rows with Spark: the driver plans and commits, executors read and rewrite rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from qbeast_core.errors import InvalidInputError, changing
from qbeast_core.progress import ProgressLike, shows_progress
from qbeast_core.table.dml.change import Change, ChangeOptions, change_options, run_change
from qbeast_core.table.dml.change_plan import ChangeResult
from qbeast_core.table.dml.matched import Delete, Update
from qbeast_core.table.dml.merge.clauses import (
    Clauses,
    Duplicates,
    WhenMatched,
    WhenNew,
    WhenNotMatchedBySource,
)
from qbeast_core.table.dml.merge.merge import Merge
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_spark_bridge.catalog import table_to_change
from qbeast_spark_bridge.engine.engine import SparkEngine, persisted
from qbeast_spark_bridge.engine.merge_source import SparkMergeSource
from qbeast_spark_bridge.predicates.columns import ColumnTranslator
from qbeast_spark_bridge.spark_schema import comparable_columns, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@changing
@shows_progress("deleting")
def delete(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str | Column | pl.Expr | Literal[True],
    *,
    dry_run: bool = False,
    txn: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
) -> ChangeResult:
    """Delete rows like `Table.delete`: executors count, read and rewrite rows.

    The driver reads the log, selects files by the index and commits. Tasks read the files that may have matching
    rows. Files with only matching rows are removed; the other rows of the remaining files are rewritten, as
    `Table.delete` does it.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process.
    where : str, Column, polars.Expr or True
        Rows for which it is true are deleted; True deletes all rows. For text and Polars expressions see
        `Table.delete`. A Column must have an equivalent in Polars: comparisons of a column with literals or columns
        of the same type, joined by ``&``, ``|`` and ``~``.
    dry_run, txn, commit_metadata, progress
        See `Table.delete`.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`; sent to the tasks.

    Returns
    -------
    ChangeResult
        See `Table.delete`.

    Raises
    ------
    InvalidInputError
        The condition uses an unknown column, or a Column belongs to a DataFrame or has no equivalent in Polars.
    QbeastError
        Otherwise as `qbeast.open_table` and `Table.delete`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "sales", columns=["id"])
    >>> bridge.delete(spark, "sales", "id BETWEEN 10 AND 19").rows_deleted
    10
    """
    options = change_options(dry_run, txn, commit_metadata, progress)
    with table_to_change(spark, path, storage_options) as snapshot:
        return _run(spark, snapshot, Delete(_rows(snapshot, where)), options)


@changing
@shows_progress("updating")
def update(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str | Column | pl.Expr | Literal[True],
    set: Mapping[str, Any],  # noqa: A002 -- the name in SQL
    *,
    dry_run: bool = False,
    txn: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
) -> ChangeResult:
    """Update rows like `Table.update`: executors count, read, change and rewrite rows.

    Parameters
    ----------
    spark, path, where
        As for `delete`.
    set : mapping of str to polars.Expr, str, Column or a plain value
        New values by column, computed from the old row: SQL text or a Polars expression, see `Table.update`. A Column
        must be a literal or a column.
    dry_run, txn, commit_metadata, progress, storage_options
        As for `delete`.

    Returns
    -------
    ChangeResult
        See `Table.update`.

    Raises
    ------
    InvalidInputError
        As for `delete`, for the condition and the values.
    SchemaMismatchError
        The type of a value differs from the column's, or a value is null in a column without nulls.
    QbeastError
        Otherwise as `qbeast.open_table` and `Table.update`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> sales = pl.DataFrame({"id": range(1000), "price": 1.0})
    >>> written = qbeast.write_table(sales, "sales", columns=["id"])
    >>> bridge.update(spark, "sales", "id < 10", {"price": pl.col("price") * 1.1}).rows_updated
    10
    """
    options = change_options(dry_run, txn, commit_metadata, progress)
    with table_to_change(spark, path, storage_options) as snapshot:
        values: Any = _translator(snapshot).values(set, "set")
        return _run(spark, snapshot, Update(_rows(snapshot, where), values), options)


@changing
@shows_progress("merging")
def merge(
    source: DataFrame,
    path: str | os.PathLike[str],
    on: str | Sequence[str],
    *,
    when_matched: WhenMatched = "update",
    matched_if: str | Column | pl.Expr | None = None,
    delete_if: str | Column | pl.Expr | None = None,
    update: Mapping[str, Any] | None = None,
    when_not_matched: WhenNew = "insert",
    not_matched_if: str | Column | pl.Expr | None = None,
    insert: Mapping[str, Any] | None = None,
    duplicates: Duplicates = "error",
    when_not_matched_by_source: WhenNotMatchedBySource = "ignore",
    not_matched_by_source_if: str | Column | pl.Expr | None = None,
    source_name: str = "source",
    schema_mode: Literal["merge"] | None = None,
    persist: bool = False,
    dry_run: bool = False,
    txn: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, str] | None = None,
) -> ChangeResult:
    """Merge rows like `Table.merge`: executors match rows of the source with rows of the table.

    The driver selects files by the keys of the source. Tasks read the keys of the files that may match; source and
    keys are joined by the hash of the keys, and neither is sent to every executor. Files without rows to change stay
    unchanged. The others are rewritten, together with the rows of the source that have no match.

    Parameters
    ----------
    source : DataFrame
        Rows to merge, of a classic session or of Spark Connect. They are read twice, and must be the same each time.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process.
    on, when_matched, when_not_matched, duplicates, when_not_matched_by_source, source_name, schema_mode
        See `Table.merge`. Strings with a collation cannot be keys. Spark's ``MERGE`` inserts rows with equal keys; this
        function does so with ``duplicates="insert"``.
    matched_if, delete_if, not_matched_if, not_matched_by_source_if : str, Column or polars.Expr, optional
        Conditions as in `Table.merge`, in the forms of `delete`. ``source.price`` and ``col("source.price")`` are
        columns of the source.
    update, insert : mapping of str to polars.Expr, str, Column or a plain value, optional
        See `Table.merge`; in the forms of `update`.
    persist : bool, default False
        Persist the rows (``DataFrame.persist``) until the last read: for rows that are random, unordered with a limit,
        or expensive to compute.
    dry_run, txn, commit_metadata, progress, storage_options
        As for `delete`. In ``foreachBatch``, use the batch number as `txn`: each batch is then merged exactly once.

    Returns
    -------
    ChangeResult
        See `Table.merge`.

    Raises
    ------
    InvalidInputError
        Several rows of the source would change the same row, or be inserted with equal keys, or an argument is invalid
        for `Table.merge` or `delete`.
    InputChangedError
        The rows of the source changed between two reads.
    QbeastError
        Otherwise as `qbeast.open_table` and `Table.merge`; errors of executors are raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> sales = pl.DataFrame({"id": range(1000), "price": 1.0})
    >>> written = qbeast.write_table(sales, "sales", columns=["id"])
    >>> arrived = spark.range(990, 1010).selectExpr("id", "2.0D AS price")
    >>> result = bridge.merge(arrived, "sales", on="id")
    >>> result.rows_updated, result.rows_inserted
    (10, 10)
    """
    if source.isStreaming:
        msg = "source is a stream. Merge its batches, in foreachBatch."
        raise InvalidInputError(msg, argument="source")
    options = change_options(dry_run, txn, commit_metadata, progress)
    with (
        table_to_change(source.sparkSession, path, storage_options) as snapshot,
        persisted(source, enabled=persist) as df,
    ):
        rows = SparkMergeSource(df)
        schema = pl.Schema({source_name: pl.Struct(comparable_columns(df.schema, rows.empty.schema))})
        new = ColumnTranslator.of(schema, source_name=source_name)
        table = _translator(snapshot)
        both = ColumnTranslator({**table.columns, **new.columns})
        clauses = Clauses(
            on=on,
            when_matched=when_matched,
            matched_if=both.condition(matched_if, "matched_if"),
            delete_if=both.condition(delete_if, "delete_if"),
            update=both.values(update, "update"),
            when_not_matched=when_not_matched,
            not_matched_if=new.condition(not_matched_if, "not_matched_if"),
            insert=new.values(insert, "insert"),
            duplicates=duplicates,
            when_not_matched_by_source=when_not_matched_by_source,
            not_matched_by_source_if=table.condition(not_matched_by_source_if, "not_matched_by_source_if"),
            source_name=source_name,
            schema_mode=schema_mode,
        )
        failed = True
        try:
            result = _run(df.sparkSession, snapshot, Merge(rows, clauses), options)
            failed = False
        finally:
            rows.clear(snapshot.store, failed=failed)
        return result


def _rows(snapshot: Snapshot, where: Any) -> Any:
    """Return the condition in Polars; `Delete` and `Update` raise for invalid values."""
    if where is None or isinstance(where, bool | Mapping):
        return where
    return _translator(snapshot).condition(where, "where")


def _translator(snapshot: Snapshot) -> ColumnTranslator:
    """Return the translator of conditions on the table's rows."""
    return ColumnTranslator.of(comparable_columns(spark_schema(snapshot.schema_json), snapshot.schema))


def _run(spark: SparkSession, snapshot: Snapshot, change: Change, options: ChangeOptions) -> ChangeResult:
    result, _ = run_change(snapshot, change, options, engine=SparkEngine(spark))
    return replace(result, engine="spark")
