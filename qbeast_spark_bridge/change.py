"""Delete, update and merge rows with Spark: planned and committed here, read and written again by its workers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.opened import open_reader
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.table.dml.change import Change, ChangeOptions, run_change
from qbeast_core.table.dml.delete import Delete
from qbeast_core.table.dml.merge.clauses import Clauses, WhenMatched, WhenNew, WhenNotMatchedBySource
from qbeast_core.table.dml.merge.merge import Merge
from qbeast_core.table.dml.plan import ChangeResult
from qbeast_core.table.dml.update import Update
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.write.options import metadata_of
from qbeast_spark_bridge.engine.engine import SparkEngine, persisted
from qbeast_spark_bridge.engine.match import SparkMergeSource
from qbeast_spark_bridge.predicates.given import Given
from qbeast_spark_bridge.schema import collated_columns, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


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

    The driver reads the log, chooses files by the index and commits. Tasks look into the files that can hold such a
    row; those that hold no other rows are dropped without being read whole, and the rows that stay of the others
    are written again, as `Table.delete` does it.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table; executors and this process have to reach it under that name.
    where : str, Column, polars.Expr or True
        Rows to delete: those for which it is true. Text and Polars expressions are what `Table.delete` takes. A Column
        needs an equal in Polars: tests of a column by literals or other columns of its type, joined by ``&``, ``|``
        and ``~``. True: all rows.
    dry_run, txn, commit_metadata, progress
        See `Table.delete`.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them; sent along with the tasks.

    Returns
    -------
    ChangeResult
        As of `Table.delete`.

    Raises
    ------
    InvalidInputError
        The condition names a column that is not there, or a Column is one of a DataFrame or has no equal in Polars.
    QbeastError
        Else as `qbeast.open_table` and `Table.delete`; what executors raised is raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "sales", columns=["id"])
    >>> bridge.delete(spark, "sales", "id BETWEEN 10 AND 19").rows_deleted
    10
    """
    reader = open_reader(path, None, storage_options)
    change = Delete(_rows(reader, where))
    options = ChangeOptions(
        dry_run=dry_run, txn=txn, commit_metadata=metadata_of(commit_metadata), progress=callback_of(progress)
    )
    return _run(spark, reader, change, options)


@shows_progress("updating")
def update(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str | Column | pl.Expr | Literal[True],
    set: Mapping[str, Any],  # noqa: A002 -- what SQL calls it
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
        New values by column, of the row as it was: SQL text or a Polars expression as `Table.update` takes them; a
        Column has to be a literal or a column.
    dry_run, txn, commit_metadata, progress, storage_options
        As for `delete`.

    Returns
    -------
    ChangeResult
        As of `Table.update`.

    Raises
    ------
    InvalidInputError
        As for `delete`, of the condition and of values.
    SchemaMismatchError
        A value of another type than the column's, or a null where there may be none.
    QbeastError
        Else as `qbeast.open_table` and `Table.update`; what executors raised is raised here.

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
    reader = open_reader(path, None, storage_options)
    values: Any = _given(reader).values(set, "set")
    change = Update(_rows(reader, where), values)
    options = ChangeOptions(
        dry_run=dry_run, txn=txn, commit_metadata=metadata_of(commit_metadata), progress=callback_of(progress)
    )
    return _run(spark, reader, change, options)


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

    The driver chooses files by the keys of the source and holds lists of files. Of the files that can hold a match,
    tasks read the keys; source and keys are joined by the hash of the keys, neither is sent to every executor. Files
    that hold no row to change stay as they are; the others are written again, and rows of the source without a
    match are written with them.

    Parameters
    ----------
    source : DataFrame
        Rows to merge, of a classic session or of Spark Connect. They are read twice, and have to be the same.
    path : str or path-like
        Folder or address of the table; executors and this process have to reach it under that name.
    on, when_matched, when_not_matched, when_not_matched_by_source, source_name, schema_mode
        See `Table.merge`. Strings with a collation cannot be matched by.
    matched_if, delete_if, not_matched_if, not_matched_by_source_if : str, Column or polars.Expr, optional
        Conditions, see `Table.merge`; of the forms that `delete` takes. ``source.price`` and ``col("source.price")``
        are the source's.
    update, insert : mapping of str to polars.Expr, str, Column or a plain value, optional
        See `Table.merge`; of the forms that `update` takes.
    persist : bool, default False
        Hold the rows (``DataFrame.persist``) until they are read for the last time: for rows that are random, unordered
        with a limit, or dear to compute.
    dry_run, txn, commit_metadata, progress, storage_options
        As for `delete`. In ``foreachBatch`` the number of the batch makes a `txn`: each is merged exactly once.

    Returns
    -------
    ChangeResult
        As of `Table.merge`.

    Raises
    ------
    InvalidInputError
        Several rows of the source would change the same row, or what `Table.merge` and `delete` refuse.
    InputChangedError
        The rows were not the same when they were read again.
    QbeastError
        Else as `qbeast.open_table` and `Table.merge`; what executors raised is raised here.

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
        msg = "source is a stream; nothing was changed. Merge its batches, in foreachBatch."
        raise InvalidInputError(msg, argument="source")
    reader = open_reader(path, None, storage_options)
    options = ChangeOptions(
        dry_run=dry_run, txn=txn, commit_metadata=metadata_of(commit_metadata), progress=callback_of(progress)
    )
    with persisted(source, wanted=persist) as df:
        rows = SparkMergeSource(df)
        alone = pl.Schema({source_name: pl.Struct(_plain(df.schema, rows.empty.schema))})
        new = Given.of(alone, source_name=source_name)
        table = _given(reader)
        both = Given({**table.columns, **new.columns})
        clauses = Clauses(
            on=on,
            when_matched=when_matched,
            matched_if=both.condition(matched_if, "matched_if"),
            delete_if=both.condition(delete_if, "delete_if"),
            update=both.values(update, "update"),
            when_not_matched=when_not_matched,
            not_matched_if=new.condition(not_matched_if, "not_matched_if"),
            insert=new.values(insert, "insert"),
            when_not_matched_by_source=when_not_matched_by_source,
            not_matched_by_source_if=table.condition(not_matched_by_source_if, "not_matched_by_source_if"),
            source_name=source_name,
            schema_mode=schema_mode,
        )
        failed = True
        try:
            result = _run(df.sparkSession, reader, Merge(rows, clauses), options)
            failed = False
        finally:
            rows.clear(reader.store, failed=failed)
        return result


def _rows(reader: Reader, where: Any) -> Any:
    """Return the rows to change in Polars; what is neither, `Delete` and `Update` refuse."""
    return (
        where
        if where is None or isinstance(where, bool | Mapping)
        else _given(reader).condition(where, "where")
    )


def _given(reader: Reader) -> Given:
    """Return what understands conditions on rows of the table."""
    return Given.of(_plain(spark_schema(reader.snapshot.schema_json), reader.snapshot.schema))


def _plain(schema: StructType, columns: pl.Schema) -> pl.Schema:
    """Leave out strings with a collation, which are Spark's to compare."""
    collated = collated_columns(schema)
    return pl.Schema({name: dtype for name, dtype in columns.items() if name not in collated})


def _run(spark: SparkSession, reader: Reader, change: Change, options: ChangeOptions) -> ChangeResult:
    result, _ = run_change(reader, change, options, engine=SparkEngine(spark))
    return replace(result, engine="spark")
