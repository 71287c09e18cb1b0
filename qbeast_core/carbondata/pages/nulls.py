"""Which rows are null, by presence bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from qbeast_core.carbondata.damage import damaged
from qbeast_core.space.arrays import BoolArray, U8Array


def null_mask(bits: U8Array, rows: int) -> BoolArray | None:
    """Return which rows are null; None if none is.

    >>> null_mask(np.array([5], np.uint8), 4)
    array([ True, False,  True, False])
    """
    if len(bits) == 0:
        return None
    if len(bits) > (rows + 7) // 8:
        damaged(f"{len(bits)} bytes of presence bits are too many for {rows} rows")
    mask = np.zeros((rows + 7) // 8 * 8, np.bool_)
    mask[: len(bits) * 8] = np.unpackbits(bits, bitorder="little").view(np.bool_)
    if mask[rows:].any():
        damaged(f"presence bits name a row beyond {rows}")
    return mask[:rows]


def array_of(values: Any, kind: Any, nulls: BoolArray | None = None) -> Any:
    """Return an Arrow array of NumPy values of the same width as its type, nothing copied but the bits."""
    buffers = [_validity(nulls, len(values)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def with_nulls(array: Any, nulls: BoolArray | None) -> Any:
    """Return a flat array with more rows null."""
    if nulls is None:
        return array
    if array.null_count:
        nulls = nulls | np.asarray(array.is_null())
    return pa.Array.from_buffers(array.type, len(array), [_validity(nulls, len(array)), *array.buffers()[1:]])


def _validity(nulls: BoolArray | None, rows: int) -> Any:
    if nulls is None:
        return None
    if len(nulls) != rows:
        damaged(f"{rows} values have presence bits of {len(nulls)} rows")
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))
