# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""The batch writer of ``format("qbeast")``: each task indexes its own rows, the driver commits once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from qbeast_core.errors import InvalidInputError, QbeastError, changing
from qbeast_core.io.location import Location
from qbeast_spark_bridge.datasource.options import (
    SINK_OPTIONS,
    WriteByTasks,
    location_of,
    refuse_unknown,
    storage_options,
)
from qbeast_spark_bridge.worker.call import freeze_modules, use_task_cores

_QUERY = "metadata"  # the file of a checkpoint with the id of its query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from qbeast_core.table.engine.files import AppendedPart
    from qbeast_core.table.write.options import Compression


@dataclass(frozen=True)
class AppendMessage(WriterCommitMessage):
    """The pickled parts of a task."""

    parts: bytes = field(repr=False)


class AppendWriter:
    """The common part of both writers: Spark pickles it to its tasks."""

    def __init__(self, context: bytes) -> None:
        # Facts about the table for tasks; without a `repr`, since it has credentials.
        self.context = context

    @changing
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, on an executor."""
        use_task_cores()
        from qbeast_spark_bridge.worker.tasks import write_rows

        freeze_modules()
        return AppendMessage(write_rows(self.context, iterator))

    @changing
    def publish(
        self,
        messages: list[WriterCommitMessage | None],
        *,
        txn: tuple[str, int] | None = None,
        operation: str = "",
        info: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Publish the rows of all tasks in one commit, on the driver."""
        use_task_cores()
        from qbeast_core.table.write.by_tasks import publish_parts

        freeze_modules()
        task = pickle.loads(self.context)  # noqa: S301 -- our own bytes
        publish_parts(task, _parts(messages), txn=txn, operation=operation, info=info)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002, N803 -- Spark's
        """Delete the files of all tasks, on the driver, unless a commit was tried.

        If all tasks sent messages, a commit was tried: it deleted its files, or its outcome is unknown. Tasks that
        still run have sent no message; vacuum removes their files.
        """
        if None not in messages:
            return
        use_task_cores()
        from qbeast_spark_bridge.worker.tasks import delete_parts

        delete_parts(pickle.loads(self.context), _parts(messages))  # noqa: S301 -- our own bytes


class BatchWriter(AppendWriter, DataSourceArrowWriter):
    """Appends the rows of a DataFrame, or creates or replaces a table with them."""

    def __init__(self, context: bytes, options: WriteByTasks) -> None:
        super().__init__(context)
        self._options = options

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks, on the driver."""
        options = self._options
        info = {} if options.user_metadata is None else {"userMetadata": options.user_metadata}
        self.publish(messages, txn=options.txn, info=info)
        if options.optimizes:
            _optimize(options.location)


@changing
def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Return the writer of ``df.write.format("qbeast").mode("append" or "overwrite").save(path)``."""
    from qbeast_core.table.write.by_tasks import begin_write
    from qbeast_core.table.write.options import WriteOptions
    from qbeast_spark_bridge.spark_types import empty_frame

    chosen = WriteByTasks.of(options)
    task = begin_write(
        chosen.location,
        empty_frame(schema),
        WriteOptions(
            mode="overwrite" if overwrite else "append",
            columns=None if chosen.columns is None else list(chosen.columns),
            cube_size=chosen.cube_size,
            column_stats=chosen.column_stats,
            schema_mode="overwrite" if overwrite and chosen.overwrites_schema else None,
            partition_by=None if chosen.partition_by is None else list(chosen.partition_by),
            sample_by=None if chosen.sample_by is None else list(chosen.sample_by),
            sample_column=chosen.sample_column,
            compression=cast("Compression | None", chosen.compression),
            storage_options=chosen.location.storage_options,
            txn=chosen.txn,
        ),
    )
    return BatchWriter(pickle.dumps(task), chosen)


def _optimize(location: Location) -> None:
    """Index the rows that wait for it, in this process."""
    from qbeast_core.table.engine.local import local_engine
    from qbeast_core.table.rewrite.optimize import OptimizeOptions, optimize
    from qbeast_core.table.snapshot.snapshot import load_snapshot

    with local_engine(None) as engine:
        optimize(load_snapshot(location), OptimizeOptions(), engine=engine)


def append_context(options: Mapping[str, str], schema: StructType) -> bytes:
    """Check the table before the tasks start; see `qbeast_core.table.write.by_tasks.begin_append`."""
    from qbeast_core.table.write.by_tasks import begin_append
    from qbeast_spark_bridge.spark_types import empty_frame

    return pickle.dumps(begin_append(location_of(options), empty_frame(schema)))


def _parts(messages: list[WriterCommitMessage | None]) -> list[AppendedPart]:
    written = [message.parts for message in messages if isinstance(message, AppendMessage)]
    return [part for parts in written for part in pickle.loads(parts)]  # noqa: S301 -- bytes of our own tasks


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Before Spark 4.1, this base makes Spark pass Arrow batches to a streaming writer."""


class StreamWriter(AppendWriter, DataSourceStreamArrowWriter):
    """Appends a micro-batch exactly once.

    The commit records the application and the number of the batch. A repeated batch, after a restart or a lost
    answer to its commit, is recognised by its number.
    """

    def __init__(self, context: bytes, application: str) -> None:
        super().__init__(context)
        self._application = application

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Publish the rows of all tasks, on the driver, unless the table has the batch."""
        self.publish(messages, txn=(self._application, batchId), operation="STREAMING UPDATE")


@changing
def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:
    """Return the writer of a micro-batch."""
    if overwrite:
        msg = (
            'the sink format("qbeast") appends: it has no output mode "complete". Use '
            'outputMode("append"), or foreachBatch with qbeast_spark_bridge.write_table(..., mode="overwrite").'
        )
        raise InvalidInputError(msg, argument="outputMode")
    refuse_unknown(options, SINK_OPTIONS)
    application = application_of(options)
    return StreamWriter(append_context(options, schema), application)


def application_of(options: Mapping[str, str]) -> str:
    """Return the name under which the table records the progress of the stream."""
    application = options.get("txnappid")
    if application:
        return application
    checkpoint = options.get("checkpointlocation")
    if not checkpoint:
        reason = "the sink has no checkpointLocation (a session's setting does not reach it)"
        raise _nameless(reason)
    try:
        text = Location.of(checkpoint, storage_options(options)).store.get(_QUERY)
        about: Any = json.loads(text)
        query = about["id"]
    except (QbeastError, OSError, ValueError, LookupError, TypeError) as error:
        reason = f"the query's name cannot be read from {checkpoint}/{_QUERY} ({error})"
        raise _nameless(reason) from error
    return str(query)


def _nameless(reason: str) -> InvalidInputError:
    msg = (
        f"{reason}, so a repeated batch could not be distinguished from a new one. Name the "
        'stream: .option("txnAppId", "orders-from-kafka"), a name that no other stream into this table uses, not even '
        'this one after its checkpoint was deleted; or set .option("checkpointLocation", ...) to a place that the '
        "driver's Python can read."
    )
    return InvalidInputError(msg, argument="txnAppId")
