"""Writes pages of versions 1 and 2, dictionaries and rows of streams, as CarbonData does: for tests alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from qbeast_carbondata.columns import Column
from qbeast_carbondata.pages.page import PageContext
from qbeast_carbondata.structs import DataChunk2, Encoding
from qbeast_core.io.thrift import BINARY, LIST, field, write_binary, write_list
from tests.foreign.carbondata.page_encoder import FixedDictionaries, shortened

NULL = b"@NU#LL$!"


def pack_bits(numbers: Sequence[int], width: int) -> bytes:
    """Put numbers into one, the last of them lowest, in as many bytes as it needs."""
    whole = 0
    for number in numbers:
        whole = whole << width | number
    return whole.to_bytes((len(numbers) * width + 7) // 8, "big")


def snappy(data: bytes) -> bytes:
    return pa.compress(data, codec="snappy", asbytes=True) if data else b"\0"


def null_bits(nulls: Sequence[bool], version: int) -> bytes:
    """Return presence bits, without the zeros at their end."""
    number = sum(1 << row for row, null in enumerate(nulls) if null)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "little")
    return raw if version == 1 else snappy(raw)


def page(
    values: Sequence[bytes],
    encoders: Sequence[int],
    *,
    bits: int = 17,
    is_sorted: bool = False,
    in_runs: bool = False,
) -> tuple[DataChunk2, memoryview]:
    """Write a page of a dimension: values of rows as bytes, sorted and in runs if that is asked for."""
    listed = list(encoders)
    rows = sorted(range(len(values)), key=lambda row: (values[row], row)) if is_sorted else range(len(values))
    stored = [values[row] for row in rows]
    ids = runs = b""
    if is_sorted:
        listed.append(Encoding.INVERTED_INDEX)
        short, pairs = shortened(rows)
        first = pack_bits(short, bits)
        ids = len(first).to_bytes(4, "big") + first + pack_bits(pairs, bits)
    if in_runs:
        listed.append(Encoding.RLE)
        starts = [at for at in range(len(stored)) if not at or stored[at] != stored[at - 1]]
        ends = [*starts[1:], len(stored)]
        runs = pack_bits(
            [n for start, end in zip(starts, ends, strict=True) for n in (start, end - start)], bits
        )
        stored = [stored[at] for at in starts]
    data = snappy(b"".join(stored))
    return chunk(data, listed, ids=ids, runs=runs), memoryview(data + ids + runs)


def chunk(
    data: bytes,
    encoders: Sequence[int],
    *,
    ids: bytes = b"",
    runs: bytes = b"",
    nulls: bytes | None = None,
    meta: bytes | None = None,
) -> DataChunk2:
    return DataChunk2(
        codec="snappy",
        data_bytes=len(data),
        row_id_bytes=len(ids),
        run_bytes=len(runs),
        null_bits=nulls,
        encoders=tuple(encoders),
        encoder_meta=() if meta is None else (meta,),
    )


def size_of(value: float) -> int:
    return next((w for w in (1, 2, 4) if -(1 << (8 * w - 1)) <= value < 1 << (8 * w - 1)), 8)


def integers_page(values: Sequence[int | None], version: int) -> tuple[DataChunk2, memoryview]:
    """Write integers: as they are, or as differences from the largest where those are narrower than it."""
    existing = [value for value in values if value is not None]
    most, least = max(existing), min(existing)
    narrow = size_of(most - least)
    is_delta = narrow < size_of(most)
    width = narrow if is_delta else max(size_of(most), size_of(least))
    mask = (1 << 8 * width) - 1
    stored = [(most - (value or 0) if is_delta else value or 0) & mask for value in values]
    return _measure(stored, width, java_meta("d", 0, most, least), values, version)


def doubles_page(
    scaled: Sequence[int | None], decimals: int, version: int, *, plain: bool
) -> tuple[DataChunk2, memoryview]:
    """Write doubles of so many digits behind the point: scaled, or as they are."""
    existing = [value for value in scaled if value is not None]
    most, least = max(existing), min(existing)
    meta = java_meta("n", decimals, most / 10**decimals, least / 10**decimals)
    if plain:
        doubles = [struct.unpack("<Q", struct.pack("<d", (value or 0) / 10**decimals))[0] for value in scaled]
        return _measure(doubles, 8, meta, scaled, version)
    far = most if abs(most) >= abs(least) else least
    narrow = size_of(most - least)
    is_delta = narrow < size_of(far)
    width = narrow if is_delta else max(size_of(most), size_of(least))
    mask = (1 << 8 * width) - 1
    stored = [(most - (value or 0) if is_delta else value or 0) & mask for value in scaled]
    return _measure(stored, width, meta, scaled, version)


def _measure(
    stored: Sequence[int], width: int, meta: bytes, values: Sequence[Any], version: int
) -> tuple[DataChunk2, memoryview]:
    data = snappy(b"".join(value.to_bytes(width, "little") for value in stored))
    nulls = null_bits([value is None for value in values], version)
    return chunk(data, [Encoding.DELTA], nulls=nulls, meta=meta), memoryview(data)


def java_meta(kind: str, decimals: int, most: float, least: float) -> bytes:
    """Serialise a ValueEncoderMeta as Java does."""
    boxed, letter, form = ("Double", b"D", ">d") if kind == "n" else ("Long", b"J", ">q")
    top = b"\xac\xed\x00\x05\x73\x72" + _utf("org.apache.carbondata.core.metadata.ValueEncoderMeta")
    top += (
        b"\0" * 8
        + b"\x02\0\x06"
        + b"B"
        + _utf("dataTypeSelected")
        + b"I"
        + _utf("decimal")
        + b"C"
        + _utf("type")
    )
    top += b"L" + _utf("maxValue") + b"\x74" + _utf("Ljava/lang/Object;")
    top += (
        b"".join(b"L" + _utf(name) + b"\x71\0\x7e\0\x01" for name in ("minValue", "uniqueValue"))
        + b"\x78\x70"
    )
    top += struct.pack(">biH", 0, decimals, ord(kind))
    number = (
        b"\x72" + _utf(f"java.lang.{boxed}") + b"\x11" * 8 + b"\x02\0\x01" + letter + _utf("value") + b"\x78"
    )
    number += b"\x72" + _utf("java.lang.Number") + b"\x22" * 8 + b"\x02\0\0\x78\x70"
    existing = b"\x73\x71\0\x7e\0\x03"
    return (
        top
        + b"\x73"
        + number
        + struct.pack(form, most)
        + b"".join(existing + struct.pack(form, value) for value in (least, least))
    )


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def dictionary(loads: Sequence[Sequence[bytes]]) -> bytes:
    """Write a ``.dict``: a chunk for each load."""
    chunks = [
        field(1, LIST) + write_list(BINARY, [write_binary(item) for item in load]) + b"\0" for load in loads
    ]
    return b"".join(chunks)


def row(fields: Sequence[bytes | None]) -> bytes:
    """Write a row of a stream: bits of what is null, then the fields as given."""
    number = sum(1 << place for place, item in enumerate(fields) if item is None)
    bits = number.to_bytes((number.bit_length() + 7) // 8, "little")
    return len(bits).to_bytes(2, "big") + bits + b"".join(item for item in fields if item is not None)


def context(column: Column, version: int, **facts: Any) -> PageContext:
    """Return what a page of an old file is decoded with."""
    dictionaries = FixedDictionaries(facts.pop("members", None))
    return PageContext(column, dictionaries, numbers_in_text=True, version=version, **facts)
