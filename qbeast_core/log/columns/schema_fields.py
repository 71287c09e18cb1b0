"""Fields of the JSON schema of Delta: edits, types without a type in Polars, and changes of types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import polars as pl

from qbeast_core.log.delta_schema import DECIMAL, type_from_delta

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


VARIANT_NAME: Final = "variant"
VOID: Final = "void"

_INNER: Final = ("elementType", "keyType", "valueType")


def is_variant(dtype: Any) -> bool:
    """Return whether a type of a Delta schema is a variant; the protocol has two forms for it.

    >>> is_variant("variant"), is_variant({"type": "variant"}), is_variant("binary")
    (True, True, False)
    """
    return dtype == VARIANT_NAME or (isinstance(dtype, dict) and dtype.get("type") == VARIANT_NAME)


def is_special(dtype: Any) -> bool:
    """Return whether a type is or contains a variant or a void."""
    return any(is_variant(part) or part == VOID for part in _parts_of(dtype))


def statistics_schema(special_types: Mapping[str, Any], schema: pl.Schema) -> pl.Schema:
    """Return a schema in which a variant is one leaf: Delta counts the nulls of a variant, not of its binaries.

    >>> dict(statistics_schema({"v": "variant"}, pl.Schema({"v": type_from_delta("variant"), "x": pl.Int64})))
    {'v': Binary, 'x': Int64}
    """
    leaves = {
        name: type_from_delta(_with_leaves(dtype)) for name, dtype in special_types.items() if name in schema
    }
    return pl.Schema({**schema, **leaves})


def unstored_voids(schema_string: str) -> list[str]:
    """Return the columns with a void that files cannot leave out: in a list or a map, or alone in a struct.

    >>> unstored_voids('{"fields":[{"name":"a","type":"void"},{"name":"b","type":'
    ...                '{"type":"array","elementType":"void","containsNull":true}}]}')
    ['b']
    """
    if '"void"' not in schema_string:
        return []
    fields = orjson.loads(schema_string)["fields"]
    return [field["name"] for field in fields if field["type"] != VOID and _keeps_void(field["type"])]


def _parts_of(dtype: Any) -> Iterator[Any]:
    """Yield a type and all types inside it."""
    yield dtype
    if isinstance(dtype, dict):
        for field in dtype.get("fields", ()):
            yield from _parts_of(field["type"])
        for key in _INNER:
            if key in dtype:
                yield from _parts_of(dtype[key])


def _with_leaves(dtype: Any) -> Any:
    if is_variant(dtype):
        return "binary"
    if not isinstance(dtype, dict):
        return dtype
    inner = {key: _with_leaves(dtype[key]) for key in _INNER if key in dtype}
    if "fields" in dtype:
        inner["fields"] = [{**field, "type": _with_leaves(field["type"])} for field in dtype["fields"]]
    return {**dtype, **inner}


def _keeps_void(dtype: Any) -> bool:
    if not isinstance(dtype, dict):
        return False
    inner = [dtype[key] for key in _INNER if key in dtype]
    if VOID in inner or any(map(_keeps_void, inner)):
        return True
    types = [field["type"] for field in dtype.get("fields", ())]
    return bool(types) and (all(item == VOID for item in types) or any(map(_keeps_void, types)))


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
    match = DECIMAL.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))
