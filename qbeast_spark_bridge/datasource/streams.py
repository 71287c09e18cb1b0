# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""``spark.readStream.format("qbeast")``: versions of a table as micro-batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.datasource.options import StreamReadOptions
from qbeast_spark_bridge.worker.call import batches_of_task, freeze_modules, use_task_cores

# Before Spark 4.2 a batch has all there is.
LIMITS_BATCHES: Final = find_spec("pyspark.sql.streaming.datasource") is not None

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
        self.options = options
        self._schema = schema
        self._opened: TableStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open table: tasks do not need it."""
        return {**vars(self), "_opened": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where a new query begins."""
        return dict(self.stream.first().json())

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 -- Spark's name before 4.2
        """Return the place after the newest version."""
        return dict(self.stream.end().json())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the pickled tasks of a batch; tasks do not read the log."""
        stream = self.stream
        tasks = self._tasks(stream, *map(_offset_of, (start, end)))
        freeze_modules()
        return [InputPartition(pickle.dumps(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        yield from batches_of_task(partition.value)

    @property
    def stream(self) -> TableStream:
        """The open table."""
        if self._opened is None:
            use_task_cores()
            from qbeast_spark_bridge.datasource.plan import open_stream

            self._opened = open_stream(self.options)
            freeze_modules()
        return self._opened

    def _tasks(self, stream: TableStream, start: Offset, end: Offset) -> list[Any]:
        from qbeast_spark_bridge.datasource.plan import stream_tasks

        return stream_tasks(stream, start, end, self._schema)


def _offset_of(values: dict[str, Any]) -> Offset:
    """Return an offset of Spark's checkpoint."""
    from qbeast_core.table.read.stream import Offset

    return Offset.of(values)


if LIMITS_BATCHES:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """The same with batches of limited size, from Spark 4.2 on."""

        def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
            super().__init__(options, schema)
            self._until: Offset | None = None

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
            """Keep the place after the newest version: the query ends there."""
            self._until = self.stream.end()

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
            """Return the limit of the options."""
            options = self.options
            if options.max_files is not None:
                return ReadMaxFiles(options.max_files)
            return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
            """Return where the batch that begins at `start` ends."""
            own = {"max_files": self.options.max_files, "max_bytes": self.options.max_bytes}
            limits = {} if isinstance(limit, ReadAllAvailable) else own
            return dict(self.stream.latest(_offset_of(start), **limits, until=self._until).json())

        def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
            """Return the place after the newest version."""
            return dict(self.stream.end().json())
