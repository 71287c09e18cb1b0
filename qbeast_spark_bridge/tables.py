"""Tables whose engine is Spark: one class, with the methods and options of `qbeast.Table`."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import polars as pl

from qbeast_core.api.keywords import (
    EstimateKeywords,
    EstimateTableKeywords,
    OpenKeywords,
    ReadKeywords,
    Request,
    ScanKeywords,
    split,
)
from qbeast_core.api.table import Table, open_version
from qbeast_core.errors import InvalidInputError, changing, hints_keywords, hints_methods
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.support.process import Resources
from qbeast_core.table.data.expressions import Where
from qbeast_core.table.data.frames import is_spark_frame
from qbeast_core.table.dml.merge import Merge
from qbeast_core.table.dml.merge_rules import Clauses
from qbeast_core.table.engine.engine import CallEngine
from qbeast_core.table.index.revision import IndexColumns
from qbeast_core.table.maintenance.convert import ConvertResult
from qbeast_core.table.maintenance.convert import convert as convert_table
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.options import SampleBy, WriteOptions, metadata_of
from qbeast_spark_bridge.catalog import located, plan_views
from qbeast_spark_bridge.engine.engine import SparkEngine, frame_of_rows, rows_of_tasks
from qbeast_spark_bridge.engine.merge_source import SparkMergeSource
from qbeast_spark_bridge.predicates.columns import ColumnTranslator
from qbeast_spark_bridge.read import SparkRead, change_tasks, translated, translator_of
from qbeast_spark_bridge.spark_types import comparable_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from qbeast_core.table.estimate.question import Function
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.estimate.sum_task import Expressions


_ResultT = TypeVar("_ResultT")


@hints_methods
class SparkTable(Table):
    """A table at one version with Spark as its engine, opened by `qbeast_spark_bridge.open_table`.

    It is a `qbeast.Table` with the same methods and options. The driver reads the log, plans and commits. These run on
    the executors:

    - `read`, `sql` and `changes`, which return a ``pyspark.sql.DataFrame``, and `count`;
    - `estimate` and `estimates` of `rows`, but for functions of rows;
    - `delete`, `update`, `merge`, `optimize`, `reindex`, `check`, `add_sample_column` and `widen_columns`.

    The driver runs all others: it reads rows for `diff`, for ``read(by=...)`` and for the other methods of `rows`, data
    files for `repair`, and only the log, footers or file names for the rest, such as `restore` and `vacuum`.

    Conditions and new values may be Columns. `read` without `by`, `count` and `explain` take any Column. Elsewhere it
    must have an equivalent in Polars: comparisons of a column with literals or columns of the same type, joined by
    ``&``, ``|`` and ``~``. The source of a merge is a DataFrame, which is read twice and must be the same each time:
    persist rows that are random, unordered with a limit, or expensive to compute. Other rows are sent from the driver,
    which holds all of them in memory. Strings with a collation cannot be keys.

    Names that the session has for the table are planned again after each change of this object. Errors of executors are
    raised here.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> from pyspark.sql import functions as F
    >>> sales = pl.DataFrame({"id": range(1000), "price": 1.0})
    >>> written = qbeast.write_table(sales, "sales", columns=["id"])
    >>> table = bridge.open_table(spark, "sales")
    >>> table.delete(F.col("id") < 10).rows_deleted
    10
    >>> table.update("id < 20", {"price": pl.col("price") * 1.1}).rows_updated
    10
    >>> arrived = spark.range(990, 1010).selectExpr("id", "2.0D AS price")
    >>> result = table.merge(arrived, on="id")
    >>> result.rows_updated, result.rows_inserted, table.read().count()
    (10, 10, 1000)
    """

    def __init__(self, spark: SparkSession, snapshot: Snapshot, resources: Resources | None = None) -> None:
        super().__init__(snapshot, resources)
        self._spark = spark
        self._readers = SparkEngine(spark)

    def rows(self, where: Where | None = None, **keywords: Unpack[ReadKeywords]) -> SparkRead:
        """Return rows of this version, of which nothing is read yet; see `qbeast.Table.rows`.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> few = bridge.open_table(spark, "users").rows("user < 10")
        >>> few.count(), few.read().columns
        (10, ['user'])
        """
        request = Request(where=where, **keywords)
        return SparkRead(self._planner, request, self._resources, spark=self._spark)

    def read(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, where: Where | None = None, **keywords: Unpack[ReadKeywords]
    ) -> DataFrame:
        """Return the rows as a DataFrame: ``rows(where, ...).read()``.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").read("user < 10").count()
        10
        """
        return self.rows(where, **keywords).read()

    def sql(self, query: str) -> DataFrame:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Run a query in the SQL of Spark, see `SparkRead.sql`. The name of the table is ``self``.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").sql("SELECT max(user) AS last FROM self").collect()
        [Row(last=999)]
        """
        return self.rows().sql(query)

    def changes(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, since: int | str | date, until: int | str | date | None = None
    ) -> DataFrame:
        """Return the rows that commits inserted, deleted and updated; see `qbeast.Table.changes`.

        A task reads a file of the change data feed, or a file that a commit added or removed. A commit whose removed
        and added rows are compared is one task. `since` is one less than the ``startingVersion`` of Spark's feed.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"id": [1, 2]}), "two", columns=["id"])
        >>> table = bridge.open_table(spark, "two")
        >>> deleted = table.delete("id = 1")
        >>> table.changes(since=0).select("id", "_change_type").collect()
        [Row(id=1, _change_type='delete')]
        """
        schema, tasks = change_tasks(self._snapshot, since, until)
        return rows_of_tasks(self._spark, tasks, schema)

    def _engine(self) -> AbstractContextManager[CallEngine]:
        return nullcontext(SparkEngine(self._spark))

    def _condition(self, where: Any, argument: str = "where") -> Any:
        return translated(self._snapshot, where, argument)

    def _values(self, values: Any, argument: str) -> Any:
        return translator_of(self._snapshot).values(values, argument)

    @contextmanager
    def _merge(self, source: Any, clauses: Clauses, engine: CallEngine) -> Generator[Merge]:
        del engine  # Spark matches the rows
        if is_spark_frame(source) and getattr(source, "isStreaming", False):
            msg = "source is a stream. Merge its batches, in foreachBatch."
            raise InvalidInputError(msg, argument="source")
        df = frame_of_rows(self._spark, source)
        rows, failed = SparkMergeSource(df), True
        schema = pl.Schema({clauses.source_name: pl.Struct(comparable_columns(df.schema, rows.empty.schema))})
        source_only = ColumnTranslator.of(schema, source_name=clauses.source_name)
        try:
            yield Merge(rows, _translated(clauses, translator_of(self._snapshot), source_only))
            failed = False
        finally:
            rows.clear(self._snapshot.store, failed=failed)

    def _moved(self, result: _ResultT, snapshot: Snapshot | None) -> _ResultT:
        moved = super()._moved(result, snapshot)
        plan_views(self._spark, self.uri)
        return moved


def _translated(clauses: Clauses, table: ColumnTranslator, source: ColumnTranslator) -> Clauses:
    """Return the clauses of a merge without Columns."""
    both = ColumnTranslator({**table.columns, **source.columns})
    return replace(
        clauses,
        matched_if=both.condition(clauses.matched_if, "matched_if"),
        delete_if=both.condition(clauses.delete_if, "delete_if"),
        update=both.values(clauses.update, "update"),
        not_matched_if=source.condition(clauses.not_matched_if, "not_matched_if"),
        insert=source.values(clauses.insert, "insert"),
        not_matched_by_source_if=table.condition(
            clauses.not_matched_by_source_if, "not_matched_by_source_if"
        ),
    )


@hints_keywords
def open_table(
    spark: SparkSession, path: str | os.PathLike[str], **keywords: Unpack[OpenKeywords]
) -> SparkTable:
    """Open a table with Spark as its engine: its methods are those of `qbeast.Table`.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process. A name is one of the catalog, of
        `register_table`, or of Unity Catalog or AWS Glue as in `qbeast.open_table`.
    **keywords
        See `qbeast.OpenKeywords`. Storage options are for this process and the tasks. Configure the access of Spark's
        own reader, which `read` uses, in Spark. Files whose credentials a catalog lends are read by tasks.

    Returns
    -------
    SparkTable
        The table at this version.

    Raises
    ------
    InvalidInputError
        The session has the name, but not the path of its table.
    QbeastError
        Otherwise as `qbeast.open_table`.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> for first in (0, 1000):
    ...     sales = pl.DataFrame({"user": range(first, first + 1000)})
    ...     written = qbeast.write_table(sales, "sales", columns=["user"], mode="append")
    >>> table = bridge.open_table(spark, "sales")
    >>> table.optimize(full=True).rows, table.check().ok
    (2000, True)
    """
    absolute, options = keywords.get("allow_absolute_paths", False), keywords.get("storage_options")
    location = located(spark, path, options, allow_absolute_paths=absolute)
    table = open_version(location, version=keywords.get("version"))
    return SparkTable(spark, table.snapshot, keywords.get("resources"))


@hints_keywords
def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    where: str | pl.Expr | Column | None = None,
    **keywords: Unpack[ScanKeywords],
) -> DataFrame:
    """Read a table as a Spark DataFrame.

    The driver reads the table's log and selects files. Spark reads them with its own Parquet reader, which skips
    pages by their statistics, and filters exactly. The version is fixed by this call, not when the rows are read.

    Parameters
    ----------
    spark, path
        See `open_table`.
    where : str, polars.Expr or Column, optional
        Rows to keep. SQL text and Polars expressions keep the rows of `qbeast.scan_table`, and skip files; a Column
        is applied by Spark only.
    **keywords
        See `qbeast.scan_table`: a sample has the same rows. With `where`, `rows` reads weights in this call.

    Returns
    -------
    DataFrame
        All columns are nullable; rows are in no particular order.

    Raises
    ------
    InvalidInputError
        As for `qbeast.read_table`, or a part of the condition has no equivalent in Spark.
    TableNotFoundError, UnsupportedTableError, VersionNotFoundError
        See `qbeast.open_table`.

    Warns
    -----
    EmptySampleWarning, UnevenSampleWarning, UnindexedSampleWarning
        See `qbeast.Read.lazy`.

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "sales", columns=["user"])
    >>> bridge.read_table(spark, "sales", where="user < 10").count()
    10
    >>> sample = bridge.read_table(spark, "sales", sample=0.1)  # the rows of qbeast.read_table("sales", sample=0.1)
    >>> 50 < sample.count() < 150
    True
    >>> few = bridge.read_table(spark, "sales", rows=200, expand=True)  # with the number of rows that each represents
    >>> 700 < few.selectExpr("sum(sampling_weight)").first()[0] < 1300
    True
    """
    opened, read = split(keywords, OpenKeywords, ReadKeywords)
    return open_table(spark, path, **opened).read(where, **read)


@hints_keywords
def estimate(
    spark: SparkSession,
    path: str | os.PathLike[str],
    aggregates: Expressions | Function,
    *,
    where: str | pl.Expr | Column | None = None,
    **keywords: Unpack[EstimateTableKeywords],
) -> Estimate:
    """Estimate aggregates like `qbeast.estimate`: each round is a job, whose tasks sum up their rows by key.

    Results equal those of `qbeast.estimate`, except for the last digits of floating point. Sums by sampled key are
    sent to the driver: about ten bytes per key and aggregate.

    Parameters
    ----------
    spark, path
        See `open_table`.
    aggregates, where, **keywords
        See `qbeast.estimate`. With `per`, a task reads all rows of a range of keys, which may need a quarter of the
        memory of `resources`. A function of rows runs on the driver.

    Returns
    -------
    Estimate
        See `qbeast.Read.estimate`.

    Raises
    ------
    QbeastError
        As `qbeast.estimate`.

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
    opened, asked, read = split(keywords, OpenKeywords, EstimateKeywords, ReadKeywords)
    return open_table(spark, path, **opened).rows(where, **read).estimate(aggregates, **asked)


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
    in the log. The next `Table.optimize` computes the ranges and quantiles of the indexed columns, and
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
