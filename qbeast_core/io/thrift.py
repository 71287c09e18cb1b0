"""Thrift's compact protocol: read any struct without a schema, and write the parts of a Parquet footer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAX_DEPTH = 64  # deeper than any metadata; damaged bytes must not exhaust the stack


class ThriftError(ValueError):
    """The bytes are not a value of the compact protocol."""


class ThriftStruct(NamedTuple):
    """A parsed struct."""

    # Value by field number; integers as int, binary as bytes, lists and sets as list, maps as dict.
    fields: dict[int, Any]
    # Its position in the buffer, to copy it unchanged.
    start: int
    end: int


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    r"""Read an unsigned integer of seven bits a byte.

    >>> read_varint(b"\xac\x02", 0)
    (300, 2)
    """
    value = shift = 0
    for position in range(at, min(at + 10, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    message = f"no varint at byte {at}"
    raise ThriftError(message)


def read_struct(data: bytes, at: int = 0, depth: int = 0) -> ThriftStruct:
    r"""Read the struct that starts at byte ``at``; fields of unknown meaning are kept.

    >>> read_struct(field(3, I64) + write_zigzag(-7) + b"\x00").fields
    {3: -7}
    """
    # Parses the footer of every file, mostly headers and numbers of one byte: these are read without calls.
    fields: dict[int, Any] = {}
    position, number = at, 0
    try:
        while header := data[position]:
            kind = header & 0x0F
            if header > kind:
                number += header >> 4
                position += 1
            else:
                number, position = _read_zigzag(data, position + 1)
            if I16 <= kind <= I64:
                fields[number], position = _read_zigzag(data, position)
            elif kind in (TRUE, FALSE):  # a boolean field has its value in the header
                fields[number] = kind == TRUE
            else:
                fields[number], position = _read_value(data, position, kind, depth)
    except IndexError as error:
        raise _ended(data) from error
    return ThriftStruct(fields, at, position + 1)


def write_zigzag(value: int) -> bytes:
    """Write a signed integer of up to 64 bits: the body of every i16, i32 and i64.

    >>> write_zigzag(-1).hex(), write_zigzag(150).hex()
    ('01', 'ac02')
    """
    return _write_varint((value << 1) ^ (value >> 63))


def field(step: int, kind: int) -> bytes:
    """Write the header of a field whose number is ``step`` (1 to 15) above the previous field's."""
    return bytes((step << 4 | kind,))


def write_list(kind: int, items: Sequence[bytes]) -> bytes:
    r"""Write a list whose elements are already encoded.

    >>> write_list(I32, [b"\x02"] * 20)[:2].hex()
    'f514'
    """
    size = len(items)
    header = bytes((size << 4 | kind,)) if size < 15 else bytes((0xF0 | kind,)) + _write_varint(size)
    return header + b"".join(items)


def write_binary(value: bytes) -> bytes:
    """Write a byte string with its length."""
    return _write_varint(len(value)) + value


def _write_varint(value: int) -> bytes:
    """Write a non-negative integer, seven bits a byte.

    >>> _write_varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if I16 <= kind <= I64:
        return _read_zigzag(data, at)
    if kind == BINARY:
        size, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
        return _slice(data, at, size), at + size
    if depth >= _MAX_DEPTH:
        message = f"values nest deeper than {_MAX_DEPTH}"
        raise ThriftError(message)
    if kind == STRUCT:
        value = read_struct(data, at, depth + 1)
        return value, value.end
    if kind in (LIST, SET):
        return _read_list(data, at, depth + 1)
    return _read_map(data, at, depth + 1) if kind == MAP else _read_fixed(data, at, kind)


def _read_fixed(data: bytes, at: int, kind: int) -> tuple[float, int]:
    if kind == DOUBLE:
        return float(struct.unpack("<d", _slice(data, at, 8))[0]), at + 8
    byte = _byte(data, at)
    if kind in (TRUE, FALSE):  # a boolean outside a field header is a byte
        return byte == TRUE, at + 1
    if kind == I8:
        return byte - (byte >> 7 << 8), at + 1
    message = f"unknown type {kind} at byte {at}"
    raise ThriftError(message)


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    header = _byte(data, at)
    size, at = (header >> 4, at + 1) if header < 0xF0 else read_varint(data, at + 1)
    _check_size(data, at, size)
    items: list[Any] = []
    kind = header & 0x0F
    read = _read_zigzag if I16 <= kind <= I64 else partial(_read_value, kind=kind, depth=depth)
    for _ in range(size):
        item, at = read(data, at)
        items.append(item)
    return items, at


def _read_map(data: bytes, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    size, at = read_varint(data, at)
    if size == 0:
        return {}, at
    kinds = _byte(data, at)
    at += 1
    _check_size(data, at, size)
    if kinds >> 4 in (LIST, SET, MAP, STRUCT):
        message = f"the keys of a map at byte {at} are collections or structs"
        raise ThriftError(message)
    items: dict[Any, Any] = {}
    for _ in range(size):
        key, at = _read_value(data, at, kinds >> 4, depth)
        value, at = _read_value(data, at, kinds & 0x0F, depth)
        items[key] = value
    return items, at


def _check_size(data: bytes, at: int, size: int) -> None:
    if size > len(data) - at:  # an element takes at least a byte
        message = f"{size} elements cannot follow byte {at} of {len(data)}"
        raise ThriftError(message)


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] if at < len(data) else 0x80
    at += 1
    if value > 0x7F:
        value, at = read_varint(data, at - 1)
    return (value >> 1) ^ -(value & 1), at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise _ended(data)
    return data[at]


def _ended(data: bytes) -> ThriftError:
    return ThriftError(f"the bytes end at {len(data)}, inside a value")


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        message = f"{size} bytes cannot follow byte {at} of {len(data)}"
        raise ThriftError(message)
    return bytes(data[at : at + size])
