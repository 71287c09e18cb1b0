"""Arrow batches of numbers and bytes, as workers answer in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from qbeast_core.space.arrays import I32Array

__all__ = ["batch_of"]


def batch_of(
    schema: pa.Schema, *columns: Sequence[int] | I32Array | Sequence[bytes] | pa.Array
) -> pa.RecordBatch:
    """Return a batch of values that are at hand.

    It is made of buffers: to see whether a list is one of its own, pyarrow imports pandas, which takes a worker longer
    than a small task.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of columns of ``int32`` and ``binary`` alone.
    columns : sequence of int or bytes, or pyarrow.Array
        The values of each, none of them null.

    Examples
    --------
    >>> schema = pa.schema([("number", pa.int32()), ("item", pa.binary())])
    >>> batch_of(schema, [1, 2], [b"one", b""]).to_pylist()
    [{'number': 1, 'item': b'one'}, {'number': 2, 'item': b''}]
    """
    arrays = [_array(field.type, values) for field, values in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(dtype: pa.DataType, values: Any) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if not pa.types.is_binary(dtype):
        return pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(np.asarray(values, np.int32))])
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pa.Array.from_buffers(
        dtype, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    )
