"""What the writers of ``format("qbeast")`` do with rows: in a task, and on the driver before and after.

Contexts and parts are bytes here: whoever hands them on must not import Polars for it.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from qbeast_core.io.store import open_store
from qbeast_core.table.append_commit import publish_parts
from qbeast_core.table.append_part import AppendContext, AppendedPart, begin_append, write_part
from qbeast_core.table.data_files import World, delete_data_files
from qbeast_core.table.snapshot import load_snapshot
from qbeast_spark_bridge.schema import empty_frame

__all__ = ["PART_BYTES", "begin", "discard", "publish", "write_rows"]

PART_BYTES: Final = 128 << 20
"""Arrow bytes that a task indexes at once: the more, the larger its files, and the more memory it takes."""

_WORLD: Final = World(now_ms=lambda: time.time_ns() // 1_000_000, new_id=lambda: str(uuid.uuid4()))


def begin(path: str, schema: StructType, storage_options: Mapping[str, str]) -> bytes:
    """Look at the table, on the driver, before any task does.

    Parameters
    ----------
    path : str
        Path or address of the table.
    schema : StructType
        Of the rows to come.
    storage_options : Mapping
        For object stores.

    Returns
    -------
    bytes
        The context of the tasks.

    Raises
    ------
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError
        It cannot be appended to.
    SchemaMismatchError
        The rows do not fit.
    """
    _, context = begin_append(path, empty_frame(schema), storage_options)
    return pickle.dumps(context)


def write_rows(context: bytes, batches: Iterable[pa.RecordBatch], *, part_bytes: int = PART_BYTES) -> bytes:
    """Write the rows of a task.

    Parameters
    ----------
    context : bytes
        Of `begin`.
    batches : iterable of pyarrow.RecordBatch
        The rows.
    part_bytes : int
        Arrow bytes to index at once.

    Returns
    -------
    bytes
        What was written, for `publish`.

    Raises
    ------
    SchemaMismatchError
        If a value does not fit.
    StorageError
        If the store refuses. What the task wrote is deleted as far as the store lets us.
    """
    table: AppendContext = pickle.loads(context)  # noqa: S301 -- bytes of our own driver
    parts: list[AppendedPart] = []
    held: list[pa.RecordBatch] = []
    size = 0
    try:
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= part_bytes:
                parts.append(write_part(table, pa.Table.from_batches(held), _WORLD))
                held, size = [], 0
        if any(batch.num_rows for batch in held):
            parts.append(write_part(table, pa.Table.from_batches(held), _WORLD))
    except BaseException:  # an interrupt and a panic of Rust too
        _delete(table.uri, table.storage_options, parts)
        raise
    return pickle.dumps(parts)


def publish(
    path: str,
    storage_options: Mapping[str, str],
    written: Sequence[bytes],
    *,
    txn: tuple[str, int] | None = None,
    operation: str = "",
) -> None:
    """Commit what the tasks wrote, on the driver.

    Parameters
    ----------
    path, storage_options
        Where the table is.
    written : sequence of bytes
        Of `write_rows`, of every task.
    txn : tuple of (str, int), optional
        The application and its version; a table that has it already is left as it is.
    operation : str, optional
        Name in the history.

    Raises
    ------
    CommitConflictError, CommitUnknownError, StorageError
        See `qbeast_core.table.append_commit.publish_parts`.
    """
    parts = _parts(written)
    if not parts:
        return
    planned_on = min(part.version for part in parts)
    snapshot = load_snapshot(path, version=planned_on, storage_options=storage_options)
    publish_parts(snapshot, parts, txn=txn, operation=operation)


def discard(path: str, storage_options: Mapping[str, str], written: Sequence[bytes]) -> None:
    """Delete what tasks wrote and no commit will name, as far as the store lets us."""
    _delete(path, storage_options, _parts(written))


def _parts(written: Sequence[bytes]) -> list[AppendedPart]:
    return [part for some in written for part in pickle.loads(some)]  # noqa: S301 -- bytes of our own tasks


def _delete(uri: str, storage_options: Mapping[str, str], parts: Sequence[AppendedPart]) -> None:
    if parts:
        store = open_store(uri, storage_options)
        delete_data_files(store, [add for part in parts for add in part.files])
