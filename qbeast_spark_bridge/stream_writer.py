"""The streaming sink ``writeStream.format("qbeast")``: every micro-batch is appended exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from qbeast_core.errors import InvalidInputError, QbeastError
from qbeast_core.io.store import open_store
from qbeast_spark_bridge.append_writer import AppendTask
from qbeast_spark_bridge.source_options import SINK_OPTIONS, refuse_unknown, storage_options

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Before Spark 4.1: what makes it hand over Arrow batches to a writer of streams too."""


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamWriter", "application_of", "stream_writer"]

_OPERATION = "STREAMING UPDATE"
_QUERY = "metadata"  # the file of a checkpoint that names its query


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends a micro-batch.

    The table keeps the application and the batch it has come to, in the same commit as the rows. A batch that comes
    again, after a restart or because the answer to its commit was lost, is known by its number.
    """

    def __init__(self, task: AppendTask, application: str) -> None:
        self._task = task
        self._application = application

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, on an executor."""
        return self._task.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Publish what all tasks wrote, on the driver, unless the table has the batch."""
        self._task.commit(messages, txn=(self._application, batchId), operation=_OPERATION)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 -- Spark's
        """Clean up after a failure, on the driver."""
        self._task.abort(messages)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:
    """Return the writer of a micro-batch.

    Parameters
    ----------
    options : Mapping
        `path`; `txnAppId` or `checkpointLocation`; ``storage.*``.
    schema : StructType
        Of the rows.
    overwrite : bool
        Refused: Spark asks for it in output mode ``complete``.

    Raises
    ------
    InvalidInputError
        If the mode is not append, an option cannot be used, or the stream has no name.
    TableNotFoundError, SchemaMismatchError, NotQbeastTableError, UnsupportedTableError
        If the table cannot be appended to.
    """
    if overwrite:
        msg = (
            'the sink format("qbeast") appends: it has no output mode "complete". Nothing was written. Use '
            'outputMode("append"), or foreachBatch with qbeast_spark_bridge.write_table(..., mode="overwrite").'
        )
        raise InvalidInputError(msg, argument="outputMode")
    refuse_unknown(options, SINK_OPTIONS)
    application = application_of(options)
    return StreamWriter(AppendTask.begin(options, schema), application)


def application_of(options: Mapping[str, str]) -> str:
    """Return the name under which the table remembers the stream's progress.

    Parameters
    ----------
    options : Mapping
        `txnAppId` is the name; else the checkpoint at `checkpointLocation` knows the query's.

    Raises
    ------
    InvalidInputError
        If there is neither, or the checkpoint cannot be read from here.
    """
    named = options.get("txnappid")
    if named:
        return named
    checkpoint = options.get("checkpointlocation")
    if not checkpoint:
        reason = "the sink was told no checkpointLocation (a session's setting does not reach it)"
        raise _nameless(reason)
    try:
        text = open_store(checkpoint, storage_options(options)).get(_QUERY)
        about: Any = json.loads(text)
        query = about["id"]
    except (QbeastError, OSError, ValueError, LookupError, TypeError) as error:
        reason = f"the query's name cannot be read from {checkpoint}/{_QUERY} ({error})"
        raise _nameless(reason) from error
    return str(query)


def _nameless(reason: str) -> InvalidInputError:
    msg = (
        f"{reason}, so a batch that comes again could not be told from a new one. Nothing was written. Name the "
        'stream: .option("txnAppId", "orders-from-kafka"), a name that no other stream into this table has, nor this '
        'one after its checkpoint is gone; or give .option("checkpointLocation", ...) at a place that the driver\'s '
        "Python can read."
    )
    return InvalidInputError(msg, argument="txnAppId")
