"""Rows on their way to their file: in pieces of bounded size, as compressed Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import I32Array, I64Array, U64Array
from qbeast_core.table.frames import WEIGHT_COLUMN

__all__ = ["pack_rows", "unpack_rows"]

_KEY: Final = WEIGHT_COLUMN  # no column of a table has this name
_PACK_BYTES: Final = 16 << 20
_SENT_BYTES: Final = 8 << 20
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


def pack_rows(
    frame: pl.DataFrame, keys: U64Array, file_starts: U64Array
) -> Iterator[tuple[I32Array, pa.BinaryArray]]:
    """Yield rows as packs, some at a time: the number of each one's file, and its bytes.

    A pack holds rows of one file in order of their keys, some 16 MB of them at most.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows.
    keys : ndarray of uint64, shape (rows,)
        Sort key of each row, which travels with it.
    file_starts : ndarray of uint64, shape (files,)
        The least key of each file, increasing, the first one 0.
    """
    if not frame.height:
        return
    order = np.argsort(keys)  # sorted pieces are merged faster than rows are sorted
    keys = keys[order]
    rows = frame[pl.Series(order)].with_columns(pl.Series(_KEY, keys))
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    most = max(_PACK_BYTES * frame.height // max(table.nbytes, 1), 1)
    yield from _encoded(table, np.searchsorted(keys, file_starts), most)


def unpack_rows(pack: pa.Buffer) -> tuple[pl.DataFrame, U64Array]:
    """Return the rows of a pack, and their sort keys."""
    frame = pl.DataFrame(pa.ipc.open_stream(pack).read_all())
    return frame.drop(_KEY), frame[_KEY].to_numpy()


def _encoded(table: pa.Table, begins: I64Array, most: int) -> Iterator[tuple[I32Array, pa.BinaryArray]]:
    sink, numbers, ends = pa.BufferOutputStream(), list[int](), [0]
    for number, (first, end) in enumerate(pairwise([*begins.tolist(), table.num_rows])):
        for start in range(first, end, most):
            with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
                stream.write_table(table.slice(start, min(most, end - start)))
            numbers.append(number)
            ends.append(sink.tell())
            if ends[-1] >= _SENT_BYTES:
                yield _packs(numbers, ends, sink)
                sink, numbers, ends = pa.BufferOutputStream(), [], [0]
    if numbers:
        yield _packs(numbers, ends, sink)


def _packs(
    numbers: list[int], ends: list[int], sink: pa.BufferOutputStream
) -> tuple[I32Array, pa.BinaryArray]:
    """Take the streams over as they lie one behind the other."""
    offsets = pa.py_buffer(np.array(ends, np.int32))
    array = pa.BinaryArray.from_buffers(pa.binary(), len(numbers), [None, offsets, sink.getvalue()])
    return np.array(numbers, np.int32), array
