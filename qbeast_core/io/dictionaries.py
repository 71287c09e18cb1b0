"""Which columns deserve a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

__all__ = ["choose_dictionary"]

_SAMPLE_ROWS: Final = 16_384
_MOST_NUMBERS: Final = 256  # above it DELTA_BINARY_PACKED is as small, and needs no dictionary to be read
_MOST_VALUES: Final = 1_024
_MOST_BYTES: Final = 16 << 10  # read with every page, so a small part of one
_LEAST_REPEATS: Final = 8


def choose_dictionary(frame: pl.DataFrame) -> list[str]:
    """Choose the leaf columns to dictionary encode: those with few distinct values, by a sample of the rows.

    Parameters
    ----------
    frame
        Rows, in any order; about 16,000 of them, evenly spread, are looked at.

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
    return [path for name in sample.columns for path, leaf in _leaves(name, sample[name]) if _repeats(leaf)]


def _leaves(path: str, column: pl.Series) -> Iterator[tuple[str, pl.Series]]:
    if isinstance(column.dtype, pl.List | pl.Array):
        yield from _leaves(f"{path}.list.element", column.drop_nulls().explode())
    elif isinstance(column.dtype, pl.Struct):
        for child in column.dtype.fields:
            yield from _leaves(f"{path}.{child.name}", column.struct.field(child.name))
    else:
        yield path, column


def _repeats(leaf: pl.Series) -> bool:
    if isinstance(leaf.dtype, pl.Boolean | pl.Null):
        return False
    values = leaf.drop_nulls()
    distinct = values.unique()
    if not 0 < len(distinct) * _LEAST_REPEATS <= len(values):
        return False
    if isinstance(leaf.dtype, pl.String | pl.Binary):
        size = distinct.str.len_bytes() if isinstance(leaf.dtype, pl.String) else distinct.bin.size()
        return len(distinct) <= _MOST_VALUES and int(size.sum()) <= _MOST_BYTES
    packed = leaf.dtype.is_integer() or leaf.dtype.is_temporal() or leaf.dtype.is_decimal()
    return len(distinct) <= (_MOST_NUMBERS if packed else _MOST_VALUES)
