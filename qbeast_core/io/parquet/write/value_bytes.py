"""Bytes of values per row, to limit samples and pages by bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.support.sizing import sizing

_PAGE_BYTES: Final = 16 << 20
_MAX_PAGE_BYTES: Final = 1 << 30
_PREFIX_BYTES: Final = 4
_FIXED_BYTES: Final = 8


def rows_within(column: pl.Series, max_bytes: int) -> pl.Series:
    """Return the first values of a column that take at most `max_bytes` together.

    Single values of more than `max_bytes` are left out.

    >>> rows_within(pl.Series(["a" * 100, "b", "c", "d"]), 12).to_list()
    ['b', 'c']
    """
    if column.estimated_size() <= max_bytes:
        return column
    sizes = _value_bytes(column)
    alone: BoolArray = sizes <= max_bytes
    kept: BoolArray = alone & (np.cumsum(np.where(alone, sizes, 0)) <= max_bytes)
    return column.filter(pl.Series(kept))


def page_rows_within(frame: pl.DataFrame, page_rows: int) -> int:
    """Return the number of rows per page: `page_rows`, or fewer if values are large.

    >>> page_rows_within(pl.DataFrame({"scan": ["x" * (1 << 20)] * 64}), 256)
    8
    """
    for _, sizes in _large_columns(frame, _PAGE_BYTES):
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        largest = int(sizes.max())
        max_bytes = max(_PAGE_BYTES, min(2 * largest, _MAX_PAGE_BYTES), largest)
        while page_rows > 1 and _largest_page(ends, page_rows) > max_bytes:
            page_rows = -(-page_rows // 2)
    return page_rows


def refuse_huge_values(frame: pl.DataFrame) -> None:
    """Raise if a value is too large for Parquet."""
    for name, sizes in _large_columns(frame, sizing().max_value_bytes):
        row = int(sizes.argmax())
        if sizes[row] > sizing().max_value_bytes:
            msg = (
                f"row {row:,} has a value of {int(sizes[row]):,} bytes in column {name!r}, and Parquet holds "
                f"values up to {sizing().max_value_bytes:,}. Split it over several rows, or keep "
                "it in a file of its own and its place in the table."
            )
            raise InvalidInputError(msg, argument="df")


def _value_bytes(column: pl.Series) -> I64Array:
    """Return the approximate bytes of each value in a plain Parquet page: 8 for a number.

    >>> _value_bytes(pl.Series(["abc", None, ""])).tolist()
    [7, 4, 4]
    >>> _value_bytes(pl.Series([[1, 2], [], None, [3]])).tolist()
    [16, 0, 0, 8]
    """
    dtype = column.dtype
    if isinstance(dtype, pl.String | pl.Binary):
        lengths = column.str.len_bytes() if isinstance(dtype, pl.String) else column.bin.size()
        return lengths.fill_null(0).cast(pl.Int64).to_numpy() + _PREFIX_BYTES
    total = np.zeros(len(column), np.int64)
    if isinstance(dtype, pl.Struct):
        for child in dtype.fields:
            total += _value_bytes(column.struct.field(child.name))
        return total
    if isinstance(dtype, pl.Array):
        return _value_bytes(column.arr.to_list())
    if isinstance(dtype, pl.List):
        counts = column.list.len().fill_null(0).cast(pl.Int64).to_numpy()
        filled = counts > 0
        if filled.any():
            inner = _value_bytes(column.filter(pl.Series(filled)).explode())
            total[filled] = np.add.reduceat(inner, np.cumsum(counts[filled]) - counts[filled])
        return total
    return total + _FIXED_BYTES


def _large_columns(frame: pl.DataFrame, min_bytes: int) -> Iterator[tuple[str, I64Array]]:
    """Yield the name and the bytes of each value of columns of more bytes whose values differ in size."""
    for column in frame.get_columns():
        varies = column.dtype.is_nested() or isinstance(column.dtype, pl.String | pl.Binary)
        if varies and column.estimated_size() > min_bytes:
            yield column.name, _value_bytes(column)


def _largest_page(ends: I64Array, page_rows: int) -> int:
    cuts = ends[np.append(np.arange(0, len(ends) - 1, page_rows), len(ends) - 1)]
    return int(np.diff(cuts).max())
