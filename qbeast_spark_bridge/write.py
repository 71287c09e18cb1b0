"""Write a Spark DataFrame to a table: executors read the rows twice, the driver commits once."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Unpack

from qbeast_core.api import functions
from qbeast_core.api.keywords import WriteKeywords
from qbeast_core.errors import InvalidInputError, StorageError, changing, invalid_argument
from qbeast_core.io.location import Location
from qbeast_core.table.data.files import delete_files
from qbeast_core.table.data.frames import is_spark_frame
from qbeast_core.table.dml.replace_where import replace_where
from qbeast_core.table.dml.tasks import Fit, Outside
from qbeast_core.table.engine.engine import Source
from qbeast_core.table.engine.row_change import AddedFiles, AddedRows, StoredPart, stored_by
from qbeast_core.table.index.revision import IndexColumns
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.write import WriteResult, write_rows
from qbeast_spark_bridge.catalog import located, plan_views
from qbeast_spark_bridge.engine.engine import SparkEngine, SparkSource, persisted
from qbeast_spark_bridge.engine.workers import unpickled, worker_errors
from qbeast_spark_bridge.predicates.columns import ColumnTranslator
from qbeast_spark_bridge.spark_types import comparable_columns, empty_frame, numbered
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.tasks import (
    FILES,
    decimals_as_longs,
    keep_partition,
    short_decimals,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SparkKeeper:
    """See `qbeast_core.table.dml.replace_where.RowKeeper`."""

    location: Location
    operation: str = field(default_factory=lambda: str(uuid.uuid4()), init=False)

    def kept(self, source: Source, fit: Fit) -> tuple[AddedRows, Outside]:
        """Store the rows; `clear` deletes them."""
        parts, outside = self._run(source, fit, self.operation)
        return AddedFiles(self.location, parts), outside

    def checked(self, source: Source, fit: Fit) -> tuple[Source, Outside]:
        """Check the rows without storing them."""
        _, outside = self._run(source, fit, None)
        return source, outside

    def clear(self) -> None:
        """Delete the stored rows, as far as the store allows."""
        with suppress(StorageError):
            delete_files(self.location.store, stored_by(self.location.store, self.operation))

    def _run(self, source: Source, fit: Fit, operation: str | None) -> tuple[tuple[StoredPart, ...], Outside]:
        if not isinstance(source, SparkSource):
            raise TypeError(source)
        df: DataFrame = source.df
        with worker_errors(df.sparkSession):
            decimals = short_decimals(df.schema)
            argument = fit, self.location, operation, df.columns, decimals
            call = WorkerCall.of(keep_partition, argument)
            answers: list[Any] = unpickled(decimals_as_longs(numbered(df), decimals).mapInArrow(call, FILES))
        parts = tuple(part for stored, _ in answers for part in stored)
        return parts, reduce(add, (outside for _, outside in answers), Outside())


@changing
def write_table(
    df: DataFrame,
    path: str | os.PathLike[str],
    columns: IndexColumns | None = None,
    *,
    persist: bool = False,
    **keywords: Unpack[WriteKeywords],
) -> WriteResult:
    """Write the rows of a Spark DataFrame to a table, on the executors, in one atomic commit.

    The rows are read twice: first the indexed columns, to build the tree from a sample; then all columns, to
    write each row to its file. Executors write the files, and the calling process commits them. Readers see
    all rows or none. Failed, repeated and speculative tasks leave at worst files that are in no version,
    which a vacuum removes. The layout and the samples are those of `qbeast.write_table` for the same rows.

    Parameters
    ----------
    df : DataFrame
        The rows, of a classic session or of Spark Connect. Both reads must return the same rows.
    path : str or path-like
        Folder, address or name of the table as in `qbeast.write_table`, the same for executors and this process; or the
        name of a temporary view of `register_table`.
    columns
        See `qbeast.write_table`. Strings with a collation cannot be indexed.
    persist : bool, default False
        Persist the rows (``DataFrame.persist``) during both passes: for rows that are random, unordered with a
        limit, or expensive to compute. A frame that is already persisted is not changed.
    **keywords
        See `qbeast.write_table`. `where` may be a Column too. `progress` counts files once all of them are written.

    Returns
    -------
    WriteResult
        See `qbeast.write_table`.

    Raises
    ------
    InputChangedError
        If the second pass returned other rows.
    QbeastError
        Otherwise as `qbeast.write_table`; errors of executors are raised here.

    Warns
    -----
    DesignEffectWarning
        If index keys repeat often, so that samples are clustered.
    SmallPartitionsWarning
        If half of the partitions have fewer rows than one cube.

    Examples
    --------
    >>> import qbeast_spark_bridge as bridge
    >>> df = spark.range(1000).selectExpr("id AS user", "id % 97 / 7 AS price")
    >>> result = bridge.write_table(df, "sales", columns=["user", "price"])
    >>> result.version, result.rows
    (0, 1000)
    """
    if not is_spark_frame(df):
        what = (
            "must be a Spark DataFrame; qbeast.write_table accepts frames of all kinds; call it as (df, path)"
        )
        invalid_argument("df", what, value=df)
    with persisted(df, enabled=persist and not df.isStreaming) as rows:
        return functions.write_table(rows, path, columns, **keywords)


def write_frame(df: DataFrame, path: str | os.PathLike[str], options: WriteOptions) -> WriteResult:
    """Write a DataFrame with prepared options, for `qbeast.write_table`."""
    if df.isStreaming:
        msg = 'df is a stream. Use writeStream.format("qbeast"), or write in foreachBatch.'
        raise InvalidInputError(msg, argument="df")
    spark = df.sparkSession
    location = located(spark, path, options.storage_options, may_be_new=True)
    if options.where is not None:
        columns = comparable_columns(df.schema, empty_frame(df.schema).schema)
        options = replace(options, where=ColumnTranslator.of(columns).condition(options.where, "where"))
    engine, source, keeper = SparkEngine(spark), SparkSource(df), SparkKeeper(location)
    if options.where is None:
        result = write_rows(source, location, options, engine=engine)
    else:
        try:
            result = replace_where(source, location, options, engine=engine, keeper=keeper)
        finally:
            keeper.clear()
    plan_views(spark, location.uri)
    return replace(result, engine="spark")
