"""Delta schemas: types from and to Polars, fields in JSON, and names of types."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.support.text import delta_copy_call

_DeltaType: TypeAlias = str | dict[str, Any]

_NAMES: Final[Mapping[pl.DataType, str]] = {
    pl.Int8(): "byte",
    pl.Int16(): "short",
    pl.Int32(): "integer",
    pl.Int64(): "long",
    pl.Float32(): "float",
    pl.Float64(): "double",
    pl.String(): "string",
    pl.Binary(): "binary",
    pl.Boolean(): "boolean",
    pl.Date(): "date",
    pl.Datetime("us", "UTC"): "timestamp",
    pl.Datetime("us"): "timestamp_ntz",
}
# A variant: the two binaries of its file format.
VARIANT: Final = pl.Struct({"metadata": pl.Binary(), "value": pl.Binary()})
_TYPES: Final[Mapping[str, pl.DataType]] = {
    **{name: dtype for dtype, name in _NAMES.items()},
    "variant": VARIANT,
    "void": pl.Null(),
}
_MAX_DIGITS: Final = 38
DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def schema_to_delta(schema: pl.Schema) -> str:
    """Return the ``schemaString`` of these columns, all of them nullable.

    >>> schema_to_delta(pl.Schema({"x": pl.Int64}))
    '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
    """
    unknown: list[tuple[str, Any]] = []
    struct = _struct(schema, "", unknown)
    if unknown:
        nulls = [path for path, dtype in unknown if dtype == pl.Null]
        if len(nulls) == len(unknown):
            message = (
                f"all values of {', '.join(nulls)} are null, so the type is not known. Cast the "
                f"column, for example pl.col({nulls[0].partition('.')[0]!r}).cast(pl.String) or CAST(... AS STRING) in "
                "SQL, or drop it."
            )
            raise InvalidInputError(message, argument="df")
        listed = ", ".join(f"{path} ({dtype})" for path, dtype in unknown)
        message = (
            f"Delta has no type for {listed}; cast to one it has: signed "
            'integers, floats, decimals, strings, binary, booleans, dates, Datetime("us") in UTC or no zone.'
        )
        raise InvalidInputError(message, argument="df")
    return orjson.dumps(struct).decode()


def unknown_types(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the columns, or fields inside of them, that Delta has no type for, with their types.

    >>> unknown_types({"x": pl.Struct({"y": pl.Time}), "z": pl.Int8()})
    [('x.y', Time)]
    """
    unknown: list[tuple[str, Any]] = []
    _struct(schema, "", unknown)
    return unknown


def noted_fields(schema_string: str, notes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a schema whose columns have notes: comments, and other metadata by name.

    >>> noted_fields(schema_to_delta(pl.Schema({"x": pl.Int8})), {"x": {"comment": "a byte"}})
    '{"type":"struct","fields":[{"name":"x","type":"byte","nullable":true,"metadata":{"comment":"a byte"}}]}'
    """
    if not notes:
        return schema_string
    whole = orjson.loads(schema_string)
    for field in whole["fields"]:
        field["metadata"] = {**field.get("metadata", {}), **notes.get(field["name"], {})}
    return orjson.dumps(whole).decode()


def without_nulls(schema_string: str, names: Collection[str]) -> str:
    """Return a schema in which some columns allow no nulls.

    >>> without_nulls(schema_to_delta(pl.Schema({"x": pl.Int8})), {"x"})
    '{"type":"struct","fields":[{"name":"x","type":"byte","nullable":false,"metadata":{}}]}'
    """
    whole = orjson.loads(schema_string)
    for field in whole["fields"]:
        field["nullable"] = field["name"] not in names
    return orjson.dumps(whole).decode()


def schema_from_delta(schema_string: str, *, path: str = "the table") -> pl.Schema:
    """Return the Polars types of a Delta schema: maps become ``pl.Map``, timestamps microseconds, variants structs.

    `path` names the table in the message.

    >>> dict(schema_from_delta('{"type":"struct","fields":[{"name":"x","type":"decimal(9,2)"}]}'))
    {'x': Decimal(precision=9, scale=2)}
    """
    columns: dict[str, pl.DataType] = {}
    for field in orjson.loads(schema_string)["fields"]:
        try:
            columns[field["name"]] = type_from_delta(field["type"])
        except _UnknownTypeError as error:
            raise _refused(field["name"], str(error), path) from error
    return pl.Schema(columns)


def type_from_delta(dtype: Any) -> Any:
    """Return the Polars type of a type in a Delta schema.

    >>> type_from_delta("long")
    Int64
    """
    if isinstance(dtype, dict):
        match dtype["type"]:
            case "struct":
                return pl.Struct({field["name"]: type_from_delta(field["type"]) for field in dtype["fields"]})
            case "array":
                return pl.List(type_from_delta(dtype["elementType"]))
            case "map":
                return pl.Map(type_from_delta(dtype["keyType"]), type_from_delta(dtype["valueType"]))
            case "variant":
                return VARIANT
            case _:
                pass
    elif dtype in _TYPES:
        return _TYPES[dtype]
    elif (digits := DECIMAL.fullmatch(dtype)) is not None:
        return pl.Decimal(int(digits[1]), int(digits[2]))
    raise _UnknownTypeError(_type_text(dtype))


def schema_problems(files: str, table: str, names: Mapping[str, str] | None = None) -> list[str]:
    """Return why files written for one schema do not fit a table of another; empty: they fit.

    Every column of the files must be in the table with the same type and be allowed its nulls; columns that
    only the table has must be nullable, because the files give nulls there. Columns are compared by their names in
    these schemas; `names` has other names for the texts.

    >>> schema_problems(schema_to_delta(pl.Schema({"x": pl.Int64})),
    ...                 schema_to_delta(pl.Schema({"x": pl.String})))
    ['x is string now, the files hold long']
    """
    ours, theirs, shown = _fields(files), _fields(table), names or {}
    problems: list[str] = []
    for stored_name, field in ours.items():
        other, name = theirs.get(stored_name), shown.get(stored_name, stored_name)
        if other is None:
            problems.append(f"{name} is gone")
        elif _bare(other["type"]) != _bare(field["type"]):
            now, then = _type_text(other["type"]), _type_text(field["type"])
            problems.append(f"{name} is {now} now, the files hold {then}")
        elif field.get("nullable", True) and not other.get("nullable", True):
            problems.append(f"{name} allows no nulls now")
    added = [name for name, field in theirs.items() if name not in ours and not field.get("nullable", True)]
    return problems + [f"{shown.get(name, name)} is new and allows no nulls" for name in added]


def merged_schema(schema_string: str, columns: Mapping[str, Any]) -> str:
    """Return a schema with all fields of some columns: new ones follow at the end, nullable, at each depth.

    The text of a schema that gains nothing is returned as it is.

    >>> schema = schema_to_delta(pl.Schema({"s": pl.Struct({"x": pl.Int64})}))
    >>> dict(schema_from_delta(merged_schema(schema, {"s": pl.Struct({"y": pl.Int8}), "t": pl.Int8()})))
    {'s': Struct({'x': Int64, 'y': Int8}), 't': Int8}
    """
    whole = orjson.loads(schema_string)
    names = {field["name"] for field in whole["fields"]}
    schema_to_delta(
        pl.Schema({name: dtype for name, dtype in columns.items() if name not in names})
    )  # may raise
    merged = _merged(whole, pl.Struct(columns))
    return schema_string if merged == whole else orjson.dumps(merged).decode()


def _struct(fields: Mapping[str, Any], above: str, unknown: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a struct of Delta; fields whose types Delta lacks are added to `unknown`."""
    listed = [
        {"name": name, "type": _to_delta(dtype, f"{above}{name}", unknown), "nullable": True, "metadata": {}}
        for name, dtype in fields.items()
    ]
    return {"type": "struct", "fields": listed}


def _to_delta(dtype: Any, path: str, unknown: list[tuple[str, Any]]) -> _DeltaType:
    if isinstance(dtype, pl.Struct) and dtype.fields:
        return _struct(dtype.to_schema(), f"{path}.", unknown)
    if isinstance(dtype, pl.List | pl.Array):
        element = _to_delta(dtype.inner, f"{path}.element", unknown)
        return {"type": "array", "elementType": element, "containsNull": True}
    if isinstance(dtype, pl.Map):
        key = _to_delta(dtype.key, f"{path}.key", unknown)
        value = _to_delta(dtype.value, f"{path}.value", unknown)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    # Polars also makes decimals of other precisions, which hold nothing.
    if isinstance(dtype, pl.Decimal) and 0 <= dtype.scale <= (dtype.precision or 0) <= _MAX_DIGITS:
        return f"decimal({dtype.precision},{dtype.scale})"
    if dtype not in _NAMES:
        unknown.append((path, dtype))
    return _NAMES.get(dtype, "")


def _merged(ours: Any, other: Any) -> Any:
    """Return a Delta type with the fields that only another type has. Other differences do not count."""
    match ours, other:
        case {"type": "struct", "fields": fields}, pl.Struct():
            found = dict(other.to_schema())
            kept = [
                {**field, "type": _merged(field["type"], found.pop(field["name"], None))} for field in fields
            ]
            new = pl.Schema({name: dtype for name, dtype in found.items() if dtype != pl.Null()})
            return {**ours, "fields": kept + orjson.loads(schema_to_delta(new))["fields"]}
        case {"type": "array", "elementType": element}, pl.List():
            return {**ours, "elementType": _merged(element, other.inner)}
        case {"type": "map", "valueType": value}, pl.Map():
            return {**ours, "valueType": _merged(value, other.value)}
        case _:
            return ours


class _UnknownTypeError(Exception):
    """A type of Delta has no type of Polars; the text is the type."""


def _refused(name: str, dtype: str, path: str) -> UnsupportedTableError:
    message = (
        f"column {name!r} of {path} holds values of type {dtype}, which qbeast does not support. "
        f"Copy the other columns into a new table: {delta_copy_call(path, without=name)}."
    )
    return UnsupportedTableError(message, path=path, feature=dtype)


def _fields(schema_string: str) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in orjson.loads(schema_string)["fields"]}


def _bare(dtype: Any) -> Any:
    """Return a type without the metadata of fields (comments and the like), which do not bind a file."""
    if isinstance(dtype, dict):
        return {key: _bare(value) for key, value in dtype.items() if key != "metadata"}
    return [_bare(field) for field in dtype] if isinstance(dtype, list) else dtype


def _type_text(dtype: Any) -> str:
    return dtype if isinstance(dtype, str) else orjson.dumps(dtype).decode()


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


# A type of Polars, Python, Arrow, `deltalake` or PySpark, or the name of one.
TypeLike: TypeAlias = Any

# Delta's names of types that are not nested.
NAMES: Final = (
    "byte, short, integer, long, float, double, decimal(p,s), string, binary, boolean, date, timestamp (in UTC) and "
    "timestamp_ntz"
)

_SQL: Final = {
    "bigint": "long",
    "blob": "binary",
    "bool": "boolean",
    "bytes": "binary",
    "char": "string",
    "int": "integer",
    "real": "float",
    "smallint": "short",
    "str": "string",
    "text": "string",
    "tinyint": "byte",
    "varchar": "string",
}
_ONLY_READ: Final = ("variant", "void")
_ANY_DECIMAL: Final = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def type_of(dtype: TypeLike) -> pl.DataType:
    """Return a user's type as a Polars type.

    >>> import pyarrow as pa
    >>> [str(type_of(dtype)) for dtype in (pl.Int64, int, pa.int64(), "long", "BIGINT", "Int64")]
    ['Int64', 'Int64', 'Int64', 'Int64', 'Int64', 'Int64']
    >>> type_of("decimal(9,2)")
    Decimal(precision=9, scale=2)
    """
    if isinstance(dtype, str):
        return _named(dtype)
    import pyarrow as pa  # noqa: PLC0415 - slow to load, and most reads do without

    if isinstance(dtype, pa.DataType):
        return pl.Schema(pa.schema([pa.field("", dtype)]))[""]
    for method in ("to_json", "json"):  # of deltalake, of PySpark: both as in the log
        if not isinstance(dtype, type) and callable(getattr(dtype, method, None)):
            return _of_log(orjson.loads(getattr(dtype, method)()))
    return pl.DataFrame(schema={"": dtype}).schema[""]


def _named(name: str) -> pl.DataType:
    text = name.strip().lower()
    decimal = _ANY_DECIMAL.fullmatch(text)
    if decimal is not None:
        return _of_log(f"decimal({decimal[1]},{decimal[2] or 0})")
    polars_type = getattr(pl, name, None)
    if isinstance(polars_type, type) and issubclass(polars_type, pl.DataType):
        return type_of(polars_type)
    return _of_log(_SQL.get(text, text))


def _of_log(written: object) -> pl.DataType:
    if written in _ONLY_READ:
        msg = f"columns of type {written!r} can be read and written, and not made"
        raise TypeError(msg)
    try:
        return schema_from_delta(orjson.dumps({"fields": [{"name": "", "type": written}]}).decode())[""]
    except UnsupportedTableError as error:
        msg = f"{written!r} is not a type"
        raise TypeError(msg) from error
