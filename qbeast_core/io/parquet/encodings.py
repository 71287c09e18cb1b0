"""Choose how a data file stores its columns: dictionaries, compression, and rows per page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.errors import InvalidInputError
from qbeast_core.io.parquet.encode import encode_data_file
from qbeast_core.io.parquet.tail import PageCuts
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.support.sizing import sizing

_SAMPLE_ROWS: Final = 16_384
_MAX_NUMBERS: Final = 256  # above it, DELTA_BINARY_PACKED is as small and needs no dictionary
_MAX_VALUES: Final = 1_024
_MAX_BYTES: Final = 16 << 10  # every page read fetches the dictionary too
_MIN_REPEATS: Final = 8

_MIN_SAVED_SHARE: Final = 0.05
_VALUE_BYTES: Final = 64 << 10  # the start of a text or binary value is enough for a trial

_PAGE_BYTES: Final = 16 << 20
_MAX_PAGE_BYTES: Final = 1 << 30
_PREFIX_BYTES: Final = 4
_FIXED_BYTES: Final = 8


def choose_dictionary(frame: pl.DataFrame) -> list[str]:
    """Return the leaf columns with few distinct values in a sample of the rows.

    >>> frame = pl.DataFrame({"id": range(100), "kind": ["a", "b"] * 50, "tags": [["x"], ["y"]] * 50})
    >>> choose_dictionary(frame)
    ['kind', 'tags.list.element']
    """
    step = max(1, frame.height // _SAMPLE_ROWS)
    sample = frame if step == 1 else frame.gather_every(step)
    leaves = (
        leaf for column in sample.get_columns() for leaf in _sampled_leaves(column.name, _sample(column))
    )
    return [path for path, leaf in leaves if _repeats(leaf)]


def choose_uncompressed(
    rows: pl.DataFrame, *, page_rows: int, dictionary: Sequence[str], codec: str = "zstd"
) -> list[str]:
    """Return the leaf columns that a compression makes less than 5 % smaller, measured on some rows.

    Packed numbers without a pattern do not shrink. Compressing them would take half of the encoding time of a
    file, and slow down every scan. A trial uses about 64 MiB at a time, however large the values are.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = pl.DataFrame({"noise": rng.integers(0, 2**62, 4096), "step": range(4096)})
    >>> choose_uncompressed(rows, page_rows=2048, dictionary=[])
    ['noise']
    """
    names: list[str] = []
    for part in _trials(rows):
        cuts = PageCuts((part.height,), (page_rows,))
        trial = encode_data_file(part, weights=None, cuts=cuts, dictionary=dictionary, codec=codec)
        group = pq.read_metadata(pa.BufferReader(trial.data)).row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        names += [
            chunk.path_in_schema
            for chunk in chunks
            if chunk.total_compressed_size > (1 - _MIN_SAVED_SHARE) * chunk.total_uncompressed_size
        ]
    return names


def with_short_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows whose texts and binary values are cut to the bytes that matter to the choice of encodings."""
    if rows.estimated_size() <= _VALUE_BYTES:
        return rows
    texts, binaries = pl.selectors.string(), pl.selectors.binary()
    return rows.with_columns(texts.str.head(_VALUE_BYTES), binaries.bin.head(_VALUE_BYTES))


def _sampled_leaves(path: str, column: pl.Series) -> Iterator[tuple[str, pl.Series]]:
    if isinstance(column.dtype, pl.List | pl.Array):
        yield from _sampled_leaves(f"{path}.list.element", column.drop_nulls().explode())
    elif isinstance(column.dtype, pl.Struct):
        for child in column.dtype.fields:
            yield from _sampled_leaves(f"{path}.{child.name}", column.struct.field(child.name))
    else:
        yield path, column


def _sample(column: pl.Series) -> pl.Series:
    # Nested values are copied later, so their sample is limited in bytes.
    return _rows_within(column, sizing().sample_bytes) if column.dtype.is_nested() else column


def _repeats(leaf: pl.Series) -> bool:
    # Methods of the column, no query: starting a query costs more than the work on a few thousand values.
    dtype, values = leaf.dtype, len(leaf) - leaf.null_count()
    if not values or isinstance(dtype, pl.Boolean | pl.Null):
        return False
    is_text = isinstance(dtype, pl.String | pl.Binary)
    if (
        is_text
        and leaf.estimated_size() > sizing().sample_bytes
        and not (_bytes_each(leaf) <= _MAX_BYTES).all()
    ):
        return False  # comparing large values takes too long
    is_packed = dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal()
    max_values = _MAX_NUMBERS if is_packed else _MAX_VALUES
    if leaf.head(2 * max_values).n_unique() > max_values + 1:  # null may be one of them
        return False  # looking at all values takes ten times as long
    distinct = leaf.n_unique() - (leaf.null_count() > 0)
    if distinct * _MIN_REPEATS > values or distinct > max_values:
        return False
    return not is_text or bool(_bytes_each(leaf.unique()).sum() <= _MAX_BYTES)


def _bytes_each(texts: pl.Series) -> pl.Series:
    return texts.str.len_bytes() if texts.dtype == pl.String else texts.bin.size()


def _trials(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield non-empty frames of some columns each, with as many rows as fit into a trial."""
    group: list[pl.Series] = []
    size = 0
    for column in rows.get_columns():
        values = _beginnings(column)
        if not len(values):
            continue
        if group and (len(values) != len(group[0]) or size > sizing().trial_bytes):
            yield pl.DataFrame(group)
            group, size = [], 0
        group.append(values)
        size += int(values.estimated_size())
    if group:
        yield pl.DataFrame(group)


def _beginnings(column: pl.Series) -> pl.Series:
    if column.estimated_size() <= sizing().sample_bytes:
        return column
    if isinstance(column.dtype, pl.String | pl.Binary):
        column = column.cast(pl.Binary).bin.head(_VALUE_BYTES)
    return _rows_within(column, sizing().sample_bytes)


def _rows_within(column: pl.Series, max_bytes: int) -> pl.Series:
    """Return the first values of a column that take at most `max_bytes` together.

    Single values of more than `max_bytes` are left out.

    >>> _rows_within(pl.Series(["a" * 100, "b", "c", "d"]), 12).to_list()
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
