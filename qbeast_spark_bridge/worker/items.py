"""A function called for each item of a list, in a worker; see `qbeast_core.table.engine.protocol.Engine.map`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from qbeast_spark_bridge.worker.transport import batch_of

# Columns of what `answer_items` yields.
ANSWERS: Final = "number int, answer binary"

_ANSWERS_SCHEMA: Final = pa.schema([("number", pa.int32()), ("answer", pa.binary())])


def answer_items(
    call: Callable[[Any], object], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the answer for each item."""
    for batch in batches:
        for number, item in zip(batch.column("number"), batch.column("item"), strict=True):
            answer = call(pickle.loads(item.as_py()))  # noqa: S301 -- bytes of our own driver
            yield batch_of(_ANSWERS_SCHEMA, [number.as_py()], [pickle.dumps(answer)])
