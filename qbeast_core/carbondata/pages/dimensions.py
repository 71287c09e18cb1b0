"""Pages of dimensions without an encoder meta: surrogates of dictionaries, and values behind their lengths."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.carbondata.pages.decimals import scaled_decimals
from qbeast_core.carbondata.pages.nulls import array_of
from qbeast_core.carbondata.pages.number_texts import values_of_texts
from qbeast_core.carbondata.pages.numbers import as_type
from qbeast_core.carbondata.pages.texts import NULL_TOKEN, Slices, binaries, texts
from qbeast_core.carbondata.pages.widths import flipped_big_endian
from qbeast_core.carbondata.structs.schema import DataType
from qbeast_core.space.arrays import BoolArray, I64Array

# The surrogate of 1970-01-01; 1 is null.
DATE_CUTOFF: Final = 1073741823

_NULL_SURROGATE: Final = 1
_INT32_MAX: Final = 2**31 - 1
_WIDTHS: Final = {
    DataType.BOOLEAN: 1,
    DataType.BYTE: 1,
    DataType.SHORT: 2,
    DataType.INT: 4,
    DataType.FLOAT: 4,
    DataType.LONG: 8,
    DataType.DOUBLE: 8,
    DataType.TIMESTAMP: 8,
}
_TIMES: Final = frozenset({DataType.DATE, DataType.TIMESTAMP})


def surrogate_width(cardinality: int | None) -> int:
    """Return the bytes of a surrogate of a dictionary of so many members; 4 where the file does not tell.

    >>> [surrogate_width(members) for members in (None, 0, 255, 256, 66_001, 2**31 - 1)]
    [4, 8, 1, 2, 3, 4]
    """
    if cardinality is None or cardinality < 0:
        return 4
    return (cardinality.bit_length() + 7) // 8 if cardinality else 8


def members_at(surrogates: I64Array, members: Any) -> Any:
    """Return the members of a dictionary that surrogates stand for; `Damaged` if there are none so many."""
    if len(surrogates) and (surrogates.min() < 1 or surrogates.max() >= len(members)):
        damaged(f"surrogates reach {surrogates.max()}, and the dictionary has {len(members) - 1} members")
    return members.take(pa.array(surrogates))


def dates(surrogates: I64Array) -> Any:
    """Return dates of surrogates that count days."""
    nulls = surrogates == _NULL_SURROGATE
    days = np.where(nulls, 0, surrogates - DATE_CUTOFF)
    return array_of(days.astype(np.int32), pa.date32(), nulls if nulls.any() else None)


def direct_timestamps(surrogates: I64Array, kind: Any, granularity_ms: int, cutoff_ms: int) -> Any:
    """Return timestamps of surrogates that count steps from a cut-off."""
    nulls = surrogates == _NULL_SURROGATE
    ms = (surrogates - 2) * granularity_ms + cutoff_ms
    return as_type(ms, kind, nulls if nulls.any() else None)


def plain_values(
    slices: Slices, data_type: DataType, kind: Any, *, is_child: bool = False, numbers_in_text: bool = False
) -> Any:
    """Return the values of byte strings, by their type."""
    token = slices.equal_to(NULL_TOKEN)
    nulls = token if token.any() else None
    if data_type in (DataType.STRING, DataType.VARCHAR):
        return texts(slices, nulls)
    if data_type == DataType.BINARY:
        return binaries(slices)
    empty = token | (slices.lengths == 0)
    if numbers_in_text and data_type not in _TIMES:
        return values_of_texts(slices, data_type, kind, empty)
    if data_type == DataType.DECIMAL:
        return scaled_decimals(slices, kind, nulls)
    width = 4 if data_type == DataType.DATE and is_child else _WIDTHS.get(data_type)
    if width is None:
        message = f"a page of {data_type.name} holds values behind their lengths"
        raise Unreadable(message)
    if np.any(slices.lengths[~empty] != width):
        if data_type in _TIMES:
            damaged(f"a {data_type.name} has not the bytes of one")
        return values_of_texts(slices, data_type, kind, empty)
    return _fixed(slices, data_type, kind, empty)


def _fixed(slices: Slices, data_type: DataType, kind: Any, nulls: BoolArray) -> Any:
    """Return values of one width, which sort as their bytes do."""
    width = _WIDTHS.get(data_type, 4)
    stored = np.zeros((len(slices), width), np.uint8)
    stored[~nulls] = slices.data[slices.starts[~nulls][:, None] + np.arange(width)]
    flat = stored.reshape(-1)
    empty = nulls if nulls.any() else None
    if width == 1:
        return as_type(flat.view(np.int8), kind, empty)
    values = flipped_big_endian(flat, width)
    if data_type in (DataType.FLOAT, DataType.DOUBLE):
        bits = values.astype(f"<i{width}").view(f"<u{width}")
        return as_type(bits.view(f"<f{width}"), kind, empty)
    if data_type == DataType.DATE:
        nulls = nulls | (values == _NULL_SURROGATE)
        return array_of(np.where(nulls, 0, values - DATE_CUTOFF).astype(np.int32), kind, nulls)
    return as_type(values, kind, empty)


def default_value(column: Column) -> Any:
    """Return what rows have that were written before a column was added, as an Arrow scalar; None for null."""
    stored = column.schema.default_value
    if not stored or column.is_nested or stored == NULL_TOKEN:
        return None
    kind, data_type = column.arrow_type, column.kind
    try:
        if data_type == DataType.DATE:
            return pa.scalar(int(stored) - DATE_CUTOFF, pa.int32()).cast(kind)
        if data_type == DataType.DECIMAL or (data_type == DataType.TIMESTAMP and len(stored) == 8):
            one = Slices(np.frombuffer(stored, np.uint8), np.zeros(1, np.int64), np.full(1, len(stored)))
            return plain_values(one, data_type, kind)[0]
        if data_type == DataType.BINARY:
            return pa.scalar(stored, kind)
        text = pa.scalar(stored.decode(), pa.large_string())
        return text.cast(kind)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        damaged(
            f"column {column.schema.name!r} has the default {stored[:40]!r}, which is no {data_type.name}: {error}"
        )
