"""Which columns gain nothing from compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.io.parquet_write import encode_data_file
from qbeast_core.space.arrays import I32Array

__all__ = ["choose_uncompressed"]

_LEAST_SAVED: Final = 0.05


def choose_uncompressed(
    rows: pl.DataFrame, *, weights: I32Array, page_rows: int, dictionary: Sequence[str]
) -> list[str]:
    """Choose the leaf columns that zstd makes less than 5 % smaller, by trying it on some rows.

    Packed numbers without pattern do not shrink; to compress them all the same costs half of the time that
    a file takes to encode, and some of every scan.

    Parameters
    ----------
    rows
        Rows as a file will hold them, in its order; some pages of them will do.
    weights
        int32, shape (rows,).
    page_rows
        Rows of a page.
    dictionary
        Dotted leaf columns that are dictionary encoded.

    Returns
    -------
    list of str
        Dotted leaf columns as Parquet names them; none for no rows.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = pl.DataFrame({"noise": rng.integers(0, 2**62, 4096), "step": range(4096)})
    >>> choose_uncompressed(rows, weights=np.arange(4096, dtype=np.int32), page_rows=2048, dictionary=[])
    ['noise']
    """
    if rows.height == 0:
        return []
    tried = encode_data_file(rows, weights=weights, page_rows=page_rows, dictionary=dictionary)
    group = pq.read_metadata(pa.BufferReader(tried.data)).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.total_compressed_size > (1 - _LEAST_SAVED) * chunk.total_uncompressed_size
    ]
