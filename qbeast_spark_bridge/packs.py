"""Rows on their way to their file: in pieces of bounded size, as compressed Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import U64Array
from qbeast_core.table.frames import WEIGHT_COLUMN
from qbeast_core.table.scatter_job import FileNumbers

__all__ = ["pack_rows", "unpack_rows"]

_KEY: Final = WEIGHT_COLUMN  # no column of a table has this name
_PACK_BYTES: Final = 16 << 20
_FEW_FILES: Final = 1 << 16  # 16-bit numbers are sorted by counting
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def pack_rows(frame: pl.DataFrame, files: FileNumbers, keys: U64Array) -> Iterator[tuple[int, bytes]]:
    """Yield the rows as (number of their file, bytes), by file, some 16 MB of rows at most in one pack.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows.
    files : ndarray of int32, shape (rows,)
        File of each row, from 0.
    keys : ndarray of uint64, shape (rows,)
        Sort key of each row, which travels with it.
    """
    if not frame.height:
        return
    order = np.argsort(files.astype(np.uint16) if files.max() < _FEW_FILES else files, kind="stable")
    by_file = frame.with_columns(pl.Series(_KEY, keys)).select(pl.all().gather(pl.Series(order)))
    table = by_file.to_arrow(compat_level=pl.CompatLevel.oldest())
    most = max(_PACK_BYTES * frame.height // max(table.nbytes, 1), 1)
    numbers, starts = np.unique(files[order], return_index=True)
    ends = [*starts[1:].tolist(), frame.height]
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
        for first in range(start, end, most):
            yield number, _encode(table.slice(first, min(most, end - first)))


def unpack_rows(pack: pa.Buffer) -> tuple[pl.DataFrame, U64Array]:
    """Return the rows of a pack, and their sort keys."""
    frame = pl.DataFrame(pa.ipc.open_stream(pack).read_all())
    return frame.drop(_KEY), frame[_KEY].to_numpy()


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())
