"""Which columns of a data file deserve a dictionary, and which gain nothing from compression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.io.parquet.parquet_write import encode_data_file
from qbeast_core.io.parquet.value_bytes import rows_within

_SAMPLE_ROWS: Final = 16_384
_MAX_NUMBERS: Final = 256  # above it DELTA_BINARY_PACKED is as small, and needs no dictionary to be read
_MAX_VALUES: Final = 1_024
_MAX_BYTES: Final = 16 << 10  # read with every page, so a small part of one
_MIN_REPEATS: Final = 8
_SAMPLE_BYTES: Final = 16 << 20

_MIN_SAVED_SHARE: Final = 0.05
_VALUE_BYTES: Final = 64 << 10  # of a text or binary: how its beginning shrinks tells enough
_COLUMN_BYTES: Final = 16 << 20
_TRIAL_BYTES: Final = 64 << 20


def choose_dictionary(frame: pl.DataFrame) -> list[str]:
    """Choose the leaf columns to dictionary encode: those with few distinct values, by a sample of the rows.

    >>> frame = pl.DataFrame({"id": range(100), "kind": ["a", "b"] * 50, "tags": [["x"], ["y"]] * 50})
    >>> choose_dictionary(frame)
    ['kind', 'tags.list.element']
    """
    step = max(1, frame.height // _SAMPLE_ROWS)
    sample = frame if step == 1 else frame.gather_every(step)
    leaves = (one for column in sample.get_columns() for one in _leaves(column.name, _some(column)))
    return [path for path, leaf in leaves if _repeats(leaf)]


def choose_uncompressed(rows: pl.DataFrame, *, page_rows: int, dictionary: Sequence[str]) -> list[str]:
    """Choose the leaf columns that zstd makes less than 5 % smaller, by trying it on some rows.

    Packed numbers without pattern do not shrink; to compress them all the same costs half of the time that
    a file takes to encode, and some of every scan. What is tried takes some 64 MiB at a time, however large
    the values are.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = pl.DataFrame({"noise": rng.integers(0, 2**62, 4096), "step": range(4096)})
    >>> choose_uncompressed(rows, page_rows=2048, dictionary=[])
    ['noise']
    """
    names: list[str] = []
    for part in _trials(rows):
        trial = encode_data_file(part, weights=None, page_rows=page_rows, dictionary=dictionary)
        group = pq.read_metadata(pa.BufferReader(trial.data)).row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        names += [
            chunk.path_in_schema
            for chunk in chunks
            if chunk.total_compressed_size > (1 - _MIN_SAVED_SHARE) * chunk.total_uncompressed_size
        ]
    return names


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
    # By calls of the column alone: a query costs more than to look at some thousand values.
    dtype, values = leaf.dtype, len(leaf) - leaf.null_count()
    if not values or isinstance(dtype, pl.Boolean | pl.Null):
        return False
    is_text = isinstance(dtype, pl.String | pl.Binary)
    if is_text and leaf.estimated_size() > _SAMPLE_BYTES and not (_bytes_each(leaf) <= _MAX_BYTES).all():
        return False  # large ones are not compared
    max_values = _max_values(dtype)
    if leaf.head(2 * max_values).n_unique() > max_values + 1:  # null may be one
        return False  # to look at all values takes ten times as long
    distinct = leaf.n_unique() - (leaf.null_count() > 0)
    if distinct * _MIN_REPEATS > values or distinct > max_values:
        return False
    return not is_text or bool(_bytes_each(leaf.unique()).sum() <= _MAX_BYTES)


def _max_values(dtype: pl.DataType) -> int:
    packed = dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal()
    return _MAX_NUMBERS if packed else _MAX_VALUES


def _bytes_each(texts: pl.Series) -> pl.Series:
    return texts.str.len_bytes() if texts.dtype == pl.String else texts.bin.size()


def _trials(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the columns, some at a time, with as many of the rows as a trial can hold; none is empty."""
    group: list[pl.Series] = []
    size = 0
    for column in rows.get_columns():
        values = _beginnings(column)
        if not len(values):
            continue
        if group and (len(values) != len(group[0]) or size > _TRIAL_BYTES):
            yield pl.DataFrame(group)
            group, size = [], 0
        group.append(values)
        size += int(values.estimated_size())
    if group:
        yield pl.DataFrame(group)


def _beginnings(column: pl.Series) -> pl.Series:
    if column.estimated_size() <= _COLUMN_BYTES:
        return column
    if isinstance(column.dtype, pl.String | pl.Binary):
        column = column.cast(pl.Binary).bin.head(_VALUE_BYTES)
    return rows_within(column, _COLUMN_BYTES)
