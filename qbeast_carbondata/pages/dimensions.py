"""Pages of dimensions without an encoder meta: surrogates of dictionaries, and values that follow their lengths."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbeast_carbondata.columns import Column
from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.pages.arrays import array_of, flipped_big_endian
from qbeast_carbondata.pages.decimals import scaled_decimals
from qbeast_carbondata.pages.numbers import as_type
from qbeast_carbondata.pages.texts import NULL_TOKEN, Slices, binaries, texts
from qbeast_carbondata.structs.schema import DataType
from qbeast_core.space.values import BoolArray, I64Array

# The surrogate of 1970-01-01.
DATE_CUTOFF: Final = 1073741823
NULL_SURROGATE: Final = 1

_TEXTS: Final = frozenset({DataType.STRING, DataType.VARCHAR})
_TIMES: Final = frozenset({DataType.DATE, DataType.TIMESTAMP})
_FLOATS: Final = frozenset({DataType.FLOAT, DataType.DOUBLE})


class Dictionaries(Protocol):
    """The global dictionaries of a table; several threads may use them at once."""

    def members(self, column: Column) -> Any:
        """Return the members of a column's dictionary in the column's Arrow type.

        Surrogate ``s`` of a page is member ``s`` of the array. The first is a null that no page refers to; the member
        that CarbonData stores for null is null.
        """
        ...

    def direct_timestamp(self) -> tuple[int, int]:
        """Return granularity and cut-off in ms of timestamps that are surrogates."""
        ...


def surrogate_width(cardinality: int | None) -> int:
    """Return the bytes of a surrogate by the number of members; 4 where the file does not store the number.

    >>> [surrogate_width(members) for members in (None, 0, 255, 256, 66_001, 2**31 - 1)]
    [4, 8, 1, 2, 3, 4]
    """
    if cardinality is None or cardinality < 0:
        return 4
    return (cardinality.bit_length() + 7) // 8 if cardinality else 8


def surrogate_values(surrogates: I64Array, column: Column, dictionaries: Dictionaries) -> Any:
    """Return the values of surrogates: members of the global dictionary, days, or steps from a cut-off."""
    if column.has_global_dictionary or column.kind not in _TIMES:
        return members_at(surrogates, dictionaries.members(column))
    nulls = surrogates == NULL_SURROGATE
    if column.kind == DataType.DATE:
        return _dates(surrogates, nulls)
    granularity_ms, cutoff_ms = dictionaries.direct_timestamp()
    ms = (surrogates - 2) * granularity_ms + cutoff_ms
    return as_type(ms, column.arrow_type, nulls if nulls.any() else None)


def members_at(surrogates: I64Array, members: Any) -> Any:
    """Return the members of a dictionary by their surrogates; `Damaged` if it has no such member."""
    if len(surrogates) and (surrogates.min() < 1 or surrogates.max() >= len(members)):
        damaged(f"surrogates reach {surrogates.max()}, and the dictionary has {len(members) - 1} members")
    return members.take(pa.array(surrogates))


def _dates(surrogates: I64Array, nulls: BoolArray) -> Any:
    days = np.where(nulls, 0, surrogates - DATE_CUTOFF)
    return array_of(days.astype(np.int32), pa.date32(), nulls if nulls.any() else None)


def plain_values(
    slices: Slices, column: Column, *, is_child: bool = False, numbers_in_text: bool = False
) -> Any:
    """Return the values of byte strings, by the type of their column."""
    data_type, kind = column.kind, column.arrow_type
    token = slices.equal_to(NULL_TOKEN)
    nulls = token if token.any() else None
    if data_type in _TEXTS:
        return texts(slices, nulls)
    if data_type == DataType.BINARY:
        return binaries(slices)
    empty = token | (slices.lengths == 0)
    if numbers_in_text and data_type not in _TIMES:
        return values_of_texts(slices, column, empty)
    if data_type == DataType.DECIMAL:
        return scaled_decimals(slices, kind, nulls)
    if column.is_nested or (data_type == DataType.DATE and not is_child):
        unreadable(f"a page of {data_type.name} has values that follow their lengths")
    if np.any(slices.lengths[~empty] != column.byte_width):
        if data_type in _TIMES:
            damaged(f"a {data_type.name} does not have {column.byte_width} bytes")
        return values_of_texts(slices, column, empty)
    return _fixed(slices, column, empty)


def _fixed(slices: Slices, column: Column, nulls: BoolArray) -> Any:
    """Return values of one width, whose bytes sort like the values."""
    width = column.byte_width
    stored = np.zeros((len(slices), width), np.uint8)
    stored[~nulls] = slices.data[slices.starts[~nulls][:, None] + np.arange(width)]
    flat = stored.reshape(-1)
    values: Any = flat.view(np.int8) if width == 1 else flipped_big_endian(flat, width)
    if column.kind == DataType.DATE:
        return _dates(values, nulls | (values == NULL_SURROGATE))
    if column.kind in _FLOATS:
        values = values.astype(f"<i{width}").view(f"<f{width}")
    return as_type(values, column.arrow_type, nulls if nulls.any() else None)


def values_of_texts(slices: Slices, column: Column, nulls: BoolArray | None) -> Any:
    """Return texts as values: members of global dictionaries, and numbers of CarbonData up to 1.1."""
    data_type, kind = column.kind, column.arrow_type
    values = texts(slices, nulls)
    if data_type in _TEXTS:
        return values
    if data_type in _TIMES or data_type == DataType.BINARY or column.is_nested:
        unreadable(f"values of type {data_type.name} are stored as text")
    with suppress(pa.ArrowInvalid):
        return pc.cast(values, kind)
    # Java also accepts blanks around a number, a plus before it, and the letter of a type behind it.
    pattern = r"^\s*\+?(.*?)[dDfF]?\s*$" if data_type in _FLOATS else r"^\s*\+?(.*?)\s*$"
    plain = pc.call_function("replace_substring_regex", [values], pc.ReplaceSubstringOptions(pattern, r"\1"))
    try:
        return pc.cast(plain, kind)
    except pa.ArrowInvalid as error:
        damaged(f"neither the bytes nor the text of a {data_type.name}: {error}")


def default_value(column: Column) -> Any:
    """Return the value of rows that were written before a column was added, as an Arrow scalar; None for null."""
    stored = column.schema.default_value
    if not stored or column.is_nested or stored == NULL_TOKEN:
        return None
    kind, data_type = column.arrow_type, column.kind
    try:
        if data_type == DataType.DATE:
            return pa.scalar(int(stored) - DATE_CUTOFF, pa.int32()).cast(kind)
        if data_type == DataType.DECIMAL or (data_type == DataType.TIMESTAMP and len(stored) == 8):
            data = np.frombuffer(stored, np.uint8)
            return plain_values(Slices(data, np.zeros(1, np.int64), np.full(1, len(stored))), column)[0]
        if data_type == DataType.BINARY:
            return pa.scalar(stored, kind)
        return pa.scalar(stored.decode(), pa.large_string()).cast(kind)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        name = column.schema.name
        damaged(f"column {name!r} has the default {stored[:40]!r}, which is not a {data_type.name}: {error}")
