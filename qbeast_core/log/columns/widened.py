"""Fields of a Delta schema with wider types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
import polars as pl

from qbeast_core.log.columns.special_types import VOID, is_variant
from qbeast_core.log.columns.type_changes import TYPE_CHANGES, TypeChange, is_widening
from qbeast_core.log.schema import VARIANT, schema_to_delta

# Names in the path of a change, by the keys of lists and maps.
_PATHS: Final[Mapping[str, str]] = {"elementType": "element", "keyType": "key", "valueType": "value"}
# A variant, as the schema of its rows has it.
_AS_STRUCT: Final = orjson.loads(schema_to_delta(pl.Schema({"": VARIANT})))["fields"][0]["type"]


class NotWiderError(Exception):
    """A type of a schema cannot become another one without new values."""


def widened_field(field: Mapping[str, Any], wanted: Any) -> tuple[dict[str, Any], list[TypeChange]]:
    """Return a field with a wider type and notes of the changes, for older files, and the changes.

    >>> field, changes = widened_field({"name": "x", "type": "byte", "metadata": {}}, "long")
    >>> field["metadata"]["delta.typeChanges"], changes[0].to_type
    ([{'fromType': 'byte', 'toType': 'long'}], 'long')
    """
    widening = _Widening(field["name"])
    dtype = widening.of(field["type"], wanted, ())
    new = {**field, "type": dtype}
    if widening.notes:
        metadata = dict(field.get("metadata") or {})
        new["metadata"] = {**metadata, TYPE_CHANGES: [*metadata.get(TYPE_CHANGES, ()), *widening.notes]}
    return new, widening.changes


class _Widening:
    """Walks through the type of a field; the structs inside it have fields with notes of their own."""

    def __init__(self, column: str) -> None:
        self._column = column
        self.notes: list[dict[str, str]] = []
        self.changes: list[TypeChange] = []

    def of(self, dtype: Any, wanted: Any, path: tuple[str, ...]) -> Any:
        """Return the wider type. The path leads to it, through lists and maps."""
        if dtype in (wanted, VOID) or (is_variant(dtype) and wanted == _AS_STRUCT):
            return wanted if dtype == VOID else dtype
        if isinstance(dtype, str):
            self._note(dtype, wanted, path)
            return wanted
        if not isinstance(wanted, dict) or dtype["type"] != wanted["type"]:
            raise NotWiderError
        if dtype["type"] == "struct":
            return {**dtype, "fields": self._fields(dtype["fields"], wanted["fields"])}
        inner = {
            key: self.of(dtype[key], wanted[key], (*path, name))
            for key, name in _PATHS.items()
            if key in dtype
        }
        return {**dtype, **inner}

    def _note(self, dtype: str, wanted: Any, path: tuple[str, ...]) -> None:
        if not isinstance(wanted, str) or not is_widening(dtype, wanted):
            raise NotWiderError
        where = {"fieldPath": ".".join(path)} if path else {}
        self.notes.append({"fromType": dtype, "toType": wanted, **where})
        self.changes.append(TypeChange(self._column, not path, dtype, wanted))

    def _fields(self, fields: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if [field["name"] for field in fields] != [field["name"] for field in wanted]:
            raise NotWiderError
        new: list[dict[str, Any]] = []
        for field, wider in zip(fields, wanted, strict=True):
            part, changes = widened_field(field, wider["type"])
            new.append(part)
            self.changes += [change._replace(column=self._column, is_whole=False) for change in changes]
        return new


def without_notes(field: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a widened field with the notes that it had before, for tables whose files all have the new types."""
    new = {**field, "metadata": before.get("metadata", {}), "type": _plain(field["type"], before["type"])}
    return new if "metadata" in before else {key: value for key, value in new.items() if key != "metadata"}


def _plain(dtype: Any, before: Any) -> Any:
    if not isinstance(dtype, dict) or not isinstance(before, dict):
        return dtype
    if dtype["type"] == "struct":
        pairs = zip(dtype["fields"], before["fields"], strict=True)
        return {**dtype, "fields": [without_notes(field, old) for field, old in pairs]}
    return {**dtype, **{key: _plain(dtype[key], before[key]) for key in _PATHS if key in dtype}}
