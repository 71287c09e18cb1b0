"""Call a function for each item of a list, in a worker; see `qbeast_core.table.engine.protocol.Engine.map`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from qbeast_spark_bridge.worker.transport import batch_of, received

# The column that `answer_items` yields.
ANSWERS: Final = "answer binary"


def answer_items(
    call: Callable[[Any], object], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the number of each item with its answer."""
    for number, item in received(batches):
        yield batch_of(ANSWERS, [pickle.dumps((number, call(item)))])
