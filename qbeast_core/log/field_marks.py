"""What the fields of a Delta schema say beyond names and types: marks of features in their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from qbeast_core.log.actions import Metadata

__all__ = ["is_mapped", "marks_in_use"]

# Delta reads these of columns alone, not of fields inside of structs.
_OF_COLUMNS: Final[Mapping[str, str]] = {
    "delta.generationExpression": "generatedColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}
_OF_FIELDS: Final[Mapping[str, str]] = {
    "delta.invariants": "invariants",
    "delta.typeChanges": "typeWidening",
}
_IDENTITY: Final = "delta.identity."
_PHYSICAL: Final = "delta.columnMapping.physicalName"


def marks_in_use(schema_string: str) -> set[str]:
    """Return the features whose marks the schema's fields bear.

    Parameters
    ----------
    schema_string : str
        Delta's ``schemaString``.

    Examples
    --------
    >>> marks_in_use('{"type":"struct","fields":[{"name":"x","type":"long",'
    ...              '"metadata":{"delta.generationExpression":"y + 1"}}]}')
    {'generatedColumns'}
    >>> marks_in_use('{"type":"struct","fields":[{"name":"delta.generationExpression","type":"long"}]}')
    set()
    """
    # Most schemas bear no mark, and a search is much faster than reading a wide schema.
    if '"delta.' not in schema_string and "CURRENT_DEFAULT" not in schema_string:
        return set()
    columns = orjson.loads(schema_string)["fields"]
    found = {feature for key in _keys(columns) for mark, feature in _OF_COLUMNS.items() if key == mark}
    if any(key.startswith(_IDENTITY) for key in _keys(columns)):
        found.add("identityColumns")
    inner = set(_keys(_fields({"type": "struct", "fields": columns})))
    return found | {feature for mark, feature in _OF_FIELDS.items() if mark in inner}


def is_mapped(metadata: Metadata) -> bool:
    """Tell whether the files of a table know its columns by other names.

    Mapping by name is harmless as long as each name stands for itself, as it does in tables that were given
    the mapping later and had no column renamed or put back since.
    """
    mode = metadata.configuration.get("delta.columnMapping.mode", "none").lower()
    if mode in ("none", "name"):
        schema = orjson.loads(metadata.schema_string) if mode == "name" else {"type": "struct", "fields": []}
        return any((field.get("metadata") or {}).get(_PHYSICAL) != field["name"] for field in _fields(schema))
    return True


def _keys(fields: list[dict[str, Any]] | Iterator[dict[str, Any]]) -> Iterator[str]:
    for field in fields:
        yield from field.get("metadata") or ()


def _fields(told: Any) -> Iterator[dict[str, Any]]:
    """Walk all fields of structs, at any depth."""
    if not isinstance(told, dict):
        return
    for field in told.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for key in ("elementType", "keyType", "valueType"):
        yield from _fields(told.get(key))
