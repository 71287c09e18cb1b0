"""The names that users of qbeast-spark type, over tables opened by `open_table`."""
# ruff: noqa: N802, N803 -- the names of qbeast-spark

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 -- as everybody names it
from pyspark.sql.types import NumericType, StringType

from qbeast_core.errors import (
    InvalidInputError,
    check_whole_number,
    hints_keywords,
    invalid_argument,
    unknown_columns,
)
from qbeast_core.io.location import Location
from qbeast_core.table.maintenance.convert import ConvertResult
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_spark_bridge.catalog import find_view, location_of_name, parts_of, quoted_parts, view_of
from qbeast_spark_bridge.session import register
from qbeast_spark_bridge.tables import SparkTable, convert, open_table

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from qbeast_core.spec.revision import Revision
    from qbeast_core.table.data.frames import SparkFrame
    from qbeast_core.table.dml.plan import ChangeResult
    from qbeast_core.table.engine.sources import RowsLike
    from qbeast_core.table.inspect.metrics import Metrics
    from qbeast_core.table.rewrite.optimize import OptimizeResult

_TEXTS: Final = 100_000  # sampled values of a text column


class QbeastTable:
    """A table by the names of qbeast-spark's `QbeastTable`; every call opens the newest version.

    ==========================  =============================
    qbeast-spark                `bridge.open_table(...)`
    ==========================  =============================
    ``forPath``, ``forName``    `open_table`
    ``toDF``                    `read`
    ``indexedColumns``          `indexed_columns`
    ``cubeSize``                `cube_size`
    ``allRevisions``            `revisions`
    ``getIndexMetrics``         `metrics`
    ``optimize``, ``history``,  the same
    ``delete``, ``update``,
    ``merge``
    ==========================  =============================

    Examples
    --------
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> rows = pl.DataFrame({"user": range(1000), "price": [n % 97 / 7 for n in range(1000)]})
    >>> written = qbeast.write_table(rows, "named", columns=["user", "price"], cube_size=100)
    >>> table = bridge.QbeastTable.forPath(spark, "named")
    >>> table.indexedColumns(), table.cubeSize(), table.latestRevisionID()
    (['user', 'price'], 100, 1)
    >>> table.optimize(fraction=0.5).committed
    False
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark, self._path, self._storage_options = spark, path, storage_options

    @staticmethod
    def forPath(
        spark: SparkSession,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
    ) -> QbeastTable:
        """Return the table at a path; see `open_table`."""
        found = QbeastTable(spark, path, storage_options)
        found.table()
        return found

    @staticmethod
    def forName(spark: SparkSession, name: str) -> QbeastTable:
        """Return a table of the catalog, or of a name that `register_table` gave; see `open_table`."""
        parts_of(name)  # raises for a path
        return QbeastTable.forPath(spark, name)

    def table(self) -> SparkTable:
        """Return the newest version, with all methods of `Table`."""
        return open_table(self._spark, self._path, storage_options=self._storage_options)

    def toDF(self, **options: Any) -> DataFrame:
        """Return the rows; options as in `read`, such as ``sample=0.1``."""
        return self.table().read(**options)

    def optimize(
        self,
        revisionID: int | None = None,
        fraction: float | None = None,
        files: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> OptimizeResult:
        """Optimize the table; `options` may have ``userMetadata``, which the history keeps."""
        return self.table().optimize(
            revision=revisionID, fraction=fraction, files=files, commit_metadata=options
        )

    def indexedColumns(self, revisionID: int | None = None) -> list[str]:
        """Return the indexed columns of a revision, by default of the newest."""
        return list(self._revision(revisionID).columns)

    def cubeSize(self, revisionID: int | None = None) -> int:
        """Return the target number of rows of a cube of a revision, by default of the newest."""
        return self._revision(revisionID).desired_cube_size

    def revisionsIDs(self) -> list[int]:
        """Return the numbers of all revisions, ascending; 0 has the files without index."""
        return [revision.revision_id for revision in self.allRevisions()]

    def allRevisions(self) -> list[Revision]:
        """Return all revisions, ascending by number."""
        return list(self.table().revisions)

    def latestRevisionID(self) -> int:
        """Return the number of the newest revision."""
        return self.revisionsIDs()[-1]

    def getIndexMetrics(self, revisionID: int | None = None) -> Metrics:
        """Return the metrics of the index; see `Table.metrics`."""
        return self.table().metrics(revision=revisionID)

    def history(self, limit: int | None = None) -> pl.DataFrame:
        """Return the versions, newest first; see `Table.history`."""
        return self.table().history(limit)

    def delete(self, condition: Any = True) -> ChangeResult:  # noqa: FBT002 -- as in DeltaTable
        """Delete rows, by default all; see `Table.delete`."""
        return self.table().delete(condition)

    def update(self, condition: Any, set: Mapping[str, Any]) -> ChangeResult:  # noqa: A002 -- as in DeltaTable
        """Update rows; see `Table.update`."""
        return self.table().update(condition, set)

    def merge(self, source: RowsLike | SparkFrame, on: str | Sequence[str], **clauses: Any) -> ChangeResult:
        """Merge rows by keys; see `Table.merge`."""
        return self.table().merge(source, on, **clauses)

    def _revision(self, number: int | None) -> Revision:
        revisions = {revision.revision_id: revision for revision in self.allRevisions()}
        if number is not None and number not in revisions:
            problem = f"must be one of the table's, {list(revisions)}"
            invalid_argument("revisionID", problem, value=number, known=list(revisions))
        return revisions[max(revisions) if number is None else number]


@hints_keywords
def ConvertToQbeastCommand(
    spark: SparkSession, identifier: str, columnsToIndex: Sequence[str], cubeSize: int | None = None
) -> ConvertResult:
    """Convert a Delta table or a folder of Parquet files; see `qbeast_spark_bridge.convert`.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    identifier : str
        A path, also as Spark writes it for files: the format, a dot, and the path in backticks.
    columnsToIndex : sequence of str
        Columns to index, ``name`` or ``name:kind``.
    cubeSize : int, optional
        Target number of rows of a cube.

    Returns
    -------
    ConvertResult
        See `qbeast.convert_table`.

    Raises
    ------
    QbeastError
        As `qbeast_spark_bridge.convert`.

    Examples
    --------
    >>> import os
    >>> import polars as pl
    >>> import qbeast_spark_bridge as bridge
    >>> os.mkdir("files")
    >>> pl.DataFrame({"id": range(1000)}).write_parquet("files/part.parquet")
    >>> bridge.ConvertToQbeastCommand(spark, "parquet.`files`", ["id"]).committed
    True
    """
    path = identifier
    for kind in ("parquet.", "delta."):
        path = path.removeprefix(f"{kind}`")
    return convert(spark, path.removesuffix("`"), list(columnsToIndex), cube_size=cubeSize)


@hints_keywords
def computeQuantilesForColumn(df: DataFrame, columnName: str, numberOfQuantiles: int = 50) -> str:
    """Return quantiles of a column as JSON, for the option ``columnStats``.

    Quantiles are computed when a table is written, so they are needed only if the rows of a first write are unlike
    those that follow: ``.option("columnStats", '{"brand_quantiles": %s}')``.

    Parameters
    ----------
    df : DataFrame
        Rows of a classic session or of Spark Connect.
    columnName : str
        A column of numbers or strings.
    numberOfQuantiles : int, default 50
        Number of values, at least 2.

    Returns
    -------
    str
        A JSON list of different values, ascending.

    Raises
    ------
    InvalidInputError
        If the column is unknown or not of numbers or strings, or if fewer than two quantiles are requested.

    Examples
    --------
    >>> import qbeast_spark_bridge as bridge
    >>> bridge.computeQuantilesForColumn(spark.range(101), "id", 5)
    '[0.0, 25.0, 50.0, 75.0, 100.0]'
    """
    if columnName not in df.columns:
        unknown_columns("columnName", [columnName], df.columns)
    check_whole_number("numberOfQuantiles", numberOfQuantiles, 2)
    dtype, column = df.schema[columnName].dataType, df.select(columnName).dropna()
    places = np.linspace(0.0, 1.0, numberOfQuantiles).tolist()
    if isinstance(dtype, NumericType):
        return json.dumps(sorted(set(column.approxQuantile(columnName, places, 0.001))))
    if not isinstance(dtype, StringType):
        msg = f"quantiles are of numbers and strings, and {columnName!r} is {dtype.simpleString()}"
        raise InvalidInputError(msg, argument="columnName", value=columnName)
    rows = column.orderBy(F.rand(0)).limit(_TEXTS).collect()
    values = sorted(row[0] for row in rows)
    if not values:
        return "[]"
    chosen = {values[round(place * (len(values) - 1))] for place in places}
    return json.dumps(sorted(chosen), ensure_ascii=False)


@hints_keywords
def register_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    name: str,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> str:
    """Give a table a name in SQL.

    Where Spark has Delta, the name is one of its catalog, ``CREATE TABLE ... USING delta LOCATION``: it stays, every
    reader with this catalog sees it, and Spark reads the files without Python. Elsewhere it is a temporary view of this
    session over ``format("qbeast")``, which takes inserts. Spark plans such a view once. If the table has a newer
    version, a query of the name raises an error, and never returns old rows unless the name is cached; `refresh` plans
    the name again. `write_table` and changes of tables opened by `open_table` do so for the names of their session.
    A table whose credentials a catalog lends (``uc://catalog.schema.table``) is always such a view; queries of it need
    `refresh` once these have expired. Either way no file is written.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str or path-like
        Folder or address of the table, or its name as in `qbeast.open_table`.
    name : str
        Such as ``"db.sales"``; a temporary view has no database, so its name is ``"sales"`` then.
    storage_options : mapping of str to str, optional
        Options of the object store, for a temporary view. A name of the catalog uses Spark's own.

    Returns
    -------
    str
        The name to use in SQL.

    Raises
    ------
    TableNotFoundError
        If no table is at the path.
    InvalidInputError
        If the catalog has another table of this name.

    Examples
    --------
    >>> import os
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"id": range(100)}), "some", columns=["id"])
    >>> name = bridge.register_table(spark, os.path.abspath("some"), "some_ids")
    >>> spark.sql(f"SELECT count(*) FROM {name} WHERE id < 10").collect()
    [Row(count(1)=10)]
    """
    location = Location.of(path, storage_options)
    load_snapshot(location)  # raises if the path has no table
    quoted_name = quoted_parts(name)
    if _has_delta(spark) and not location.is_lent:  # Spark has no credentials of the other catalog
        spark.sql(f"CREATE TABLE IF NOT EXISTS {quoted_name} USING delta LOCATION {_literal(location.uri)}")
        found = location_of_name(spark, name)
        if found is None or Location.of(found, storage_options).uri != location.uri:
            msg = (
                f"the catalog has another table of the name {name!r}, at {found}. Choose another name, or remove that "
                f"one first: DROP TABLE {quoted_name}. Nothing was changed."
            )
            raise InvalidInputError(msg, argument="name", value=name)
        return quoted_name
    register(spark)
    return view_of(name, location).plan(spark)


@hints_keywords
def refresh(spark: SparkSession, name: str) -> str:
    """Make a name of `register_table` show the newest version of its table.

    It is needed after changes by other programs, by other sessions, and by ``INSERT INTO`` the name, and when
    credentials that a catalog lent for it have expired: until then a query of the name raises an error. Frames and
    stored views that were made from the name before have to be made again. A name that is cached (``CACHE TABLE``) is
    cached again at its next use. Names of a catalog with Delta always show the newest version.

    Parameters
    ----------
    spark : SparkSession
        The session of `register_table`.
    name : str
        As for `register_table`.

    Returns
    -------
    str
        The name to use in SQL.

    Raises
    ------
    InvalidInputError
        If the name is not one of `register_table` in this process, or its view was replaced or dropped.
    TableNotFoundError
        If the table does not exist any more.

    Examples
    --------
    >>> import os
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"id": range(100)}), "more", columns=["id"])
    >>> name = bridge.register_table(spark, os.path.abspath("more"), "more_ids")
    >>> inserted = spark.sql("INSERT INTO more_ids SELECT id + 100 FROM range(10)")
    >>> name = bridge.refresh(spark, "more_ids")
    >>> spark.sql("SELECT count(*) FROM more_ids").collect()
    [Row(count(1)=110)]
    """
    view = find_view(spark, parts_of(name))
    if view is not None:
        load_snapshot(view.location)  # raises if the table was removed
        return view.plan(spark)
    if location_of_name(spark, name) is None:
        msg = f"the session has no name {name!r}. Use qbeast_spark_bridge.register_table(spark, path, {name!r})."
        raise InvalidInputError(msg, argument="name", value=name)
    return quoted_parts(name)


def _has_delta(spark: SparkSession) -> bool:
    """Return whether the session has Delta's extension."""
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    return "io.delta.sql.DeltaSparkSessionExtension" in extensions


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
