"""Delta schemas: from and to Polars types, and whether files of one schema fit another."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.support.suggestions import delta_copy_call

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
