"""Columns whose type was widened: older files have the narrower type (the feature typeWidening of Delta)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

TYPE_CHANGES: Final = "delta.typeChanges"
ENABLED: Final = "delta.enableTypeWidening"

# Digits that an integer type needs as a decimal.
_DIGITS: Final[Mapping[str, int]] = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_INTEGERS: Final = tuple(_DIGITS)
_PAIRS: Final = frozenset(
    {
        *((narrow, "double") for narrow in ("byte", "short", "integer", "float")),
        ("date", "timestamp_ntz"),
    }
)
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
# Decimals of up to this precision are hashed as a long.
_LONG_DIGITS: Final = 18


class TypeChange(NamedTuple):
    """A change of the type of a column or of a part of it."""

    column: str
    # Whether the column itself changed, not a part of it.
    is_whole: bool
    from_type: str
    to_type: str


def type_changes(schema_string: str) -> list[TypeChange]:
    """Return the changes of types that a schema lists.

    >>> type_changes('{"fields":[{"name":"x","type":"long","metadata":{"delta.typeChanges":'
    ...              '[{"fromType":"integer","toType":"long"}]}}]}')
    [TypeChange(column='x', is_whole=True, from_type='integer', to_type='long')]
    """
    if TYPE_CHANGES not in schema_string:  # a search is much faster than reading a wide schema
        return []
    fields = orjson.loads(schema_string)["fields"]
    return [change for field in fields for change in changes_of(field)]


def changes_of(field: Mapping[str, Any]) -> list[TypeChange]:
    """Return the changes of a column and of its parts, from its field in the schema."""
    whole = [
        TypeChange(field["name"], "fieldPath" not in item, str(item["fromType"]), str(item["toType"]))
        for item in (field.get("metadata") or {}).get(TYPE_CHANGES, ())
    ]
    inner = [
        TypeChange(field["name"], is_whole=False, from_type=change.from_type, to_type=change.to_type)
        for part in nearest_fields(field["type"])
        for change in changes_of(part)
    ]
    return whole + inner


def nearest_fields(dtype: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the nearest fields of structs inside a type."""
    if not isinstance(dtype, dict):
        return
    yield from dtype.get("fields", ())
    for key in ("elementType", "keyType", "valueType"):
        yield from nearest_fields(dtype.get(key))


def is_widening(narrow: str, wide: str) -> bool:
    """Return whether Delta allows a change of types, given by their names in a schema.

    >>> is_widening("integer", "decimal(10,0)"), is_widening("decimal(9,2)", "decimal(10,4)")
    (True, False)
    """
    if (narrow, wide) in _PAIRS:
        return True
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(narrow) < _INTEGERS.index(wide)
    after, before = _decimal(wide), _decimal(narrow)
    if after is None:
        return False
    digits, scale = before or (_DIGITS.get(narrow, 39), 0)
    more_digits, more_scale = after
    return more_digits - more_scale >= digits - scale and more_scale >= scale and narrow != wide


def changes_hash(change: TypeChange) -> bool:
    """Return whether equal values of the two types have different weights.

    >>> changes_hash(TypeChange("x", True, "byte", "integer")), changes_hash(TypeChange("x", True, "byte", "long"))
    (False, True)
    """
    before, after = _decimal(change.from_type), _decimal(change.to_type)
    if before is not None and after is not None:
        return before[1] != after[1] or (before[0] <= _LONG_DIGITS) != (after[0] <= _LONG_DIGITS)
    return not {change.from_type, change.to_type} <= {"byte", "short", "integer"}


def _decimal(name: str) -> tuple[int, int] | None:
    match = _DECIMAL.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))
