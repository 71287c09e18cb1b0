"""What the driver does before and after the tasks of an append: look at the table, commit, or clear away.

Contexts and parts are bytes here: whoever hands them on must not import Polars for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructType

from qbeast_core.table.engine.append_task import AppendedPart
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.append import begin_append, publish_parts
from qbeast_spark_bridge.schema import empty_frame
from qbeast_spark_bridge.worker.append import delete_parts

__all__ = ["begin", "discard", "publish"]


def _parts(written: Sequence[bytes]) -> list[AppendedPart]:
    return [part for some in written for part in pickle.loads(some)]  # noqa: S301 -- bytes of our own tasks


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
        See `qbeast_core.table.write.append.publish_parts`.
    """
    parts = _parts(written)
    if not parts:
        return
    planned_on = min(part.version for part in parts)
    snapshot = load_snapshot(path, version=planned_on, storage_options=storage_options)
    publish_parts(snapshot, parts, txn=txn, operation=operation)


def discard(path: str, storage_options: Mapping[str, str], written: Sequence[bytes]) -> None:
    """Delete what tasks wrote and no commit will name, as far as the store lets us."""
    delete_parts(path, storage_options, _parts(written))
