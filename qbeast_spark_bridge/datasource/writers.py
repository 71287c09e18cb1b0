# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""The batch writer of ``format("qbeast")``: each task indexes its own rows, the driver commits once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from qbeast_core.errors import InvalidInputError, QbeastError, changing
from qbeast_core.io.stores.location import Location
from qbeast_spark_bridge.datasource.source_options import (
    SINK_OPTIONS,
    WRITE_OPTIONS,
    location_of,
    refuse_unknown,
    storage_options,
)
from qbeast_spark_bridge.worker.call import freeze_modules, use_task_cores

_QUERY = "metadata"  # the file of a checkpoint with the id of its query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from qbeast_core.table.engine.tasks.append_task import AppendedPart


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
        from qbeast_spark_bridge.worker.append_task import write_rows

        freeze_modules()
        return AppendMessage(write_rows(self.context, iterator))

    @changing
    def publish(
        self,
        messages: list[WriterCommitMessage | None],
        *,
        txn: tuple[str, int] | None = None,
        operation: str = "",
    ) -> None:
        """Publish the rows of all tasks in one commit, on the driver."""
        use_task_cores()
        from qbeast_core.table.write.append_by_tasks import publish_parts

        freeze_modules()
        task = pickle.loads(self.context)  # noqa: S301 -- our own bytes
        publish_parts(task, _parts(messages), txn=txn, operation=operation)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002, N803 -- Spark's
        """Delete the files of all tasks, on the driver, unless a commit was tried.

        If all tasks sent messages, a commit was tried: it deleted its files, or its outcome is unknown. Tasks that
        still run have sent no message; vacuum removes their files.
        """
        if None not in messages:
            return
        use_task_cores()
        from qbeast_spark_bridge.worker.append_task import delete_parts

        delete_parts(pickle.loads(self.context), _parts(messages))  # noqa: S301 -- our own bytes


class BatchWriter(AppendWriter, DataSourceArrowWriter):
    """Appends the rows of a DataFrame."""

    def __init__(self, context: bytes, txn: tuple[str, int] | None) -> None:
        super().__init__(context)
        self._txn = txn

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks, on the driver."""
        self.publish(messages, txn=self._txn)


@changing
def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Return the writer of ``df.write.format("qbeast").mode("append").save(path)``."""
    if overwrite:
        msg = (
            'format("qbeast") appends, and does not overwrite: a single task cannot index a whole table. '
            'Call qbeast_spark_bridge.write_table(df, path, mode="overwrite"), for a new table with '
            "columns=[...]; an overwrite keeps the indexed columns."
        )
        raise InvalidInputError(msg, argument="mode")
    refuse_unknown(options, WRITE_OPTIONS)
    txn = _txn(options)
    return BatchWriter(append_context(options, schema), txn)


def append_context(options: Mapping[str, str], schema: StructType) -> bytes:
    """Check the table before the tasks start; see `qbeast_core.table.write.append_by_tasks.begin_append`."""
    from qbeast_core.table.write.append_by_tasks import begin_append
    from qbeast_spark_bridge.spark_schema import empty_frame

    return pickle.dumps(begin_append(location_of(options), empty_frame(schema)))


def _txn(options: Mapping[str, str]) -> tuple[str, int] | None:
    app, version = options.get("txnappid"), options.get("txnversion")
    if app is None and version is None:
        return None
    if not app or version is None or not version.isdecimal() or int(version) >= 2**63:
        msg = f"txnAppId and txnVersion, a number below 2**63, go together; got {app!r} and {version!r}."
        raise InvalidInputError(msg, argument="txnAppId")
    return app, int(version)


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
