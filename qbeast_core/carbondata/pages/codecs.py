"""Decompresses pages, within what a page can be: a length that a frame claims is not trusted."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import pyarrow as pa

from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.io.thrift import ThriftError, read_varint
from qbeast_core.space.arrays import U8Array

_SNAPPY_RATIO: Final = 22  # a copy of three bytes stands for at most 64
_LEAST_MOST: Final = 1 << 26
_MOST_RATIO: Final = 1024  # beyond what is common, of a page of one value, up to the limit below
_MOST: Final = (1 << 31) - 1  # of an array of Java
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def decompress(codec: str, data: bytes | memoryview) -> U8Array:
    """Return what was compressed.

    >>> packed = pa.compress(b"carbon" * 3, codec="snappy", asbytes=True)
    >>> decompress("snappy", packed).tobytes()
    b'carboncarboncarbon'
    """
    name = codec.lower()
    if name == "gzip":
        return _gunzip(data)
    if name not in ("snappy", "zstd"):
        message = f"its pages are compressed by {codec!r}"
        raise Unreadable(message)
    size = _snappy_size(data) if name == "snappy" else _zstd_size(data)
    if size == 0:
        return np.empty(0, np.uint8)
    try:
        found: Any = pa.decompress(data, decompressed_size=size, codec=name)
    except (OSError, ValueError, pa.ArrowException) as error:
        damaged(f"a page is no {name} block: {error}")
    return np.frombuffer(found, np.uint8)


def decompress_start(codec: str, data: bytes | memoryview, size_bytes: int) -> U8Array:
    """Return the first bytes of what was compressed, without memory for what is behind them."""
    name = codec.lower()
    if name in ("zstd", "gzip"):
        size_bytes = _within(size_bytes, len(data), name)
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), name) as reader:
                found = np.frombuffer(reader.read(size_bytes), np.uint8)
        except (OSError, ValueError, pa.ArrowException) as error:
            damaged(f"a blocklet is not compressed by {name}: {error}")
    else:
        found = decompress(codec, data)
    if len(found) < size_bytes:
        damaged(f"a blocklet of {size_bytes} bytes holds {len(found)}")
    return found[:size_bytes]


def _snappy_size(data: bytes | memoryview) -> int:
    try:
        size, at = read_varint(bytes(data[:10]), 0)
    except ThriftError:
        damaged("a page is no snappy block: it does not begin with its length")
    if size > (len(data) - at) * _SNAPPY_RATIO:
        damaged(f"a snappy block of {len(data)} bytes claims to hold {size}")
    return size


def _zstd_size(data: bytes | memoryview) -> int:
    """Return the content size that a frame's header tells."""
    head = bytes(data[:18])
    if head[:4] != _ZSTD_MAGIC or len(head) < 6:
        damaged("a page is no zstd frame")
    flags = head[4]
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    if width == 0 or at + width > len(head):
        damaged("a zstd frame does not tell how much it holds")
    size = int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)
    return _within(size, len(data), "zstd")


def _within(size: int, compressed: int, codec: str) -> int:
    if size > min(_MOST, max(_LEAST_MOST, compressed * _MOST_RATIO)):
        damaged(f"{compressed} bytes of {codec} claim to hold {size}")
    return size


def _gunzip(data: bytes | memoryview) -> U8Array:
    reader = zlib.decompressobj(wbits=31)
    most = min(_MOST, max(_LEAST_MOST, len(data) * _MOST_RATIO))
    try:
        found = reader.decompress(data, most)
    except zlib.error as error:
        damaged(f"a page is no gzip member: {error}")
    if not reader.eof:
        damaged("a gzip member is cut, or holds impossibly much")
    return np.frombuffer(found, np.uint8)
