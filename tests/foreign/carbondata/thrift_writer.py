"""Writes Thrift structs as they were read, so that tests change a field of a file and leave the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qbeast_core.io.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    ThriftStruct,
    write_binary,
    write_list,
    write_zigzag,
)

TRUE, FALSE, MAP = 1, 2, 11


def written(fields: dict[int, Any]) -> bytes:
    """Write a struct; integers of any width are alike in the compact protocol."""
    parts: list[bytes] = []
    for number, value in sorted(fields.items()):
        kind = _kind(value)
        head = (TRUE if value else FALSE) if kind == TRUE else kind
        parts += [bytes([head]) + write_zigzag(number), b"" if kind == TRUE else _value(value)]
    return b"".join(parts) + b"\0"


def _kind(value: Any) -> int:
    kinds = {bool: TRUE, int: I64, bytes: BINARY, list: LIST, dict: MAP, ThriftStruct: STRUCT}
    return kinds[type(value)]


def _value(value: Any) -> bytes:
    writers: dict[type, Callable[[Any], bytes]] = {
        bool: lambda flag: bytes([TRUE if flag else FALSE]),
        int: write_zigzag,
        bytes: write_binary,
        list: lambda items: write_list(
            _kind(items[0]) if items else BINARY, [_value(item) for item in items]
        ),
        dict: _texts,
        ThriftStruct: lambda struct: written(struct.fields),
    }
    return writers[type(value)](value)


def _texts(texts: dict[bytes, bytes]) -> bytes:
    if not texts:
        return b"\0"
    assert len(texts) < 0x80  # a varint of a byte
    head = bytes([len(texts), BINARY << 4 | BINARY])
    return head + b"".join(write_binary(key) + write_binary(item) for key, item in texts.items())
