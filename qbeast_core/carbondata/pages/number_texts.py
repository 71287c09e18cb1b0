"""Numbers that are stored as text: members of global dictionaries, and dimensions of CarbonData up to 1.1."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.carbondata.pages.texts import Slices, texts
from qbeast_core.carbondata.structs.schema import DataType
from qbeast_core.space.arrays import BoolArray

_TEXTS: Final = frozenset({DataType.STRING, DataType.VARCHAR})
_FLOATS: Final = frozenset({DataType.FLOAT, DataType.DOUBLE})
_NUMBERS: Final = frozenset(
    {DataType.BYTE, DataType.SHORT, DataType.INT, DataType.LONG, DataType.DECIMAL, DataType.BOOLEAN, *_FLOATS}
)


def values_of_texts(slices: Slices, data_type: DataType, kind: Any, nulls: BoolArray | None) -> Any:
    """Return texts as values of a type."""
    found = texts(slices, nulls)
    if data_type in _TEXTS:
        return found
    if data_type not in _NUMBERS:
        message = f"values of type {data_type.name} are stored as text"
        raise Unreadable(message)
    try:
        return pc.cast(found, kind)
    except pa.ArrowInvalid:
        pass
    # What Java reads besides: blanks around a number, a plus before it, the letter of a type behind it.
    pattern = r"^\s*\+?(.*?)[dDfF]?\s*$" if data_type in _FLOATS else r"^\s*\+?(.*?)\s*$"
    plain = pc.call_function("replace_substring_regex", [found], pc.ReplaceSubstringOptions(pattern, r"\1"))
    try:
        return pc.cast(plain, kind)
    except pa.ArrowInvalid as error:
        damaged(f"a {data_type.name} has neither the bytes nor the text of one: {error}")
