"""Which columns gain nothing from compression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.io.parquet_write import encode_data_file
from qbeast_core.io.value_bytes import rows_within

__all__ = ["choose_uncompressed"]

_LEAST_SAVED: Final = 0.05
_VALUE_BYTES: Final = 64 << 10  # of a text or binary: how its beginning shrinks tells enough
_COLUMN_BYTES: Final = 16 << 20
_TRIAL_BYTES: Final = 64 << 20


def choose_uncompressed(rows: pl.DataFrame, *, page_rows: int, dictionary: Sequence[str]) -> list[str]:
    """Choose the leaf columns that zstd makes less than 5 % smaller, by trying it on some rows.

    Packed numbers without pattern do not shrink; to compress them all the same costs half of the time that
    a file takes to encode, and some of every scan. What is tried takes some 64 MiB at a time, however large
    the values are.

    Parameters
    ----------
    rows
        Rows as a file will hold them, in its order; some pages of them will do.
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
    >>> choose_uncompressed(rows, page_rows=2048, dictionary=[])
    ['noise']
    """
    found: list[str] = []
    for some in _trials(rows):
        tried = encode_data_file(some, weights=None, page_rows=page_rows, dictionary=dictionary)
        group = pq.read_metadata(pa.BufferReader(tried.data)).row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        found += [
            chunk.path_in_schema
            for chunk in chunks
            if chunk.total_compressed_size > (1 - _LEAST_SAVED) * chunk.total_uncompressed_size
        ]
    return found


def _trials(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the columns, some at a time, with as many of the rows as a trial can hold; none is empty."""
    held: list[pl.Series] = []
    size = 0
    for column in rows.get_columns():
        some = _beginnings(column)
        if not len(some):
            continue
        if held and (len(some) != len(held[0]) or size > _TRIAL_BYTES):
            yield pl.DataFrame(held)
            held, size = [], 0
        held.append(some)
        size += int(some.estimated_size())
    if held:
        yield pl.DataFrame(held)


def _beginnings(column: pl.Series) -> pl.Series:
    if column.estimated_size() <= _COLUMN_BYTES:
        return column
    if isinstance(column.dtype, pl.String | pl.Binary):
        column = column.cast(pl.Binary).bin.head(_VALUE_BYTES)
    return rows_within(column, _COLUMN_BYTES)
