"""Columns of few values as dictionary codes: a byte a row instead of sixteen."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

_MAX_VALUES: Final = 1 << 8  # codes are bytes


def encode_few_values(column: pl.Series) -> tuple[pl.Series, pl.Series] | None:
    """Return the code of each row, in the chunks of the column, and the values that the codes are positions of.

    None if the column has no value, many values, or a type that is not much larger than a code.

    >>> codes, values = encode_few_values(pl.Series(["b", "a", None, "b"]))
    >>> codes.to_list(), values.to_list()
    ([0, 1, None, 0], ['b', 'a'])
    """
    is_large = column.dtype == pl.String or column.dtype.is_decimal()
    if not is_large or column.null_count() == len(column):
        return None
    chunks: list[Any] = []
    for chunk in column.get_chunks():
        array: Any = chunk.to_arrow(compat_level=pl.CompatLevel.newest())
        chunks += array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    encoded: Any = pa.chunked_array(chunks).dictionary_encode()
    dictionary = encoded.chunk(0).dictionary  # the same one in all chunks
    if len(dictionary) > _MAX_VALUES:
        return None
    # The chunks stay: rows are taken from a frame whose columns all have the same ones.
    codes = pl.concat(
        [pl.Series(column.name, chunk.indices, dtype=pl.UInt8) for chunk in encoded.chunks], rechunk=False
    )
    return codes, pl.Series(dictionary, dtype=column.dtype)


def used_values(codes: pl.Series, values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the same rows as codes of the values that occur among them.

    >>> codes, values = used_values(pl.Series([2, None, 0], dtype=pl.UInt8), pl.Series(["a", "b", "c"]))
    >>> codes.to_list(), values.to_list()
    ([1, None, 0], ['a', 'c'])
    """
    used = np.zeros(len(values), np.bool_)
    used[codes.drop_nulls().to_numpy()] = True
    if used.all():
        return codes, values
    renumbered = pl.Series((np.cumsum(used) - 1).astype(np.uint8))
    return renumbered.gather(codes).alias(codes.name), values.filter(pl.Series(used))
