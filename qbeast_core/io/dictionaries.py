"""Which columns deserve a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from qbeast_core.io.value_bytes import rows_within

__all__ = ["choose_dictionary"]

_SAMPLE_ROWS: Final = 16_384
_MOST_NUMBERS: Final = 256  # above it DELTA_BINARY_PACKED is as small, and needs no dictionary to be read
_MOST_VALUES: Final = 1_024
_MOST_BYTES: Final = 16 << 10  # read with every page, so a small part of one
_LEAST_REPEATS: Final = 8
_SAMPLE_BYTES: Final = 16 << 20


def choose_dictionary(frame: pl.DataFrame) -> list[str]:
    """Choose the leaf columns to dictionary encode: those with few distinct values, by a sample of the rows.

    Parameters
    ----------
    frame
        Rows, in any order; about 16,000 of them, evenly spread, are looked at, fewer where they are large.

    Returns
    -------
    list of str
        Dotted leaf columns as Parquet names them, in column order: at most 256 distinct integers, dates,
        timestamps or decimals, or 1,024 other values of 16 KiB together, each 8 times in the sample on
        average.

    Examples
    --------
    >>> frame = pl.DataFrame({"id": range(100), "kind": ["a", "b"] * 50, "tags": [["x"], ["y"]] * 50})
    >>> choose_dictionary(frame)
    ['kind', 'tags.list.element']
    """
    sample = frame.gather_every(max(1, frame.height // _SAMPLE_ROWS))
    return [
        path
        for column in sample.get_columns()
        for path, leaf in _leaves(column.name, _some(column))
        if _repeats(leaf)
    ]


def _leaves(path: str, column: pl.Series) -> Iterator[tuple[str, pl.Series]]:
    if isinstance(column.dtype, pl.List | pl.Array):
        yield from _leaves(f"{path}.list.element", column.drop_nulls().explode())
    elif isinstance(column.dtype, pl.Struct):
        for child in column.dtype.fields:
            yield from _leaves(f"{path}.{child.name}", column.struct.field(child.name))
    else:
        yield path, column


def _some(column: pl.Series) -> pl.Series:
    # Flat values are looked at where they lie; those of lists are copied.
    return rows_within(column, _SAMPLE_BYTES) if column.dtype.is_nested() else column


def _repeats(leaf: pl.Series) -> bool:
    if isinstance(leaf.dtype, pl.Boolean | pl.Null):
        return False
    values = leaf.drop_nulls()
    text = isinstance(leaf.dtype, pl.String | pl.Binary)
    if text and (_length(values) > _MOST_BYTES).any():
        return False
    distinct = values.unique()
    if not 0 < len(distinct) * _LEAST_REPEATS <= len(values):
        return False
    if text:
        return len(distinct) <= _MOST_VALUES and int(_length(distinct).sum()) <= _MOST_BYTES
    packed = leaf.dtype.is_integer() or leaf.dtype.is_temporal() or leaf.dtype.is_decimal()
    return len(distinct) <= (_MOST_NUMBERS if packed else _MOST_VALUES)


def _length(texts: pl.Series) -> pl.Series:
    return texts.str.len_bytes() if isinstance(texts.dtype, pl.String) else texts.bin.size()
