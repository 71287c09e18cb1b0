"""A page to Arrow: which of the ways to decode it is right, by its encoders and its dictionary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.carbondata.pages.bit_packed import packed_row_ids, packed_run_lengths
from qbeast_core.carbondata.pages.codecs import decompress
from qbeast_core.carbondata.pages.dimensions import (
    dates,
    direct_timestamps,
    members_at,
    plain_values,
    surrogate_width,
)
from qbeast_core.carbondata.pages.encoder_meta import ColumnKind, EncoderMeta, StoreType, read_encoder_meta
from qbeast_core.carbondata.pages.java_meta import JAVA_MAGIC, read_java_meta
from qbeast_core.carbondata.pages.legacy_measures import (
    decode_legacy_measure,
    has_lost_values,
    read_byte_meta,
)
from qbeast_core.carbondata.pages.nulls import null_mask, with_nulls
from qbeast_core.carbondata.pages.numbers import NUMBER_ENCODINGS, decode_numbers
from qbeast_core.carbondata.pages.row_order import inverse, row_ids, run_lengths
from qbeast_core.carbondata.pages.texts import length_value
from qbeast_core.carbondata.pages.widths import big_endian, whole
from qbeast_core.carbondata.structs.data_file import DataChunk2, LocalDictionaryChunk
from qbeast_core.carbondata.structs.schema import DataType, Encoding
from qbeast_core.space.arrays import I64Array, U8Array

_WRITTEN: Final = frozenset(Encoding) - {Encoding.BIT_PACKED, Encoding.DIRECT_STRING}
_LOCAL_WIDTH: Final = 3
_MOST_LOCAL: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page's own bytes do not tell."""

    column: Column
    # Of the chunk's local dictionary, as `local_members` gives them; None if it has none.
    local_members: Any
    # Members of the column's global dictionary when the file was written; None if the file does not tell.
    cardinality: int | None
    # Gives the members of the column's global dictionary.
    members: Callable[[], Any]
    # Granularity and cut-off of timestamps as surrogates, in ms.
    direct_timestamp: tuple[int, int] = (1000, 0)
    # Whether numbers without dictionary are texts: CarbonData up to 1.1.
    numbers_in_text: bool = False
    # Whether the column lies in another.
    is_child: bool = False
    # Of the file's format. Up to 2 row ids and run lengths are packed by bits, in 1 presence bits are not
    # compressed.
    version: int = 3
    # Is told what is known to have been lost when a page was written; it may refuse the page.
    lost: Callable[[str], None] = damaged


def _split_page(
    chunk: DataChunk2, body: memoryview, rows: int, version: int
) -> tuple[U8Array, I64Array | None, I64Array | None]:
    """Return the decompressed data page, where the value of each row stands, and how often each value counts."""
    unknown = [one for one in chunk.encoders if one not in _WRITTEN]
    if unknown:
        message = f"a page has encodings of numbers {unknown}, which no release writes"
        raise Unreadable(message)
    is_packed = version < 3
    ends = list(accumulate((chunk.data_bytes, chunk.row_id_bytes, chunk.run_bytes)))
    if ends[-1] > len(body):
        damaged(f"a page of {len(body)} bytes has parts of {ends[-1]}")
    order = None
    if Encoding.INVERTED_INDEX in chunk.encoders and chunk.row_id_bytes:
        if rows < 0:
            damaged("values of a complex column are sorted")
        order = inverse((packed_row_ids if is_packed else row_ids)(body[ends[0] : ends[1]], rows))
    runs = None
    if Encoding.RLE in chunk.encoders and chunk.run_bytes:
        if rows < 0:
            damaged("values of a complex column are counted in runs")
        runs = (packed_run_lengths if is_packed else run_lengths)(body[ends[1] : ends[2]], rows)
    return decompress(chunk.compression.compressor, body[: ends[0]]), order, runs


def decode_page(chunk: DataChunk2, body: memoryview, context: PageContext, rows: int) -> Any:
    """Return the values of a page."""
    first = chunk.encoders[0] if chunk.encoders else None
    if context.local_members is not None:
        found = _by_local_dictionary(chunk, body, context, rows)
    elif first in NUMBER_ENCODINGS:
        found = _by_meta(chunk, body, context, rows)
    elif first == Encoding.DELTA:
        found = _legacy_measure(chunk, body, context, rows)
    else:
        found = _dimension(chunk, body, context, rows)
    if 0 <= rows != len(found):
        damaged(f"a page of {rows} rows holds {len(found)} values")
    return found


def local_members(chunk: LocalDictionaryChunk, column: Column, codec: str) -> Any:
    """Return the members of a local dictionary: surrogate ``s`` is member ``s``; those not used are null."""
    if not chunk.encoders or chunk.encoders[0] != Encoding.DIRECT_COMPRESS or not chunk.encoder_meta:
        message = f"a local dictionary is encoded by {list(chunk.encoders)}"
        raise Unreadable(message)
    meta = read_encoder_meta(chunk.encoder_meta[0])
    width = 4 if meta.column_kind == ColumnKind.PLAIN_LONG_VALUE else 2
    slices = length_value(decompress(meta.compressor, chunk.data), width)
    used = np.flatnonzero(np.unpackbits(decompress(codec, chunk.used), bitorder="little"))
    if len(used) != len(slices) or (len(used) and used[-1] >= _MOST_LOCAL):
        damaged(f"a local dictionary has {len(slices)} values for {len(used)} surrogates")
    values = plain_values(slices, column.kind, column.arrow_type)
    place = np.full(int(used[-1]) + 1 if len(used) else 0, -1, np.int64)
    place[used] = np.arange(len(used))
    members = values.take(pa.array(place, mask=place < 0))
    return members if len(place) > 1 else pa.concat_arrays([members, pa.nulls(2 - len(place), values.type)])


def _by_local_dictionary(chunk: DataChunk2, body: memoryview, context: PageContext, rows: int) -> Any:
    data, order, runs = _split_page(chunk, body, rows, context.version)
    surrogates = _ordered(big_endian(data, _LOCAL_WIDTH), order, runs)
    if len(surrogates) and surrogates.min() < 1:
        damaged("a page refers to surrogate 0 of a local dictionary")
    return members_at(surrogates, context.local_members)


def _by_meta(chunk: DataChunk2, body: memoryview, context: PageContext, rows: int) -> Any:
    if not chunk.encoder_meta:
        damaged("a page has no encoder meta")
    meta = read_encoder_meta(chunk.encoder_meta[0])
    kind = context.column.arrow_type
    bits = _null_bits(chunk)
    if meta.store_type == StoreType.BINARY:  # stored as it is
        found = plain_values(
            length_value(np.frombuffer(body[: chunk.data_bytes], np.uint8), 4), context.column.kind, kind
        )
        return with_nulls(found, null_mask(bits, len(found)))
    data, order, _ = _split_page(chunk, body, rows, context.version)
    if meta.store_type == StoreType.BYTE_ARRAY:
        if order is not None:
            message = "byte arrays with an encoder meta are sorted"
            raise Unreadable(message)
        found = plain_values(
            length_value(data, _length_width(chunk, meta)),
            context.column.kind,
            kind,
            is_child=context.is_child,
        )
        return with_nulls(found, null_mask(bits, len(found)))
    return decode_numbers(data, chunk.encoders[0], meta, kind, bits, order=order)


def _length_width(chunk: DataChunk2, meta: EncoderMeta) -> int:
    if meta.column_kind in (ColumnKind.COMPLEX_PRIMITIVE, ColumnKind.PLAIN_VALUE):
        return 4 if Encoding.INT_LENGTH_COMPLEX_CHILD_BYTE_ARRAY in chunk.encoders else 2
    return 4


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
        message = f"a page has encodings of numbers {list(chunk.encoders)} in an order that no release writes"
        raise Unreadable(message)
    data, order, runs = _split_page(chunk, body, rows, context.version)
    if Encoding.DICTIONARY in chunk.encoders:
        surrogates = _ordered(big_endian(data, surrogate_width(context.cardinality)), order, runs)
        if column.kind == DataType.DATE and not column.has_global_dictionary:
            return dates(surrogates)
        if column.kind == DataType.TIMESTAMP and not column.has_global_dictionary:
            return direct_timestamps(surrogates, column.arrow_type, *context.direct_timestamp)
        return members_at(surrogates, context.members())
    width = 4 if Encoding.DIRECT_COMPRESS_VARCHAR in chunk.encoders else 2
    found = plain_values(
        length_value(data, width),
        column.kind,
        column.arrow_type,
        is_child=context.is_child,
        numbers_in_text=context.numbers_in_text,
    )
    if runs is not None or order is not None:
        found = found.take(pa.array(_ordered(np.arange(len(found)), order, runs)))
    return with_nulls(found, null_mask(_null_bits(chunk), len(found)))


def _ordered(values: I64Array, order: I64Array | None, runs: I64Array | None) -> I64Array:
    """Undo run lengths, then the sorting."""
    if runs is not None:
        values = _repeated(values, runs)
    return values if order is None else values[_fitting(order, len(values))]


def _repeated(values: I64Array, runs: I64Array) -> I64Array:
    if len(values) != len(runs):
        damaged(f"{len(runs)} runs do not fit {len(values)} values")
    return np.repeat(values, runs)


def _fitting(order: I64Array, values: int) -> I64Array:
    if len(order) != values:
        damaged(f"{values} values are ordered by {len(order)} row ids")
    return order


def _null_bits(chunk: DataChunk2, version: int = 3) -> U8Array:
    if not chunk.null_bits:
        return np.empty(0, np.uint8)
    if version == 1:
        return np.frombuffer(chunk.null_bits, np.uint8)
    return decompress(chunk.compression.compressor, chunk.null_bits)


def fixed_records(chunk: DataChunk2, body: memoryview, width: int) -> I64Array:
    """Return the big-endian int32 or int16 numbers of the records of a nested column's page, shape (rows, numbers)."""
    data, _, _ = _split_page(chunk, body, -1, 3)
    whole(data, width)
    return big_endian(data, 4 if width == 8 else 2).reshape(-1, 2 if width == 8 else 1)
