# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""``spark.readStream.format("qbeast")``: versions of a table as micro-batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.datasource.source_options import StreamReadOptions
from qbeast_spark_bridge.worker.call import freeze_modules, use_task_cores

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2 a batch has all there is
    LIMITS_BATCHES = False
else:
    LIMITS_BATCHES = True

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from qbeast_core.table.read.stream import Offset, TableStream


class StreamReader(DataSourceStreamReader):
    """Reads the versions of a table in tasks of a file. The driver keeps one while the query runs."""

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        limit = options.max_files or options.max_bytes
        if limit is not None and not LIMITS_BATCHES:
            msg = "maxFilesPerTrigger and maxBytesPerTrigger need Spark 4.2 or later: before, a batch has all there is."
            raise InvalidInputError(msg, argument="maxFilesPerTrigger")
        self._options = options
        self._schema = schema
        self._opened: TableStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open table: tasks do not need it."""
        return {**vars(self), "_opened": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where a new query begins."""
        return dict(self._stream.first().json())

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 -- Spark's name before 4.2
        """Return the place after the newest version."""
        return dict(self._stream.end().json())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the pickled tasks of a batch; tasks do not read the log."""
        stream = self._stream
        tasks = self._tasks(stream, *map(_offset, (start, end)))
        freeze_modules()
        return [InputPartition(pickle.dumps(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        use_task_cores()
        if partition.value is not None:
            task = pickle.loads(partition.value)  # noqa: S301 -- bytes of our own driver
            freeze_modules()
            yield from task.batches()

    @property
    def _stream(self) -> TableStream:
        if self._opened is None:
            use_task_cores()
            from qbeast_spark_bridge.datasource.source_plan import open_stream

            self._opened = open_stream(self._options)
            freeze_modules()
        return self._opened

    def _tasks(self, stream: TableStream, start: Offset, end: Offset) -> list[Any]:
        from qbeast_spark_bridge.datasource.source_plan import stream_tasks

        return stream_tasks(stream, start, end, self._schema)


def _offset(values: dict[str, Any]) -> Offset:
    from qbeast_core.table.read.stream import Offset

    return Offset.of(values)


if LIMITS_BATCHES:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """The same with batches of limited size, from Spark 4.2 on."""

        def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
            super().__init__(options, schema)
            self._until: Offset | None = None

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
            """Keep the place after the newest version: the query ends there."""
            self._until = self._stream.end()

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
            """Return the limit of the options."""
            options = self._options
            if options.max_files is not None:
                return ReadMaxFiles(options.max_files)
            return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
            """Return where the batch that begins at `start` ends."""
            from qbeast_core.table.read.stream import NO_LIMITS, Limits

            own = Limits(self._options.max_files, self._options.max_bytes)
            limits = NO_LIMITS if isinstance(limit, ReadAllAvailable) else own
            return dict(self._stream.latest(_offset(start), limits, self._until).json())

        def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
            """Return the place after the newest version."""
            return dict(self._stream.end().json())


def stream_reader(options: StreamReadOptions, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream that this Spark can use."""
    return LimitedStreamReader(options, schema) if LIMITS_BATCHES else StreamReader(options, schema)
