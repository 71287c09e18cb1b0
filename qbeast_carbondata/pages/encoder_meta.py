"""The meta that an encoder stores beside a page: types, bounds, decimals. It has its own numbers of types."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from qbeast_carbondata.damage import damaged


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
