"""Fields of Delta schemas at any depth, by their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import orjson

Field: TypeAlias = dict[str, Any]
# Names from the column on. Inside of lists and maps, "element", "key" and "value" come between.
FieldPath: TypeAlias = tuple[str, ...]

# Notes that describe types and values: another type, or other values, may not fit them.
_NOT_OF_USERS: Final = ("delta.", "__", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
_PARTS: Final = ("element", "key", "value")


def field_paths(schema_string: str) -> list[FieldPath]:
    """Return the paths of all fields, the outer ones first.

    >>> field_paths('{"type":"struct","fields":[{"name":"s","type":{"type":"array","elementType":'
    ...             '{"type":"struct","fields":[{"name":"x","type":"long"}]}}}]}')
    [('s',), ('s', 'element', 'x')]
    """
    return sorted((path for path, _ in fields_of(orjson.loads(schema_string))), key=len)


def fields_of(dtype: Any, above: FieldPath = ()) -> Iterator[tuple[FieldPath, Field]]:
    """Yield the fields inside of a type, at any depth, the outer ones first."""
    for path, field in inner_fields(dtype):
        yield (*above, *path), field
        yield from fields_of(field["type"], (*above, *path))


def with_notes(schema_string: str, known: str) -> str:
    """Return a schema with the comments, and other notes of users, that fields of the same path have in another one.

    >>> one = '{"type":"struct","fields":[{"name":"x","type":"long","metadata":{"comment":"c","delta.a":1}}]}'
    >>> with_notes('{"type":"struct","fields":[{"name":"x","type":"string","metadata":{}}]}', one)
    '{"type":"struct","fields":[{"name":"x","type":"string","metadata":{"comment":"c"}}]}'
    """
    fields = dict(fields_of(orjson.loads(known)))
    notes = {path: _notes_of_users(field) for path, field in fields.items()}

    def visit(path: FieldPath, field: Field) -> Field:
        merged = {**notes.get(path, {}), **(field.get("metadata") or {})}
        return {**field, "type": with_inner_fields(field["type"], visit, path), "metadata": merged}

    return orjson.dumps(with_inner_fields(orjson.loads(schema_string), visit)).decode()


def _notes_of_users(field: Field) -> dict[str, Any]:
    notes = field.get("metadata") or {}
    return {key: value for key, value in notes.items() if not key.startswith(_NOT_OF_USERS)}


def inner_fields(dtype: Any) -> Iterator[tuple[FieldPath, Field]]:
    """Yield the fields of a type, but not the fields inside of them."""
    if not isinstance(dtype, dict):
        return
    for field in dtype.get("fields", ()):
        yield (field["name"],), field
    for part in _PARTS:
        for path, field in inner_fields(dtype.get(f"{part}Type")):
            yield (part, *path), field


def with_inner_fields(
    dtype: Any, change: Callable[[FieldPath, Field], Field | None], above: FieldPath = ()
) -> Any:
    """Return a type with other fields. `change` gets each field that `inner_fields` yields; None drops it."""
    if not isinstance(dtype, dict):
        return dtype
    changed = dict(dtype)
    if "fields" in dtype:
        fields = [change((*above, field["name"]), field) for field in dtype["fields"]]
        changed["fields"] = [field for field in fields if field is not None]
    for part in _PARTS:
        if f"{part}Type" in dtype:
            changed[f"{part}Type"] = with_inner_fields(dtype[f"{part}Type"], change, (*above, part))
    return changed


def changed_field(schema_string: str, path: FieldPath, change: Callable[[Field], Field | None]) -> str:
    """Return a schema with another field at a path, or without the field if `change` returns None."""

    def visit(place: FieldPath, field: Field) -> Field | None:
        if place == path:
            return change(field)
        if place != path[: len(place)]:
            return field
        return {**field, "type": with_inner_fields(field["type"], visit, place)}

    return orjson.dumps(with_inner_fields(orjson.loads(schema_string), visit)).decode()
