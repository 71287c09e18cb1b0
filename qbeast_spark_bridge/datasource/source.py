# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""The data source and the table functions that Spark calls.

Every method runs in a separate Python process, on the driver or an executor; only pickled attributes reach the next
one. Methods set the number of threads before they import Polars.

For a table function, Spark calls `analyze` with the literal arguments to get the columns, then `eval` in one task.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from qbeast_core.errors import InvalidInputError, QbeastError
from qbeast_spark_bridge.datasource.options import ReadOptions, StreamReadOptions, is_stream
from qbeast_spark_bridge.worker.call import batches_of_task, freeze_modules, use_task_cores

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from qbeast_spark_bridge.datasource.plan import SourcePlan
    from qbeast_spark_bridge.worker.read_task import ReadTask


class QbeastDataSource(DataSource):
    """A qbeast table as a source of reads and a target of appends."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._version: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pin the version: Spark pickles the source when it is loaded, and plans reads of it later."""
        if self._version is None:
            with contextlib.suppress(QbeastError):  # no table, or options of a sink: later calls raise
                self._version = self._plan().version
        return dict(vars(self))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "qbeast"

    def schema(self) -> StructType:
        """Return the chosen columns of the table, all nullable."""
        if is_stream(self.options):
            use_task_cores()
            from qbeast_spark_bridge.datasource.plan import open_stream, stream_schema

            return stream_schema(open_stream(StreamReadOptions.of(self.options)))
        plan = self._plan()
        freeze_modules()
        self._version = plan.version
        return plan.schema()

    def _plan(self) -> SourcePlan:
        return _open(ReadOptions.of(self.options), self._version)

    def reader(self, schema: StructType) -> QbeastReader:
        """Return the reader of the pinned version."""
        return QbeastReader(ReadOptions.of(self.options), self._version, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 -- Spark's signature
        """Return the writer of an append to an existing table."""
        use_task_cores()
        from qbeast_spark_bridge.datasource.writers import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Return the reader of a stream."""
        from qbeast_spark_bridge.datasource.streams import LIMITS_BATCHES, StreamReader

        options = StreamReadOptions.of(self.options)
        if not LIMITS_BATCHES:
            return StreamReader(options, schema)
        from qbeast_spark_bridge.datasource.streams import LimitedStreamReader

        return LimitedStreamReader(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 -- Spark's signature
        """Return the writer of a micro-batch, which is appended exactly once."""
        use_task_cores()
        from qbeast_spark_bridge.datasource.writers import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)


class QbeastReader(DataSourceReader):
    """Reads a version in tasks of pages of about equal bytes.

    There is no ``pushFilters``: Spark 4.1 to 4.3 return wrong rows if a loaded DataFrame is used twice with
    different filters. The options `where` and `columns` skip data instead.
    """

    def __init__(self, options: ReadOptions, version: int | None, schema: StructType | pa.Schema) -> None:
        self._options = options
        self._version = version
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the pickled tasks; tasks do not read the log."""
        plan = _open(self._options, self._version)
        freeze_modules()
        return [InputPartition(pickle.dumps(task)) for task in plan.kept_tasks(self._schema)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        yield from batches_of_task(partition.value)


def _open(options: ReadOptions, version: int | None) -> SourcePlan:
    use_task_cores()
    from qbeast_spark_bridge.datasource.plan import SourcePlan

    return SourcePlan.open(options, version)


# A sample of a few rows at most: it has the columns of an estimate.
_FEWEST: Final = 1e-9


class QbeastSample:
    """``qbeast_sample(path, fraction)``: the rows of a sample, as `qbeast_spark_bridge.read_table` returns them."""

    @staticmethod
    def analyze(path: AnalyzeArgument, fraction: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns of the table."""
        return AnalyzeResult(_sample(_literal(path, "path"), _literal(fraction, "fraction"))[0])

    def eval(self, path: str, fraction: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        yield from _rows(_sample(path, fraction)[1])


class QbeastChanges:
    """``qbeast_changes(path, since)``: the rows that the versions after `since` changed, see `Table.changes`."""

    @staticmethod
    def analyze(path: AnalyzeArgument, since: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns of the changes."""
        return AnalyzeResult(_changes(_literal(path, "path"), _literal(since, "since"))[0])

    def eval(self, path: str, since: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        yield from _rows(_changes(path, since)[1])


class QbeastEstimate:
    """``qbeast_estimate(path, aggregates[, by[, error]])``: the frame of `qbeast.estimate`, with the same defaults."""

    @staticmethod
    def analyze(
        path: AnalyzeArgument,
        aggregates: AnalyzeArgument,
        by: AnalyzeArgument | None = None,
        error: AnalyzeArgument | None = None,
    ) -> AnalyzeResult:
        """Return the columns of the answers."""
        given = {"path": path, "aggregates": aggregates, "by": by, "error": error}
        values = {name: _literal(value, name) for name, value in given.items() if value is not None}
        values.pop("error", None)
        return AnalyzeResult(_columns(_estimate(**values, sample=_FEWEST)))

    def eval(self, path: str, aggregates: str, by: str = "", error: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield a row per group."""
        options = {} if error is None else {"error": str(error)}
        yield from _estimate(path, aggregates, by, **options).iter_rows()


FUNCTIONS: Final = {
    "qbeast_sample": QbeastSample,
    "qbeast_changes": QbeastChanges,
    "qbeast_estimate": QbeastEstimate,
}


def _literal(argument: AnalyzeArgument, name: str) -> Any:
    if argument.value is None or argument.isTable:
        msg = f"the argument {name} must be a constant: the columns of the table have to be known before it is read"
        raise InvalidInputError(msg, argument=name)
    return argument.value


def _sample(path: str, fraction: Any) -> tuple[StructType, list[ReadTask]]:
    use_task_cores()
    from qbeast_spark_bridge.datasource.plan import SourcePlan

    plan = SourcePlan.open(ReadOptions.of({"path": path, "sample": str(fraction)}), None)
    schema = plan.schema()
    return schema, plan.tasks(schema)


def _changes(path: str, since: Any) -> tuple[StructType, list[ReadTask]]:
    use_task_cores()
    from qbeast_core.api.table import open_version
    from qbeast_spark_bridge.read import change_tasks

    return change_tasks(open_version(path).snapshot, since, None)


def _estimate(path: str, aggregates: str, by: str = "", **options: Any) -> pl.DataFrame:
    use_task_cores()
    import polars as pl

    from qbeast_core.api.functions import estimate

    frame = estimate(path, aggregates, by=by or None, **options).frame
    return frame.with_columns(pl.col(pl.Int128).cast(pl.Int64))  # groups such as id % 3, as in Spark


def _columns(frame: pl.DataFrame) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(frame.to_arrow().schema, prefer_timestamp_ntz=True)


def _rows(tasks: list[ReadTask]) -> Iterator[tuple[Any, ...]]:
    for task in tasks:
        for batch in task.batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
