"""The meta that an encoder stores beside a page: types, bounds, decimals. It has its own numbers of types."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from qbeast_core.carbondata.damage import damaged


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
    """Role of a column."""

    GLOBAL_DICTIONARY = 0
    DIRECT_DICTIONARY = 1
    PLAIN_VALUE = 2
    COMPLEX = 3
    MEASURE = 4
    COMPLEX_STRUCT = 5
    COMPLEX_ARRAY = 6
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
        _, at = _utf(data, 0)
        schema, kind, _, precision, store, decimals, _ = _HEAD.unpack_from(data, at)
        maximum, at = _maximum(data, at + _HEAD.size, StoreType(schema))
        compressor = _utf(data, at)[0] if at < len(data) else "snappy"
        return EncoderMeta(kind, precision, StoreType(store), decimals, maximum, compressor)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        damaged(f"an encoder meta of {len(data)} bytes cannot be read: {error}")


def _utf(data: bytes, at: int) -> tuple[str, int]:
    size = int.from_bytes(data[at : at + 2], "big")
    end = at + 2 + size
    if end > len(data):
        damaged("an encoder meta ends inside a name")
    return data[at + 2 : end].decode(errors="replace"), end


def _maximum(data: bytes, at: int, schema: StoreType) -> tuple[Any, int]:
    """Return the maximum, and the position behind all bounds."""
    if schema == StoreType.DECIMAL:
        maximum, at = _decimal(data, at)
        for _ in range(2):
            _, at = _decimal(data, at)
        return maximum, at + 8
    form = _BOUNDS.get(schema)
    return (None, at) if form is None else (form.unpack_from(data, at)[0], at + form.size)


def _decimal(data: bytes, at: int) -> tuple[int, int]:
    """Read a length, a scale and an unscaled number."""
    size = int.from_bytes(data[at : at + 2], "big", signed=True)
    end = at + 2 + size
    if size < 2 or end > len(data):
        damaged("an encoder meta ends inside a decimal")
    return int.from_bytes(data[at + 3 : end], "big", signed=True), end
