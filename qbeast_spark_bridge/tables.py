"""Tables whose engine is Spark: one class, with the methods and options of `qbeast.Table`."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeVar

import polars as pl

from qbeast_core.api.table import Table, open_version
from qbeast_core.errors import InvalidInputError, changing, hints_keywords, hints_methods
from qbeast_core.plan.weights import Sample, Share
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.support.process import Resources
from qbeast_core.table.data.expressions import refuse_statement
from qbeast_core.table.data.frames import is_spark_frame
from qbeast_core.table.dml.merge import Merge
from qbeast_core.table.dml.merge_rules import Clauses
from qbeast_core.table.engine.engine import CallEngine
from qbeast_core.table.index.revision import IndexColumns
from qbeast_core.table.maintenance.convert import ConvertResult
from qbeast_core.table.maintenance.convert import convert as convert_table
from qbeast_core.table.read.explain import Plan
from qbeast_core.table.read.scan import known_rows
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.options import SampleBy, WriteOptions, metadata_of
from qbeast_spark_bridge.catalog import located, plan_views
from qbeast_spark_bridge.engine.engine import SparkEngine, frame_of_rows, rows_of_tasks
from qbeast_spark_bridge.engine.merge_source import SparkMergeSource
from qbeast_spark_bridge.predicates.columns import ColumnTranslator
from qbeast_spark_bridge.read import change_tasks, explain_rows, read_rows
from qbeast_spark_bridge.spark_types import comparable_columns, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from qbeast_core.table.estimate.join import Joins
    from qbeast_core.table.estimate.question import Function
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.estimate.sum_task import Expressions


_ResultT = TypeVar("_ResultT")

# The first words of a query, after comments.
_WITH: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*WITH(\s+RECURSIVE)?\s", re.IGNORECASE | re.DOTALL)


@hints_methods
class SparkTable(Table):
    """A table at one version with Spark as its engine, opened by `qbeast_spark_bridge.open_table`.

    It is a `qbeast.Table` with the same methods and options. The driver reads the log, plans and commits. These run on
    the executors:

    - `read`, `sql` and `changes`, which return a ``pyspark.sql.DataFrame``, and `count`;
    - `estimate` and `estimates`, but for functions of rows;
    - `delete`, `update`, `merge`, `optimize`, `reindex`, `check`, `add_sample_column` and `widen_columns`.

    The driver runs all others: it reads rows for `scan`, `head`, `diff`, `iter_batches`, ``to_...`` and
    ``read(by=...)``, data files for `repair`, and only the log, footers or file names for the rest, such as `restore`
    and `vacuum`.

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

    def read(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        where: str | pl.Expr | Column | None = None,
        *,
        columns: Sequence[str] | None = None,
        sample: Sample | None = None,
        sample_by: Sequence[str] | None = None,
        rows: int | None = None,
        by: str | Sequence[str] | None = None,
        seed: int = 0,
        expand: bool = False,
    ) -> DataFrame:
        """Return the rows as a DataFrame. Spark reads the files with its own Parquet reader, when it needs them.

        SQL text and Polars expressions keep the rows of `qbeast.Table.scan`, and skip files. A Column is applied by
        Spark only. All columns are nullable; rows are in no particular order. Options and errors are those of
        `qbeast_spark_bridge.read_table`.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").read("user < 10").count()
        10
        """
        options: dict[str, Any] = {"sample": sample, "sample_by": sample_by, "rows": rows, "seed": seed}
        if by is None:
            return read_rows(self._spark, self._planner, where, columns, **options, expand=expand)
        chosen = super().read(self._condition(where), columns=columns, by=by, **options, expand=expand)
        return frame_of_rows(self._spark, chosen)

    def count(
        self,
        where: str | pl.Expr | Column | None = None,
        *,
        sample: Sample | None = None,
        sample_by: Sequence[str] | None = None,
    ) -> int:
        """Count rows. Without arguments, only the log is read.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").count("user < 10")
        10
        """
        known = known_rows(self._planner) if where is None and sample is None else None
        if known is not None:
            return known
        return self.read(where, sample=sample, sample_by=sample_by).count()

    def sql(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, query: str, *, sample: Sample | None = None, sample_by: Sequence[str] | None = None
    ) -> DataFrame:
        """Run a query in the SQL of Spark. The name of the table is ``self``; others are those of the session.

        Statements such as DELETE raise InvalidInputError, which names the method to call. Other errors are Spark's own.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"user": range(1000)}), "users", columns=["user"])
        >>> bridge.open_table(spark, "users").sql("SELECT max(user) AS last FROM self WHERE user < 10").collect()
        [Row(last=9)]
        """
        refuse_statement(query)
        own = _WITH.match(query)
        rest = f" {query}" if own is None else f", {query[own.end() :]}"
        recursive = (own and own[1]) or ""
        text = f"WITH{recursive} self AS (SELECT * FROM {{qbeast_rows}}){_escaped(rest)}"  # noqa: S608 -- theirs
        return self._spark.sql(text, qbeast_rows=self.read(sample=sample, sample_by=sample_by))

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

    def explain(
        self,
        where: str | pl.Expr | Column | None = None,
        *,
        columns: Sequence[str] | None = None,
        sample: Sample | None = None,
        sample_by: Sequence[str] | None = None,
    ) -> Plan:
        """Plan a `read` without reading rows; see `qbeast.Table.explain`.

        A Column is always one of the `unused_conditions`. Spark finds the pages to read by their statistics, so it may
        read a few more bytes than planned.

        Examples
        --------
        >>> import polars as pl
        >>> import qbeast
        >>> import qbeast_spark_bridge as bridge
        >>> written = qbeast.write_table(pl.DataFrame({"client": range(1000)}), "clients", columns=["client:hash"])
        >>> plan = bridge.open_table(spark, "clients").explain("client < 10")
        >>> list(plan.unused_conditions.values())[0][:24]
        "'client' is indexed by h"
        """
        return explain_rows(self._planner, where, columns, sample, sample_by)

    def _engine(self) -> AbstractContextManager[CallEngine]:
        return nullcontext(SparkEngine(self._spark))

    def _condition(self, where: Any, argument: str = "where") -> Any:
        # The operation raises for values that are not conditions.
        if where is None or isinstance(where, bool | Mapping):
            return where
        return self._translator.condition(where, argument)

    def _values(self, values: Any, argument: str) -> Any:
        return self._translator.values(values, argument)

    @property
    def _translator(self) -> ColumnTranslator:
        """The translator of conditions on the table's rows."""
        snapshot = self._snapshot
        return ColumnTranslator.of(comparable_columns(spark_schema(snapshot.schema_json), snapshot.schema))

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
            yield Merge(rows, _translated(clauses, self._translator, source_only))
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


def _escaped(text: str) -> str:
    """Return a text in which braces do not name a frame."""
    return text.replace("{", "{{").replace("}", "}}")


@hints_keywords
def open_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
    resources: Resources | None = None,
) -> SparkTable:
    """Open a table with Spark as its engine: its methods are those of `qbeast.Table`.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder, address or name of the table, the same for executors and this process. A name is one of the catalog, or
        of `register_table`.
    version, storage_options, allow_absolute_paths
        See `qbeast.open_table`. Storage options are for this process and the tasks. Configure the access of Spark's own
        reader, which `read` uses, in Spark.
    resources : Resources, optional
        Memory of the driver, for the sums of an estimate. Spark sets the memory of executors.

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
    location = located(spark, path, storage_options, allow_absolute_paths=allow_absolute_paths)
    return SparkTable(spark, open_version(location, version, None).snapshot, resources)


@hints_keywords
def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    where: str | pl.Expr | Column | None = None,
    columns: Sequence[str] | None = None,
    sample: Sample | None = None,
    sample_by: Sequence[str] | None = None,
    version: int | str | date | None = None,
    rows: int | None = None,
    by: str | Sequence[str] | None = None,
    seed: int = 0,
    expand: bool = False,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> DataFrame:
    """Read a table as a Spark DataFrame.

    The driver reads the table's log and selects files. Spark reads them with its own Parquet reader, which skips
    pages by their statistics, and filters exactly. The version is fixed by this call, not when the rows are read.

    Parameters
    ----------
    spark, path, version, storage_options, allow_absolute_paths
        See `open_table`.
    where : str, polars.Expr or Column, optional
        Rows to keep. SQL text and Polars expressions keep the rows of `qbeast.scan_table`, and skip files; a Column
        is applied by Spark only.
    columns, sample, sample_by, rows, by, seed, expand
        See `qbeast.read_table`: a sample has the same rows. With `where`, `rows` reads weights in this call.

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
    EmptySampleWarning
        If the sample has no rows although many were expected.
    UnindexedSampleWarning
        If the sample reads all files.

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
    table = open_table(
        spark,
        path,
        version=version,
        storage_options=storage_options,
        allow_absolute_paths=allow_absolute_paths,
    )
    return table.read(
        where, columns=columns, sample=sample, sample_by=sample_by, rows=rows, by=by, seed=seed, expand=expand
    )


@hints_keywords
def estimate(
    spark: SparkSession,
    path: str | os.PathLike[str],
    aggregates: Expressions | Function,
    *,
    per: Expressions | None = None,
    by: Expressions | None = None,
    where: str | pl.Expr | Column | None = None,
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
    replicates: int = 64,
    columns: Sequence[str] | None = None,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
    resources: Resources | None = None,
) -> Estimate:
    """Estimate aggregates like `qbeast.estimate`: each round is a job, whose tasks sum up their rows by key.

    Results equal those of `qbeast.estimate`, except for the last digits of floating point. Sums by sampled key are
    sent to the driver: about ten bytes per key and aggregate.

    Parameters
    ----------
    spark, path, version, storage_options, allow_absolute_paths, resources
        See `open_table`.
    aggregates, per, by, where, join, error, absolute, confidence, sample, sample_by, simultaneous, max_fraction, \
    max_bytes, min_group_rows, replicates, columns
        See `qbeast.Table.estimate`. With `per`, a task reads all rows of a range of keys, which may need a quarter of
        the memory of `resources`. A function of rows runs on the driver.

    Returns
    -------
    Estimate
        See `qbeast.Table.estimate`.

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
    table = open_table(
        spark,
        path,
        version=version,
        storage_options=storage_options,
        allow_absolute_paths=allow_absolute_paths,
        resources=resources,
    )
    return table.estimate(
        aggregates,
        per=per,
        by=by,
        where=where,
        join=join,
        error=error,
        absolute=absolute,
        confidence=confidence,
        sample=sample,
        sample_by=sample_by,
        simultaneous=simultaneous,
        max_fraction=max_fraction,
        max_bytes=max_bytes,
        min_group_rows=min_group_rows,
        replicates=replicates,
        columns=columns,
    )


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
