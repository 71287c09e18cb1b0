"""Decompresses pages within their limits, and reads the meta of their encoders."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from qbeast_carbondata.damage import damaged, unreadable
from qbeast_core.io.thrift import ThriftError, read_varint
from qbeast_core.space.values import U8Array

_SNAPPY_RATIO: Final = 22  # a copy of three bytes makes at most 64
_SMALL: Final = 1 << 26  # any page may have this size
_MAX_RATIO: Final = 1024  # of larger ones
_MAX_BYTES: Final = (1 << 31) - 1  # of an array of Java
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def decompress(codec: str, data: bytes | memoryview) -> U8Array:
    """Return the decompressed bytes.

    >>> packed = pa.compress(b"carbon" * 3, codec="snappy", asbytes=True)
    >>> decompress("snappy", packed).tobytes()
    b'carboncarboncarbon'
    """
    name = codec.lower()
    if name == "gzip":
        return _gunzip(data)
    if name not in ("snappy", "zstd"):
        unreadable(f"its pages are compressed by {codec!r}")
    size = _snappy_size(data) if name == "snappy" else _zstd_size(data)
    if size == 0:
        return np.empty(0, np.uint8)
    try:
        plain: Any = pa.decompress(data, decompressed_size=size, codec=name)
    except (OSError, ValueError, pa.ArrowException) as error:
        damaged(f"a page is not a {name} block: {error}")
    return np.frombuffer(plain, np.uint8)


def decompress_start(codec: str, data: bytes | memoryview, size_bytes: int) -> U8Array:
    """Return the first of the decompressed bytes, without memory for the rest."""
    name = codec.lower()
    if name in ("zstd", "gzip"):
        size_bytes = _within(size_bytes, len(data), name)
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), name) as reader:
                plain = np.frombuffer(reader.read(size_bytes), np.uint8)
        except (OSError, ValueError, pa.ArrowException) as error:
            damaged(f"a blocklet is not compressed by {name}: {error}")
    else:
        plain = decompress(codec, data)
    if len(plain) < size_bytes:
        damaged(f"a blocklet of {size_bytes} bytes has {len(plain)}")
    return plain[:size_bytes]


def _snappy_size(data: bytes | memoryview) -> int:
    try:
        size, at = read_varint(bytes(data[:10]), 0)
    except ThriftError:
        damaged("a page is not a snappy block: it does not begin with its length")
    if size > (len(data) - at) * _SNAPPY_RATIO:
        damaged(f"a snappy block of {len(data)} bytes claims to hold {size}")
    return size


def _zstd_size(data: bytes | memoryview) -> int:
    """Return the content size in a frame's header."""
    head = bytes(data[:18])
    if head[:4] != _ZSTD_MAGIC or len(head) < 6:
        damaged("a page is not a zstd frame")
    flags = head[4]
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    if width == 0 or at + width > len(head):
        damaged("a zstd frame has no content size")
    size = int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)
    return _within(size, len(data), "zstd")


def _within(size: int, compressed: int, codec: str) -> int:
    if size > _max_size(compressed):
        damaged(f"{compressed} bytes of {codec} claim to hold {size}")
    return size


def _max_size(compressed: int) -> int:
    return min(_MAX_BYTES, max(_SMALL, compressed * _MAX_RATIO))


def _gunzip(data: bytes | memoryview) -> U8Array:
    reader = zlib.decompressobj(wbits=31)
    try:
        plain = reader.decompress(data, _max_size(len(data)))
    except zlib.error as error:
        damaged(f"a page is not a gzip member: {error}")
    if not reader.eof:
        damaged("a gzip member is cut or too large")
    return np.frombuffer(plain, np.uint8)


class StoreType(IntEnum):
    """Type of a column or of the stored values."""

    STRING = 0
    DATE = 1
    TIMESTAMP = 2
    BOOLEAN = 3
    SHORT = 4
    INT = 5
    FLOAT = 6
    LONG = 7
    DOUBLE = 8
    NULL = 9
    DECIMAL = 10
    ARRAY = 11
    STRUCT = 12
    MAP = 13
    BYTE = 14
    BYTE_ARRAY = 15
    SHORT_INT = 16
    LEGACY_LONG = 17
    VARCHAR = 18
    BINARY = 19


class ColumnKind(IntEnum):
    """Role of a column, as far as it decides how its page is read."""

    PLAIN_VALUE = 2
    COMPLEX_PRIMITIVE = 7
    PLAIN_LONG_VALUE = 8


# Layout of maximum, minimum and filler by the column's type.
_BOUNDS: Final[dict[int, struct.Struct]] = {
    StoreType.BOOLEAN: struct.Struct(">bbq"),
    StoreType.BYTE: struct.Struct(">bbq"),
    StoreType.SHORT: struct.Struct(">hhq"),
    StoreType.INT: struct.Struct(">iiq"),
    StoreType.LONG: struct.Struct(">qqq"),
    StoreType.TIMESTAMP: struct.Struct(">qqq"),
    StoreType.DOUBLE: struct.Struct(">ddd"),
    StoreType.FLOAT: struct.Struct(">fff"),
}
_HEAD: Final = struct.Struct(">BBiiBib")


@dataclass(frozen=True, slots=True)
class EncoderMeta:
    """ColumnPageEncoderMeta."""

    column_kind: int
    precision: int
    # Of the values in the page.
    store_type: StoreType
    # Digits behind the point that adaptive floating codecs multiplied away.
    decimals: int
    # Unscaled for decimals.
    maximum: int | float | None
    compressor: str


def read_encoder_meta(data: bytes) -> EncoderMeta:
    """Read an encoder meta."""
    try:
        _, at = _block(data, 0)
        schema, kind, _, precision, store, decimals, _ = _HEAD.unpack_from(data, at)
        maximum, at = _maximum(data, at + _HEAD.size, StoreType(schema))
        compressor = _block(data, at)[0].decode() if at < len(data) else "snappy"
        return EncoderMeta(kind, precision, StoreType(store), decimals, maximum, compressor)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        damaged(f"an encoder meta of {len(data)} bytes cannot be read: {error}")


def _maximum(data: bytes, at: int, schema: StoreType) -> tuple[Any, int]:
    """Return the maximum, and the position behind all bounds."""
    if schema == StoreType.DECIMAL:
        stored, at = _block(data, at)
        for _ in range(2):
            _, at = _block(data, at)
        if len(stored) < 2:
            damaged("the maximum in an encoder meta has no digits")
        return int.from_bytes(stored[1:], "big", signed=True), at + 8  # behind its scale
    form = _BOUNDS.get(schema)
    return (None, at) if form is None else (form.unpack_from(data, at)[0], at + form.size)


def _block(data: bytes, at: int) -> tuple[bytes, int]:
    """Return bytes that follow their length, and their end."""
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if end > len(data):
        damaged("an encoder meta ends inside a name or a decimal")
    return data[at + 2 : end], end
