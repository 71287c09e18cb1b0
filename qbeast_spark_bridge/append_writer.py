# ruff: noqa: PLC0415 -- Polars must not be imported before its threads are set
"""The batch writer of ``format("qbeast")``: each task indexes its own rows, the driver commits once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.source_options import WRITE_OPTIONS, refuse_unknown, storage_options, table_path
from qbeast_spark_bridge.workers import use_task_cores

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AppendMessage", "AppendTask", "BatchWriter", "batch_writer"]


@dataclass(frozen=True)
class AppendMessage(WriterCommitMessage):
    """What a task wrote, pickled."""

    parts: bytes = field(repr=False)


@dataclass(frozen=True)
class AppendTask:
    """An append under way, as its tasks and its commit see it.

    Attributes
    ----------
    path, storage_options
        Where the table is.
    context : bytes
        What tasks know of it.
    """

    path: str
    storage_options: Mapping[str, str] = field(repr=False)
    context: bytes = field(repr=False)

    @staticmethod
    def begin(options: Mapping[str, str], schema: StructType) -> AppendTask:
        """Look at the table; see `qbeast_spark_bridge.append_task.begin` for what is refused."""
        from qbeast_spark_bridge import append_task

        path, storage = table_path(options), storage_options(options)
        return AppendTask(path, storage, append_task.begin(path, schema, storage))

    def write(self, batches: Iterator[pa.RecordBatch]) -> AppendMessage:
        """Write the rows of a task."""
        use_task_cores()
        from qbeast_spark_bridge import append_task

        return AppendMessage(append_task.write_rows(self.context, batches))

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        *,
        txn: tuple[str, int] | None = None,
        operation: str = "",
    ) -> None:
        """Publish what all tasks wrote."""
        use_task_cores()
        from qbeast_spark_bridge import append_task

        append_task.publish(self.path, self.storage_options, _written(messages), txn=txn, operation=operation)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what was written, unless a commit was tried.

        A failed commit has deleted what it could, or nobody knows whether it landed. Where a task is missing
        there was no commit. What tasks write that still run is never named, and vacuum removes it.
        """
        if None not in messages:
            return
        use_task_cores()
        from qbeast_spark_bridge import append_task

        append_task.discard(self.path, self.storage_options, _written(messages))


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a DataFrame."""

    def __init__(self, task: AppendTask, txn: tuple[str, int] | None) -> None:
        self._task = task
        self._txn = txn

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, on an executor."""
        return self._task.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote, on the driver."""
        self._task.commit(messages, txn=self._txn)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clean up after a failure, on the driver."""
        self._task.abort(messages)


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Return the writer of ``df.write.format("qbeast").mode("append").save(path)``.

    Parameters
    ----------
    options : Mapping
        `path`; for an append that is repeated safely `txnAppId` and `txnVersion`; ``storage.*``.
    schema : StructType
        Of the rows.
    overwrite : bool
        Refused.

    Raises
    ------
    InvalidInputError
        If the table is to be overwritten, or an option cannot be used.
    TableNotFoundError, SchemaMismatchError, NotQbeastTableError, UnsupportedTableError
        If it cannot be appended to.
    """
    if overwrite:
        msg = (
            'format("qbeast") appends, and does not overwrite: a task alone cannot index a table anew. Nothing was '
            'written. Call qbeast_spark_bridge.write_table(df, path, columns=[...], mode="overwrite").'
        )
        raise InvalidInputError(msg, argument="mode")
    refuse_unknown(options, WRITE_OPTIONS)
    txn = _txn(options)
    return BatchWriter(AppendTask.begin(options, schema), txn)


def _txn(options: Mapping[str, str]) -> tuple[str, int] | None:
    app, version = options.get("txnappid"), options.get("txnversion")
    if app is None and version is None:
        return None
    if not app or version is None or not version.isdecimal() or int(version) >= 2**63:
        msg = (
            f"txnAppId and txnVersion, a number below 2**63, go together; got {app!r} and {version!r}. Nothing was "
            "written."
        )
        raise InvalidInputError(msg, argument="txnAppId")
    return app, int(version)


def _written(messages: list[WriterCommitMessage | None]) -> list[bytes]:
    return [message.parts for message in messages if isinstance(message, AppendMessage)]
