"""Decodes a page to Arrow, by its encoders and dictionary, and its bounds.

Nulls count as 0 (measures) or as the null token (texts): bounds may be wider than the values, never narrower.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import accumulate
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_carbondata.columns import Column
from qbeast_carbondata.damage import Damaged, damaged, unreadable
from qbeast_carbondata.pages.codecs import ColumnKind, StoreType, decompress, read_encoder_meta
from qbeast_carbondata.pages.numbers import NUMBER_ENCODINGS, as_type, decode_numbers, scaled_decimals
from qbeast_carbondata.pages.old_measures import (
    JAVA_MAGIC,
    decode_legacy_measure,
    has_lost_values,
    read_byte_meta,
    read_java_meta,
)
from qbeast_carbondata.pages.texts import (
    NULL_TOKEN,
    Slices,
    array_of,
    big_endian,
    binaries,
    flipped_big_endian,
    length_value,
    null_mask,
    texts,
    whole,
    with_nulls,
)
from qbeast_carbondata.structs import DataChunk2, DataType, Encoding, LocalDictionaryChunk
from qbeast_core.space.values import BoolArray, I64Array, U8Array

# The surrogate of 1970-01-01.
DATE_CUTOFF: Final = 1073741823
NULL_SURROGATE: Final = 1

_TEXTS: Final = frozenset({DataType.STRING, DataType.VARCHAR})
_TIMES: Final = frozenset({DataType.DATE, DataType.TIMESTAMP})
_FLOATS: Final = frozenset({DataType.FLOAT, DataType.DOUBLE})


class Dictionaries(Protocol):
    """The global dictionaries of a table; several threads may use them at once."""

    def members(self, column: Column) -> Any:
        """Return the members of a column's dictionary in the column's Arrow type.

        Surrogate ``s`` of a page is member ``s`` of the array. The first is a null that no page refers to; the member
        that CarbonData stores for null is null.
        """
        ...

    def direct_timestamp(self) -> tuple[int, int]:
        """Return granularity and cut-off in ms of timestamps that are surrogates."""
        ...


def _surrogate_width(cardinality: int | None) -> int:
    """Return the bytes of a surrogate by the number of members; 4 where the file does not store the number.

    >>> [_surrogate_width(members) for members in (None, 0, 255, 256, 66_001, 2**31 - 1)]
    [4, 8, 1, 2, 3, 4]
    """
    if cardinality is None or cardinality < 0:
        return 4
    return (cardinality.bit_length() + 7) // 8 if cardinality else 8


def surrogate_values(surrogates: I64Array, column: Column, dictionaries: Dictionaries) -> Any:
    """Return the values of surrogates: members of the global dictionary, days, or steps from a cut-off."""
    if column.has_global_dictionary or column.kind not in _TIMES:
        return _members_at(surrogates, dictionaries.members(column))
    nulls = surrogates == NULL_SURROGATE
    if column.kind == DataType.DATE:
        return _dates(surrogates, nulls)
    granularity_ms, cutoff_ms = dictionaries.direct_timestamp()
    ms = (surrogates - 2) * granularity_ms + cutoff_ms
    return as_type(ms, column.arrow_type, nulls if nulls.any() else None)


def _members_at(surrogates: I64Array, members: Any) -> Any:
    """Return the members of a dictionary by their surrogates; `Damaged` if it has no such member."""
    if len(surrogates) and (surrogates.min() < 1 or surrogates.max() >= len(members)):
        damaged(f"surrogates reach {surrogates.max()}, and the dictionary has {len(members) - 1} members")
    return members.take(pa.array(surrogates))


def _dates(surrogates: I64Array, nulls: BoolArray) -> Any:
    days = np.where(nulls, 0, surrogates - DATE_CUTOFF)
    return array_of(days.astype(np.int32), pa.date32(), nulls if nulls.any() else None)


def plain_values(
    slices: Slices, column: Column, *, is_child: bool = False, numbers_in_text: bool = False
) -> Any:
    """Return the values of byte strings, by the type of their column."""
    data_type, kind = column.kind, column.arrow_type
    token = slices.equal_to(NULL_TOKEN)
    nulls = token if token.any() else None
    if data_type in _TEXTS:
        return texts(slices, nulls)
    if data_type == DataType.BINARY:
        return binaries(slices)
    empty = token | (slices.lengths == 0)
    if numbers_in_text and data_type not in _TIMES:
        return values_of_texts(slices, column, empty)
    if data_type == DataType.DECIMAL:
        return scaled_decimals(slices, kind, nulls)
    if column.is_nested or (data_type == DataType.DATE and not is_child):
        unreadable(f"a page of {data_type.name} has values that follow their lengths")
    if np.any(slices.lengths[~empty] != column.byte_width):
        if data_type in _TIMES:
            damaged(f"a {data_type.name} does not have {column.byte_width} bytes")
        return values_of_texts(slices, column, empty)
    return _fixed(slices, column, empty)


def _fixed(slices: Slices, column: Column, nulls: BoolArray) -> Any:
    """Return values of one width, whose bytes sort like the values."""
    width = column.byte_width
    stored = np.zeros((len(slices), width), np.uint8)
    stored[~nulls] = slices.data[slices.starts[~nulls][:, None] + np.arange(width)]
    flat = stored.reshape(-1)
    values: Any = flat.view(np.int8) if width == 1 else flipped_big_endian(flat, width)
    if column.kind == DataType.DATE:
        return _dates(values, nulls | (values == NULL_SURROGATE))
    if column.kind in _FLOATS:
        values = values.astype(f"<i{width}").view(f"<f{width}")
    return as_type(values, column.arrow_type, nulls if nulls.any() else None)


def values_of_texts(slices: Slices, column: Column, nulls: BoolArray | None) -> Any:
    """Return texts as values: members of global dictionaries, and numbers of CarbonData up to 1.1."""
    data_type, kind = column.kind, column.arrow_type
    values = texts(slices, nulls)
    if data_type in _TEXTS:
        return values
    if data_type in _TIMES or data_type == DataType.BINARY or column.is_nested:
        unreadable(f"values of type {data_type.name} are stored as text")
    with suppress(pa.ArrowInvalid):
        return pc.cast(values, kind)
    # Java also accepts blanks around a number, a plus before it, and the letter of a type behind it.
    pattern = r"^\s*\+?(.*?)[dDfF]?\s*$" if data_type in _FLOATS else r"^\s*\+?(.*?)\s*$"
    plain = pc.call_function("replace_substring_regex", [values], pc.ReplaceSubstringOptions(pattern, r"\1"))
    try:
        return pc.cast(plain, kind)
    except pa.ArrowInvalid as error:
        damaged(f"neither the bytes nor the text of a {data_type.name}: {error}")


def default_value(column: Column) -> Any:
    """Return the value of rows that were written before a column was added, as an Arrow scalar; None for null."""
    stored = column.schema.default_value
    if not stored or column.is_nested or stored == NULL_TOKEN:
        return None
    kind, data_type = column.arrow_type, column.kind
    try:
        if data_type == DataType.DATE:
            return pa.scalar(int(stored) - DATE_CUTOFF, pa.int32()).cast(kind)
        if data_type == DataType.DECIMAL or (data_type == DataType.TIMESTAMP and len(stored) == 8):
            data = np.frombuffer(stored, np.uint8)
            return plain_values(Slices(data, np.zeros(1, np.int64), np.full(1, len(stored))), column)[0]
        if data_type == DataType.BINARY:
            return pa.scalar(stored, kind)
        return pa.scalar(stored.decode(), pa.large_string()).cast(kind)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        name = column.schema.name
        damaged(f"column {name!r} has the default {stored[:40]!r}, which is not a {data_type.name}: {error}")


_WRITTEN: Final = frozenset(Encoding) - {Encoding.BIT_PACKED, Encoding.DIRECT_STRING}
_LOCAL_WIDTH: Final = 3
_MAX_LOCAL: Final = 1 << 24

# Blocklets of 120,000 rows are usual, the minimum is 2,000.
_WIDTHS: Final = (17, *range(11, 17), *range(18, 26))

_Data = bytes | memoryview
_Unpack = Callable[[_Data], I64Array]


@dataclass(frozen=True, slots=True)
class PageContext:
    """Facts that a page's own bytes do not hold."""

    column: Column
    dictionaries: Dictionaries
    # Members of the column's global dictionary when the file was written; None if unknown.
    cardinality: int | None = None
    # Members of the chunk's local dictionary, see `local_members`; None if it has none.
    local_members: Any = None
    # Whether numbers without a dictionary are texts: CarbonData up to 1.1.
    numbers_in_text: bool = False
    # Whether the column is nested in another.
    is_child: bool = False
    # Of the file. Up to 2, row ids and run lengths are packed by bits; in 1, presence bits are not compressed.
    version: int = 3
    # Receives a message about values that the writer lost; it may refuse the page.
    lost: Callable[[str], None] = damaged


def decode_page(chunk: DataChunk2, body: memoryview, context: PageContext, rows: int) -> Any:
    """Return the values of a page; `rows` is -1 if unknown, as for children of nested columns."""
    first = chunk.encoders[0] if chunk.encoders else None
    if context.local_members is not None:
        data, order, runs = _split_page(chunk, body, rows, context.version)
        surrogates = _ordered(big_endian(data, _LOCAL_WIDTH), order, runs)
        values = _members_at(surrogates, context.local_members)
    elif first in NUMBER_ENCODINGS:
        values = _by_meta(chunk, body, context, rows)
    elif first == Encoding.DELTA:
        values = _legacy_measure(chunk, body, context, rows)
    else:
        values = _dimension(chunk, body, context, rows)
    if 0 <= rows != len(values):
        damaged(f"a page of {rows} rows has {len(values)} values")
    return values


def _split_page(
    chunk: DataChunk2, body: memoryview, rows: int, version: int
) -> tuple[U8Array, I64Array | None, I64Array | None]:
    """Return the decompressed data page, the position of each row's value, and how often each value counts."""
    unknown = [encoder for encoder in chunk.encoders if encoder not in _WRITTEN]
    if unknown:
        unreadable(f"a page has encodings of numbers {unknown}, which no release writes")
    ends = list(accumulate((chunk.data_bytes, chunk.row_id_bytes, chunk.run_bytes)))
    if ends[-1] > len(body):
        damaged(f"a page of {len(body)} bytes has parts of {ends[-1]}")
    is_sorted = Encoding.INVERTED_INDEX in chunk.encoders and chunk.row_id_bytes
    has_runs = Encoding.RLE in chunk.encoders and chunk.run_bytes
    if rows < 0 and (is_sorted or has_runs):
        damaged("values of a complex column are sorted or counted in runs")
    is_packed = version < 3
    order = row_ids(body[ends[0] : ends[1]], rows, is_packed=is_packed) if is_sorted else None
    runs = run_lengths(body[ends[1] : ends[2]], rows, is_packed=is_packed) if has_runs else None
    return decompress(chunk.codec, body[: ends[0]]), order, runs


def local_members(chunk: LocalDictionaryChunk, column: Column, codec: str) -> Any:
    """Return the members of a local dictionary: surrogate ``s`` is member ``s``; unused ones are null."""
    if not chunk.encoders or chunk.encoders[0] != Encoding.DIRECT_COMPRESS or not chunk.encoder_meta:
        unreadable(f"a local dictionary is encoded by {list(chunk.encoders)}")
    meta = read_encoder_meta(chunk.encoder_meta[0])
    width = 4 if meta.column_kind == ColumnKind.PLAIN_LONG_VALUE else 2
    slices = length_value(decompress(meta.compressor, chunk.data), width)
    used = np.flatnonzero(np.unpackbits(decompress(codec, chunk.used), bitorder="little"))
    if len(used) != len(slices) or (len(used) and used[-1] >= _MAX_LOCAL):
        damaged(f"a local dictionary has {len(slices)} values for {len(used)} surrogates")
    values = plain_values(slices, column)
    positions = np.full(max(int(used[-1]) + 1 if len(used) else 0, 2), -1, np.int64)
    positions[used] = np.arange(len(used))
    return values.take(pa.array(positions, mask=positions < 0))


def _by_meta(chunk: DataChunk2, body: memoryview, context: PageContext, rows: int) -> Any:
    if not chunk.encoder_meta:
        damaged("a page has no encoder meta")
    meta = read_encoder_meta(chunk.encoder_meta[0])
    bits = _null_bits(chunk)
    if meta.store_type == StoreType.BINARY:  # not compressed
        slices = length_value(np.frombuffer(body[: chunk.data_bytes], np.uint8), 4)
    else:
        data, order, _ = _split_page(chunk, body, rows, context.version)
        if meta.store_type != StoreType.BYTE_ARRAY:
            return decode_numbers(data, chunk.encoders[0], meta, context.column.arrow_type, bits, order=order)
        if order is not None:
            unreadable("byte arrays with an encoder meta are sorted")
        may_be_short = meta.column_kind in (ColumnKind.COMPLEX_PRIMITIVE, ColumnKind.PLAIN_VALUE)
        is_short = may_be_short and Encoding.INT_LENGTH_COMPLEX_CHILD_BYTE_ARRAY not in chunk.encoders
        slices = length_value(data, 2 if is_short else 4)
    values = plain_values(slices, context.column, is_child=context.is_child)
    return with_nulls(values, null_mask(bits, len(values)))


def _legacy_measure(chunk: DataChunk2, body: memoryview, context: PageContext, rows: int) -> Any:
    if not chunk.encoder_meta or rows < 0:
        damaged("a measure has no encoder meta")
    data, _, _ = _split_page(chunk, body, rows, context.version)
    nulls = null_mask(_null_bits(chunk, context.version), rows)
    stored = chunk.encoder_meta[0]
    meta = read_java_meta(stored) if stored.startswith(JAVA_MAGIC) else read_byte_meta(stored)
    if has_lost_values(meta, len(data), rows):
        context.lost("integers further apart than 2**63 were cut when they were written")
    return decode_legacy_measure(data, meta, rows, context.column.arrow_type, nulls)


def _dimension(chunk: DataChunk2, body: memoryview, context: PageContext, rows: int) -> Any:
    column = context.column
    if not NUMBER_ENCODINGS.isdisjoint(chunk.encoders):
        unreadable(
            f"a page has encodings of numbers {list(chunk.encoders)} in an order that no release writes"
        )
    data, order, runs = _split_page(chunk, body, rows, context.version)
    if Encoding.DICTIONARY in chunk.encoders:
        surrogates = _ordered(big_endian(data, _surrogate_width(context.cardinality)), order, runs)
        return surrogate_values(surrogates, column, context.dictionaries)
    width = 4 if Encoding.DIRECT_COMPRESS_VARCHAR in chunk.encoders else 2
    values = plain_values(
        length_value(data, width), column, is_child=context.is_child, numbers_in_text=context.numbers_in_text
    )
    if runs is not None or order is not None:
        values = values.take(pa.array(_ordered(np.arange(len(values)), order, runs)))
    return with_nulls(values, null_mask(_null_bits(chunk), len(values)))


def _ordered(values: I64Array, order: I64Array | None, runs: I64Array | None) -> I64Array:
    """Undo run lengths, then the sorting."""
    if runs is not None:
        if len(values) != len(runs):
            damaged(f"{len(runs)} runs do not fit {len(values)} values")
        values = np.repeat(values, runs)
    if order is None:
        return values
    if len(order) != len(values):
        damaged(f"{len(values)} values are ordered by {len(order)} row ids")
    return values[order]


def _null_bits(chunk: DataChunk2, version: int = 3) -> U8Array:
    if not chunk.null_bits:
        return np.empty(0, np.uint8)
    if version == 1:
        return np.frombuffer(chunk.null_bits, np.uint8)
    return decompress(chunk.codec, chunk.null_bits)


def fixed_records(chunk: DataChunk2, body: memoryview, context: PageContext) -> I64Array:
    """Return the records of a nested column's page: of an array, counts and starts; of a struct, one number each."""
    width, numbers = (2, 1) if context.version > 2 and context.column.kind == DataType.STRUCT else (4, 2)
    data, _, _ = _split_page(chunk, body, -1, context.version)
    whole(data, width * numbers)
    return big_endian(data, width).reshape(-1, numbers)


def row_ids(data: _Data, rows: int, *, is_packed: bool = False) -> I64Array:
    """Read a row-id page; return the position of each row's value in the data page."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 or size > len(data) - 4:
        damaged(f"a row-id page of {len(data)} bytes has ids of {size}")
    ids, pairs = data[4 : 4 + size], data[4 + size :]

    def read(unpack: _Unpack) -> I64Array:
        return inverse(expand_pairs(unpack(ids), unpack(pairs), rows), rows)

    return _read(read, is_packed=is_packed)


def run_lengths(data: _Data, rows: int, *, is_packed: bool = False) -> I64Array:
    """Read a run-length page: how often each value of the data page counts."""

    def read(unpack: _Unpack) -> I64Array:
        pairs = unpack(data)
        starts, counts = pairs[::2], pairs[1::2]
        if len(pairs) % 2 or np.any(counts < 1) or int(counts.sum()) != rows:
            damaged(f"{len(counts)} runs of {int(counts.sum())} rows do not fit {rows} rows")
        if is_packed and not np.array_equal(starts, np.cumsum(counts) - counts):
            damaged("the runs do not follow each other")
        return counts

    return _read(read, is_packed=is_packed)


def _read(read: Callable[[_Unpack], I64Array], *, is_packed: bool) -> I64Array:
    if not is_packed:
        return read(_shorts)
    for width in _WIDTHS:
        with suppress(Damaged):
            return read(partial(_unpacked, width=width))
    return damaged("no width of its numbers makes a valid page of row ids or runs")


def _shorts(data: _Data) -> I64Array:
    if len(data) % 2:
        damaged(f"{len(data)} bytes are not numbers of 16 bits")
    return np.frombuffer(data, ">i2").astype(np.int64)


def _unpacked(data: _Data, width: int) -> I64Array:
    r"""Read numbers of some bits from one large big-endian number, the last of them in its lowest bits.

    >>> _unpacked(b"\x01\x80\x03", 11)
    array([48,  3])
    """
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    count = len(bits) // width
    table = bits[len(bits) - count * width :].reshape(count, width)
    numbers = np.zeros(count, np.int64)
    for bit in range(width):
        numbers <<= 1
        numbers |= table[:, bit]
    return numbers


def expand_pairs(ids: I64Array, pairs: I64Array, rows: int) -> I64Array:
    """Replace pairs (first, last) by the runs they abbreviate.

    >>> expand_pairs(np.array([4, 0, 2, 3]), np.array([1]), 5)
    array([4, 0, 1, 2, 3])
    """
    if len(pairs) == 0:
        if len(ids) != rows:
            damaged(f"{len(ids)} row ids cannot order {rows} rows")
        return ids
    if pairs[0] < 0 or pairs[-1] + 1 >= len(ids) or np.any(np.diff(pairs) < 2):
        damaged("a row-id page has pairs behind its ids")
    last = np.zeros(len(ids), np.bool_)
    last[pairs + 1] = True
    counts = np.ones(len(ids), np.int64)
    counts[pairs] = ids[pairs + 1] - ids[pairs] + 1
    counts, first = counts[~last], ids[~last]
    if counts.min() < 1 or int(counts.sum()) != rows:
        damaged(f"runs of row ids do not make {rows} rows")
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(rows)


def inverse(ids: I64Array, rows: int) -> I64Array:
    """Return the position of each row's value by the row of each value; `Damaged` if these are not a permutation.

    >>> inverse(np.array([2, 0, 1]), 3)
    array([1, 2, 0])
    """
    if len(ids) != rows or (rows and (ids.min() < 0 or ids.max() >= rows)):
        damaged(f"row ids do not number {rows} rows")
    positions = np.full(rows, -1, np.int64)
    positions[ids] = np.arange(rows)
    if np.any(positions < 0):
        damaged("two row ids are equal")
    return positions


# Minimum and maximum, as Python values of the column's type.
Bounds = tuple[Any, Any]

_WHOLE: Final = frozenset({DataType.SHORT, DataType.INT, DataType.LONG, DataType.TIMESTAMP})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode_bounds(column: Column, stored: tuple[bytes, bytes] | None) -> Bounds | None:
    """Return the bounds of a column, None where they are unknown."""
    if stored is None or column.is_nested or column.has_global_dictionary:
        return None
    decode = _dimension_bound if column.schema.is_dimension else _measure
    try:
        least, most = (decode(column, data) for data in stored)
    except (ValueError, OverflowError):  # not UTF-8, or a time outside of Python's years
        return None
    return None if least is None or most is None else (least, most)


def old_bounds(column: Column, stored: tuple[bytes, bytes] | None) -> tuple[bytes, bytes] | None:
    """Return bounds that CarbonData up to 1.1 stored, None where they cannot be trusted.

    It stored the first and the last value of a page of a dimension, which are its bounds only where an inverted index
    sorts the page; and it stored types other than text and date in other forms than later releases.
    """
    if not column.schema.is_dimension:
        return stored
    is_sorted = Encoding.INVERTED_INDEX in column.schema.encoders
    return stored if is_sorted and column.kind in (DataType.STRING, DataType.DATE) else None


def _dimension_bound(column: Column, data: bytes) -> Any:
    if column.kind == DataType.STRING:
        return data.decode()
    if column.kind == DataType.DATE:
        days = int.from_bytes(data, "big") - DATE_CUTOFF
        return date.fromordinal(_EPOCH.toordinal() + days) if len(data) == 4 else None
    if column.kind not in _WHOLE or len(data) != column.byte_width:
        return None
    value = int.from_bytes(data, "big") - (1 << 8 * len(data) - 1)
    return _EPOCH + timedelta(milliseconds=value) if column.kind == DataType.TIMESTAMP else value


def _measure(column: Column, data: bytes) -> Any:
    kind = column.kind
    if kind == DataType.DECIMAL and 2 <= len(data) <= 18:
        return Decimal(f"{int.from_bytes(data[1:], 'big', signed=True)}E-{data[0]}")  # exact, unlike scaleb
    if len(data) != (1 if kind in (DataType.BYTE, DataType.BOOLEAN) else 8):
        return None
    if kind == DataType.DOUBLE:
        return float(np.frombuffer(data, ">f8")[0])
    value = int.from_bytes(data, "big", signed=True)
    if kind == DataType.TIMESTAMP:
        return _EPOCH + timedelta(milliseconds=value)
    if kind == DataType.BOOLEAN:
        return bool(value)
    return value if kind in _WHOLE or kind == DataType.BYTE else None
