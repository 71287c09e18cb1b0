"""Writes pages of version 3 as CarbonData does, for tests of what reads them: value by value, and by its documents."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from qbeast_carbondata.columns import Column, column_tree
from qbeast_carbondata.pages.codecs import ColumnKind, StoreType
from qbeast_carbondata.pages.page import PageContext
from qbeast_carbondata.structs import ColumnSchema, DataChunk2, DataType, Encoding, LocalDictionaryChunk

DATE_CUTOFF = 1073741823
NULL = b"@NU#LL$!"
_MEASURE = 4  # the kind of a column, in encoder meta
WIDTHS = {StoreType.BYTE: 1, StoreType.SHORT: 2, StoreType.SHORT_INT: 3, StoreType.INT: 4, StoreType.LONG: 8}
_BOUNDS = {
    DataType.BOOLEAN: ">bbq",
    DataType.BYTE: ">bbq",
    DataType.SHORT: ">hhq",
    DataType.INT: ">iiq",
    DataType.LONG: ">qqq",
    DataType.TIMESTAMP: ">qqq",
    DataType.DOUBLE: ">ddd",
    DataType.FLOAT: ">fff",
}


@dataclass(frozen=True)
class FixedDictionaries:
    """One dictionary for every column."""

    array: Any = None

    def members(self, column: Column) -> Any:
        assert column.has_global_dictionary
        return self.array

    def direct_timestamp(self) -> tuple[int, int]:
        return 1000, 0


@dataclass(frozen=True)
class Page:
    """A page's header and bytes, and what else its reader is given."""

    chunk: DataChunk2
    body: bytes
    context: PageContext


def column(
    kind: DataType, precision: int = 0, scale: int = 0, *, dimension: bool = False, dictionary: bool = False
) -> Column:
    encoders = (Encoding.DICTIONARY, Encoding.DIRECT_DICTIONARY) if dictionary else ()
    schema = ColumnSchema(
        data_type=kind,
        name="c",
        encoders=encoders,
        is_dimension=dimension,
        scale=scale,
        precision=precision,
        ordinal=0,
    )
    return column_tree([schema])[0]


def packed(codec: str, data: bytes) -> bytes:
    if codec == "gzip":
        return gzip.compress(data)
    if not data and codec == "snappy":
        return b"\0"
    return pa.compress(data, codec=codec, asbytes=True)


def big(value: int) -> bytes:
    """Return the shortest two's complement, as Java's BigInteger has it."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def bit_set(flags: Sequence[bool]) -> bytes:
    number = sum(1 << place for place, flag in enumerate(flags) if flag)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def narrowed(values: Sequence[int], store: StoreType) -> bytes:
    width = WIDTHS[store]
    order = "big" if store == StoreType.SHORT_INT else "little"
    return b"".join(value.to_bytes(width, order, signed=True) for value in values)


def meta(
    own: Column,
    store: StoreType,
    most: Any,
    *,
    decimals: int = 0,
    codec: str = "snappy",
    precision: int = -1,
) -> bytes:
    """Return a ColumnPageEncoderMeta."""
    kind = StoreType[own.kind.name]
    head = b"\0\1c" + struct.pack(">BBiiBib", kind, _MEASURE, own.schema.scale, precision, store, decimals, 0)
    if own.kind == DataType.DECIMAL:
        item = bytes([own.schema.scale]) + big(int(most))
        bounds = (len(item).to_bytes(2, "big") + item) * 3 + struct.pack(
            ">ii", own.schema.scale, own.schema.precision
        )
    elif own.kind in _BOUNDS:
        bounds = struct.pack(_BOUNDS[own.kind], most, most, 0)
    else:
        bounds = b""
    name = codec.encode()
    return head + bounds + len(name).to_bytes(2, "big") + name


def page(
    own: Column,
    data: bytes,
    encoders: Sequence[int],
    *,
    codec: str,
    metas: Sequence[bytes] = (),
    nulls: Sequence[bool] = (),
    row_ids: bytes = b"",
    runs: bytes = b"",
    local: Any = None,
) -> Page:
    """Put a page together."""
    stored = packed(codec, data)
    chunk = DataChunk2(
        codec=codec,
        data_bytes=len(stored),
        row_id_bytes=len(row_ids),
        run_bytes=len(runs),
        null_bits=packed(codec, bit_set(nulls)) if nulls else None,
        encoders=tuple(encoders),
        encoder_meta=tuple(metas),
    )
    context = PageContext(own, FixedDictionaries(), local_members=local)
    return Page(chunk, stored + row_ids + runs, context)


def numbers(
    own: Column,
    values: Sequence[Any],
    encoding: Encoding,
    store: StoreType,
    *,
    codec: str,
    decimals: int = 0,
) -> Page:
    """Encode numbers: integers as they are or as differences, floats by their decimals."""
    nulls = [value is None for value in values]
    existing = [0 if value is None else value for value in values]
    most = max(existing)
    if encoding == Encoding.DIRECT_COMPRESS:
        form = {StoreType.FLOAT: "<f", StoreType.DOUBLE: "<d"}.get(store)
        data = (
            narrowed(existing, store)
            if form is None
            else b"".join(struct.pack(form, item) for item in existing)
        )
    elif encoding == Encoding.ADAPTIVE_INTEGRAL:
        data = narrowed([int(item) for item in existing], store)
    elif encoding == Encoding.ADAPTIVE_DELTA_INTEGRAL:
        data = narrowed([int(most) - int(item) for item in existing], store)
    else:
        whole = [round(Decimal(repr(item)).scaleb(decimals)) for item in existing]
        far = int(10.0**decimals * most)
        delta = encoding == Encoding.ADAPTIVE_DELTA_FLOATING
        data = narrowed([far - item if delta else item for item in whole], store)
    report = meta(own, store, most, decimals=decimals, codec=codec)
    return page(own, data, [encoding], codec=codec, metas=[report], nulls=nulls)


def shortened(ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """Put pairs in the place of ids that follow each other, and return where these stand."""
    short: list[int] = []
    pairs: list[int] = []
    at = 0
    while at < len(ids):
        end = at
        while end + 1 < len(ids) and ids[end + 1] == ids[end] + 1:
            end += 1
        if end > at:
            pairs.append(len(short))
            short += [ids[at], ids[end]]
        else:
            short.append(ids[at])
        at = end + 1
    return short, pairs


def row_id_page(order: Sequence[int], *, short: bool) -> bytes:
    """Write which row each sorted value belongs to, runs of rows as pairs if that is shorter."""
    ids, pairs = shortened(order) if short else (order, [])
    first = struct.pack(f">{len(ids)}h", *ids)
    return len(first).to_bytes(4, "big") + first + struct.pack(f">{len(pairs)}h", *pairs)


def run_page(values: Sequence[Any]) -> tuple[list[Any], bytes]:
    """Return the values without repetitions, and the page that tells how often each stands there."""
    kept: list[Any] = []
    counts: list[int] = []
    for value in values:
        if kept and kept[-1] == value:
            counts[-1] += 1
        else:
            kept.append(value)
            counts.append(1)
    starts = [sum(counts[:place]) for place in range(len(counts))]
    pairs = [number for pair in zip(starts, counts, strict=True) for number in pair]
    return kept, struct.pack(f">{len(pairs)}h", *pairs)


def length_value(values: Sequence[bytes], width: int) -> bytes:
    return b"".join(len(value).to_bytes(width, "big") + value for value in values)


def texts(
    own: Column, values: Sequence[str | None], *, codec: str, long: bool, sort: bool, short: bool
) -> Page:
    """Encode texts without a dictionary, sorted with row ids if asked for."""
    stored = [NULL if value is None else value.encode() for value in values]
    order = sorted(range(len(stored)), key=lambda row: stored[row]) if sort else range(len(stored))
    data = length_value([stored[row] for row in order], 4 if long else 2)
    encoders = [Encoding.INVERTED_INDEX] if sort else []
    encoders += [Encoding.DIRECT_COMPRESS_VARCHAR] if long else []
    ids = row_id_page(list(order), short=short) if sort else b""
    return page(own, data, encoders, codec=codec, row_ids=ids)


def surrogates(own: Column, values: Sequence[int], width: int, *, codec: str, runs: bool, sort: bool) -> Page:
    """Encode surrogates: sorted, then without repetitions."""
    order = sorted(range(len(values)), key=lambda row: values[row]) if sort else list(range(len(values)))
    ordered = [values[row] for row in order]
    kept, run = run_page(ordered) if runs else (ordered, b"")
    data = b"".join(value.to_bytes(width, "big") for value in kept)
    encoders = [Encoding.DICTIONARY, Encoding.RLE] + ([Encoding.INVERTED_INDEX] if sort else [])
    return page(
        own, data, encoders, codec=codec, row_ids=row_id_page(order, short=True) if sort else b"", runs=run
    )


def local_dictionary(members: Sequence[str | None], *, codec: str) -> LocalDictionaryChunk:
    """Encode the members of a local dictionary, whose surrogates begin at 1."""
    stored = [NULL if member is None else member.encode() for member in members]
    data = length_value(stored, 2)
    head = b"\0\1c" + struct.pack(
        ">BBiiBib", StoreType.STRING, ColumnKind.PLAIN_VALUE, -1, -1, StoreType.BYTE_ARRAY, 0, 0
    )
    name = codec.encode()
    report = head + len(name).to_bytes(2, "big") + name
    used = bit_set([False] + [True] * len(members))
    return LocalDictionaryChunk(
        encoders=(Encoding.DIRECT_COMPRESS,),
        encoder_meta=(report,),
        data=packed(codec, data),
        used=packed(codec, used),
    )


def with_local(made: Page, members: Any) -> Page:
    chunk = replace(
        made.chunk, encoders=tuple(item for item in made.chunk.encoders if item != Encoding.DICTIONARY)
    )
    return Page(chunk, made.body, replace(made.context, local_members=members))
