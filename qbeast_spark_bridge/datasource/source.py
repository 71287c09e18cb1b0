# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""The data source that Spark calls.

Every method runs in a separate Python process, on the driver or an executor; only pickled attributes reach the next
one. Methods set the number of threads before they import Polars.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from qbeast_core.errors import QbeastError
from qbeast_spark_bridge.datasource.options import (
    FeedOptions,
    ReadOptions,
    StreamReadOptions,
    is_stream,
    read_options,
)
from qbeast_spark_bridge.worker.call import batches_of_task, freeze_modules, use_task_cores

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from qbeast_spark_bridge.datasource.plan import FeedPlan, SourcePlan


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

    def _plan(self) -> SourcePlan | FeedPlan:
        return _open(read_options(self.options), self._version)

    def reader(self, schema: StructType) -> QbeastReader:
        """Return the reader of the pinned version."""
        return QbeastReader(read_options(self.options), self._version, schema)

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
    """Reads a version in tasks of pages of about equal bytes, or the changes up to a version.

    There is no ``pushFilters``: Spark 4.1 to 4.3 return wrong rows if a loaded DataFrame is used twice with
    different filters. The options `where` and `columns` skip data instead.
    """

    def __init__(
        self, options: ReadOptions | FeedOptions, version: int | None, schema: StructType | pa.Schema
    ) -> None:
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


def _open(options: ReadOptions | FeedOptions, version: int | None) -> SourcePlan | FeedPlan:
    use_task_cores()
    from qbeast_spark_bridge.datasource.plan import FeedPlan, SourcePlan

    if isinstance(options, FeedOptions):
        return FeedPlan.open(options, version)
    return SourcePlan.open(options, version)
