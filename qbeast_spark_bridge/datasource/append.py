"""The driver's part of an append: check the table before the tasks, commit or delete their files afterwards.

Contexts and parts are bytes, since the writers must not import Polars.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructType

from qbeast_core.table.engine.tasks.append import AppendedPart
from qbeast_core.table.write.append import begin_append, publish_parts
from qbeast_spark_bridge.schema import empty_frame
from qbeast_spark_bridge.worker.append import delete_parts


def begin(path: str, schema: StructType, storage_options: Mapping[str, str]) -> bytes:
    """Return the context of the tasks; see `begin_append`."""
    return pickle.dumps(begin_append(path, empty_frame(schema), storage_options))


def publish(
    context: bytes, written: Sequence[bytes], *, txn: tuple[str, int] | None = None, operation: str = ""
) -> None:
    """Commit the files of the tasks; see `publish_parts`."""
    publish_parts(pickle.loads(context), _parts(written), txn=txn, operation=operation)  # noqa: S301 -- our own bytes


def discard(context: bytes, written: Sequence[bytes]) -> None:
    """Delete the files of the tasks, as far as the store allows."""
    delete_parts(pickle.loads(context), _parts(written))  # noqa: S301 -- our own bytes


def _parts(written: Sequence[bytes]) -> list[AppendedPart]:
    return [part for data in written for part in pickle.loads(data)]  # noqa: S301 -- bytes of our own tasks
